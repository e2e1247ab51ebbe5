#!/usr/bin/env bash
# Everything that can be judged without running the tests. A tool that is not installed is named, not required.
set -euo pipefail
cd "$(dirname "$0")/.."

# The tools of the package's own environment first, so that all agree about their versions.
export PATH="$PWD/.cache/venv/bin:$PATH"

failed=()

part() {
    local title="$1"
    shift
    printf '\n== %s\n   %s\n' "$title" "$*"
    "$@" || failed+=("$title")
}

optional() {
    local tool="$1"
    shift
    if command -v "$tool" >/dev/null; then
        part "$@"
    else
        printf '\n== %s: skipped, %s was not found\n' "$1" "$tool"
    fi
}

# The programs mypy starts from; what they import is checked with them.
python=(tests bindings-python examples benches scripts)
python_programs=(tests/test_versions.py tests/servers/servers.py tests/servers/client.py tests/servers/test_servers.py)

part "Rust: format" cargo fmt --all --check
part "Rust: lints" cargo clippy --workspace --all-targets --locked -- -D warnings
optional cargo-deny "Rust: licenses, sources" cargo deny --locked check bans licenses sources
# On its own, since only this one needs the network: it fetches the list of known advisories.
optional cargo-deny "Rust: advisories" cargo deny --locked check advisories
optional ruff "Python: lints" ruff check "${python[@]}"
optional ruff "Python: format" ruff format --check "${python[@]}"
optional mypy "Python: types" mypy "${python_programs[@]}"

echo
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All checks passed."
