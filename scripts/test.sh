#!/usr/bin/env bash
# All tests of all languages. Every part runs, also after another has failed, so that one run shows everything.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()

part() {
    local title="$1"
    shift
    printf '\n== %s\n   %s\n' "$title" "$*"
    "$@" </dev/null || failed+=("$title")
}

part "Rust: unit, integration and documentation tests" cargo test --workspace --locked
part "Python: the server harness" python3 -m unittest discover -s tests/servers
part "Python: one version everywhere" python3 -m unittest discover -s tests -p 'test_versions.py'
if command -v node >/dev/null; then
    part "Node: the server harness" node --test tests/servers/servers.test.mjs
else
    printf '\n== Node: skipped, node was not found\n'
fi

echo
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All tests passed."
