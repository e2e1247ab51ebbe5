#!/usr/bin/env bash
# Checks that everything the tests need is installed. Installs what is missing where it may, and says what to do elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."

OLDEST_REDIS=6.2
# The tests can run against another server, such as valkey-server, which must be installed then.
redis="${TIDEGATE_REDIS_SERVER:-redis-server}"

has() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root without ever asking for a password, which CI cannot type.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    has apt-get && { [ "$(id -u)" -eq 0 ] || { has sudo && sudo -n true 2>/dev/null; }; }
}

install() {
    # RUNLEVEL=1 keeps the packages from starting servers of their own: the tests start theirs, on free ports.
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

refuse() {
    echo "setup: $*" >&2
    exit 1
}

scripts/toolchain.sh

has python3 || refuse "python3 was not found. Install Python 3.8 or newer."
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    refuse "$(python3 --version) is too old. Install Python 3.8 or newer."

missing=()
if [ "$redis" = redis-server ]; then
    has redis-server || missing+=(redis-server)
    has redis-sentinel || missing+=(redis-sentinel)
fi
has openssl || missing+=(openssl)
# Debian has the module that makes environments in a package of its own.
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)

if [ "${#missing[@]}" -gt 0 ]; then
    if may_install; then
        echo "setup: installing ${missing[*]} …"
        # Package lists may be absent or outdated; they are fetched only when the first attempt fails.
        if ! install "${missing[@]}" >/dev/null 2>&1; then
            as_root apt-get update -qq </dev/null
            install "${missing[@]}" >/dev/null
        fi
    else
        echo "setup: missing ${missing[*]}, and this user may not install packages. As root, run:" >&2
        echo "    apt-get install ${missing[*]}" >&2
        echo "  or, without apt, install Redis $OLDEST_REDIS or newer (brew install redis, dnf install redis) and openssl." >&2
    fi
fi

has "$redis" || refuse "$redis was not found; the tests cannot run without it."
has openssl || refuse "openssl was not found; the TLS tests cannot run without it."
if [ "$redis" = redis-server ]; then
    # redis-sentinel is the same program under another name, so its absence alone stops nothing.
    version="$(redis-server --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p')"
    oldest="$(printf '%s\n' "$OLDEST_REDIS" "$version" | sort -V | head -n 1)"
    [ "$oldest" = "$OLDEST_REDIS" ] || refuse "redis-server $version is too old; $OLDEST_REDIS or newer is needed."
fi

scripts/python.sh
scripts/node.sh

echo "setup: ready ($(cargo --version | cut -d' ' -f1,2), $(python3 --version), Node $(node --version), $("$redis" --version | cut -d' ' -f1-3))"
