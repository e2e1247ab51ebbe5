#!/usr/bin/env bash
# Gives the Python package an environment of its own, .cache/venv, with what builds, checks and tests it.
#
#     scripts/python.sh              the environment
#     scripts/python.sh REQUIREMENTS and the packages of that file
#     scripts/python.sh --check      nothing; fails when the first would have something to do
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
source scripts/setup/needs.sh

venv=.cache/venv
stamp="$venv/requirements"
if [ "${1:-}" = --check ]; then
    # What was added for another command stands after it.
    lines="$(($(wc -l <tests/python/requirements.txt)))"
    fits "$venv/bin/python" && [ "$(head -n "$lines" "$stamp" 2>/dev/null)" = "$(cat tests/python/requirements.txt)" ]
    exit
fi
requirements=(tests/python/requirements.txt "$@")

# An environment whose Python is gone or too old is made anew.
if ! fits "$venv/bin/python"; then
    python="$(find_python)" || {
        echo "python: the package needs Python $oldest_python or newer, and none was found. Run make setup." >&2
        exit 1
    }
    echo "python: making $venv with $("$python" --version) …"
    rm -rf "$venv"
    if ! "$python" -m venv "$venv"; then
        echo "python: $python cannot make environments. On Debian, as root: apt-get install python3-venv" >&2
        exit 1
    fi
fi

wanted="$(cat "${requirements[@]}")"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    named=()
    for file in "${requirements[@]}"; do named+=(--requirement "$file"); done
    echo "python: pip install ${named[*]}"
    # Without bytecode, which lies in .cache/python and is made for what is imported.
    "$venv/bin/python" -m pip install --no-compile --disable-pip-version-check --no-input --progress-bar off "${named[@]}" </dev/null
    printf '%s\n' "$wanted" >"$stamp"
fi
