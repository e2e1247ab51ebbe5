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

part "Rust: unit, integration and documentation tests" cargo test --workspace --locked --no-fail-fast
part "Python: the server harness" python3 -m unittest discover -s tests/servers
part "Python: one version everywhere" python3 -m unittest discover -s tests -p 'test_versions.py'

# The package is built once, as it is published, and all Python tests use that build.
venv=.cache/venv/bin
wheels=.cache/wheels
build_wheel() {
    rm -rf "$wheels"
    "$venv/maturin" build --release --locked --interpreter "$venv/python" --out "$wheels" &&
        "$venv/python" -m pip install --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
}
stubs_agree() {
    rm -rf .cache/stubs
    "$venv/maturin" generate-stubs --profile release --out .cache/stubs && "$venv/python" scripts/stubs.py .cache/stubs --check
}
built=${#failed[@]}
part "Python: the wheel" build_wheel
if [ "${#failed[@]}" -eq "$built" ]; then
    export TIDEGATE_WHEEL
    TIDEGATE_WHEEL="$(echo "$PWD/$wheels"/*.whl)"
    part "Python: the committed stubs are what the module says" stubs_agree
    part "Python: types of the package and of a user" "$venv/mypy" bindings-python/python/tidegate tests/python/typing/sample.py
    part "Python: stubs and module agree" "$venv/python" -m mypy.stubtest --mypy-config-file pyproject.toml tidegate._tidegate
    part "Python: the report of the benchmarks" "$venv/python" -m unittest discover -s tests -p 'test_bench_report.py'
    part "Python: the package" "$venv/python" -m pytest --quiet tests/python
fi

part "Node: the server harness" node --test tests/servers/servers.test.mjs
# The same here: built as it is published, then tested. The generated files are committed, and must be those of this build.
generated=(bindings-node/binding/index.d.ts bindings-node/binding/index.js)
generated_agree() {
    local file
    for file in "${generated[@]}"; do
        diff "$file" ".cache/generated/$(basename "$file")" || return 1
    done
}
rm -rf .cache/generated && mkdir -p .cache/generated
cp "${generated[@]}" .cache/generated
built=${#failed[@]}
part "Node: the addon" npm run --silent build:native
part "Node: the package, and its types" npm run --silent build:lib
if [ "${#failed[@]}" -eq "$built" ]; then
    part "Node: the committed bindings are what the addon says" generated_agree
    part "Node: the package's tests" node --test --test-reporter=spec tests/node/*.test.mjs
    part "Node: the web adapters" node --test --test-reporter=spec tests/node/web/*.test.mjs
    part "Python and Node on one Redis" node --test --test-reporter=spec tests/cross/*.test.mjs
    part "Histories of Rust, Python and Node" \
        env TIDEGATE_CLIENTS=python,node cargo test --locked --workspace --test histories loses_nothing
fi

echo
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All tests passed."
