#!/usr/bin/env bash
# Gives the Python package an environment of its own, .cache/venv, with what builds, checks and tests it.
#
#     scripts/python.sh              the environment
#     scripts/python.sh REQUIREMENTS and the packages of that file
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.cache/venv
requirements=(tests/python/requirements.txt "$@")

# The oldest Python that the package supports; harness and scripts need less.
fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in python3 python3.{14..10} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[0-9].*/bin/python3; do
        if command -v "$candidate" >/dev/null && fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "python: the package needs Python 3.10 or newer, and none was found. Install one." >&2
    return 1
}

# An environment whose Python is gone or too old is made anew.
if ! fits "$venv/bin/python"; then
    python="$(find_python)"
    echo "python: making $venv with $("$python" --version) …"
    rm -rf "$venv"
    if ! "$python" -m venv "$venv"; then
        echo "python: $python cannot make environments. On Debian, as root: apt-get install python3-venv" >&2
        exit 1
    fi
fi

stamp="$venv/requirements"
wanted="$(cat "${requirements[@]}")"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    named=()
    for file in "${requirements[@]}"; do named+=(--requirement "$file"); done
    echo "python: pip install ${named[*]}"
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off "${named[@]}" </dev/null
    printf '%s\n' "$wanted" >"$stamp"
fi
