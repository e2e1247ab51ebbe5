#!/usr/bin/env bash
# Everything that can be judged without running the tests: formats, lints, types, documentation, licenses. `make setup`
# installs the tools first; one that is missing fails its part. Only the list of known advisories may be out of reach,
# since it comes from the network: then its part is skipped, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."

# The tools of the package's own environment first, so that all agree about their versions.
export PATH="$PWD/.cache/venv/bin:$PATH"

# shellcheck source=scripts/parts.sh
. scripts/parts.sh

advisories() {
    if ! cargo deny --locked fetch db; then
        echo "SKIPPED: the list of advisories cannot be fetched, so nothing was compared with it."
        return
    fi
    cargo deny --locked check --disable-fetch advisories
}

python=(tests bindings-python examples benches docs scripts)
# The programs mypy starts from; what they import is checked with them.
python_programs=(
    tests/test_versions.py tests/servers/servers.py tests/servers/client.py tests/servers/test_servers.py
    tests/servers/strict_server.py tests/servers/test_strict.py tests/servers/model_server.py
    benches/bench.py tests/test_bench_report.py tests/test_workflows.py tests/test_packages.py docs/site/check.py
    tests/setup/test_refused.py tests/setup/test_installed.py
)

part "Rust: format" cargo fmt --all --check
part "Rust: lints" cargo clippy --workspace --all-targets --locked -- -D warnings
part "Rust: lints without features" cargo clippy -p tidegate --no-default-features --locked -- -D warnings
part "Rust: lints with the features of a user" cargo clippy -p tidegate --locked -- -D warnings
# With the examples, whose dependencies are those of the tests: without them cargo checks the core and what it depends on once more,
# with other features.
part "Rust: documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --lib --bins --examples
part "Rust: licenses, bans, sources" cargo deny --locked check bans licenses sources
part "Rust: advisories" advisories
part "Python: lints" ruff check "${python[@]}"
part "Python: format" ruff format --check "${python[@]}"
part "Python: types of the harness and of the benchmarks" mypy "${python_programs[@]}"
part "Python: types of the package" mypy bindings-python/python/tidegate
part "Python: types of the scripts for packages" mypy scripts/packages/*.py
part "Node: lints and format" npm run --silent lint
part "Node: types" node_modules/.bin/tsc -p bindings-node --noEmit
part "Prose" python3 scripts/prose.py
part "Workflows" scripts/workflows/lint.sh

finish "All checks passed."
