#!/usr/bin/env bash
# The tests of all languages that take seconds. What takes minutes is in test_all.sh, which sets TIDEGATE_FULL for this one too: with
# it random tests run all their cases, and otherwise as many as there are seconds for.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "This takes 10 to 14 minutes on two cores from a fresh clone: 3 to compile, 4 or 5 for Rust, as long for Python and Node."
# shellcheck source=scripts/parts.sh
. scripts/parts.sh
# shellcheck source=scripts/compile.sh
. scripts/compile.sh

# The generated files are committed, and must be those of this build.
generated=(bindings-node/binding/index.d.ts bindings-node/binding/index.js)
generated_agree() {
    local file
    for file in "${generated[@]}"; do
        diff "$file" ".cache/generated/$(basename "$file")" || return 1
    done
}
rm -rf .cache/generated && mkdir -p .cache/generated
cp "${generated[@]}" .cache/generated

stubs_agree() {
    rm -rf .cache/stubs
    pyo3-introspection "$library" _tidegate .cache/stubs && python scripts/stubs.py .cache/stubs --check
}

# Both packages before the tests of either: one of Python's starts a service of each language.
before=${#failed[@]}
compile
compiled=$((${#failed[@]} == before))
# A history that three languages write together runs beside Python and Node.
of_three_languages='test(/^histories::.*loses_nothing/)'
part "Rust: unit and integration tests" cargo nextest run "${rust[@]}" -E "not $of_three_languages"
if [ "$compiled" = 1 ]; then
    # Both wait a lot, for servers and for clocks.
    beside "Histories of Rust, Python and Node" \
        env TIDEGATE_CLIENTS=python,node cargo nextest run "${rust[@]}" -E "$of_three_languages"
    beside "Node: the package, the web adapters, the server harness, and Python on the same Redis" \
        node --test --test-concurrency 3 --test-reporter spec tests/servers/*.test.mjs tests/node/*.test.mjs tests/node/web/*.test.mjs tests/cross/*.test.mjs
fi
part "Rust: documentation tests" cargo test --quiet --doc "${rust[@]}"
if [ "$compiled" = 1 ]; then
    part "Python: the committed stubs are what the module says" stubs_agree
    part "Python: types of a user" mypy tests/python/typing/sample.py
    part "Python: stubs and module agree" python -m mypy.stubtest --mypy-config-file pyproject.toml tidegate._tidegate
    part "Python: the package, the server harness, the scripts" \
        python -m pytest --quiet --numprocesses 4 --dist loadfile --no-loadscope-reorder --durations 8 \
        --ignore tests/python/long tests/python tests/servers tests/setup tests/test_*.py
    rejoin
    part "Node: the committed bindings are what the addon says" generated_agree
fi

echo
echo "Not run here, but by \`make test-all\`: the packages in clean environments, floods, growth of memory, other servers, other versions of frameworks."
finish "All tests passed."
