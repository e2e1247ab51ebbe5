#!/usr/bin/env bash
# Runs the tests that need a server with the newest release of a series of Redis or Valkey, which it builds into .cache/servers.
#
#     scripts/workflows/server.sh redis-6.2      (redis-7, redis-8, valkey: the newest of that series, or of all)
#     scripts/workflows/server.sh /path/server   a server that is there
set -euo pipefail
cd "$(dirname "$0")/../.."

wanted="${1:-}"
case "$wanted" in
    redis-[0-9]*) repository=https://github.com/redis/redis.git program=redis-server ;;
    valkey | valkey-[0-9]*) repository=https://github.com/valkey-io/valkey.git program=valkey-server ;;
    /*) repository='' ;;
    *)
        echo "server: «$wanted» is no server; name redis-6.2, redis-7, redis-8, valkey, or the path of one" >&2
        exit 1
        ;;
esac

# The tag of the newest release of the series; that of a candidate has more than three numbers.
newest() {
    local series="${wanted#*-}"
    [ "$series" != "$wanted" ] || series=
    git ls-remote --tags --refs "$repository" | sed 's|.*refs/tags/||' | grep -E '^[0-9]+\.[0-9]+\.[0-9]+$' |
        grep -E "^${series:+${series//./\\.}\\.}" | sort -t . -k 1,1n -k 2,2n -k 3,3n | tail -n 1
}

if [ -n "$repository" ]; then
    # No match is said below.
    tag="$(newest || true)"
    if [ -z "$tag" ]; then
        echo "server: $repository has no release of $wanted" >&2
        exit 1
    fi
    folder="$PWD/.cache/servers/${wanted%%-*}-$tag"
    if [ ! -x "$folder/src/$program" ]; then
        echo "server: building ${wanted%%-*} $tag with TLS …"
        rm -rf "$folder"
        git clone --quiet --depth 1 --branch "$tag" -c advice.detachedHead=false "$repository" "$folder"
        tls=()
        # Where Homebrew keeps OpenSSL, which macOS does not have.
        if command -v brew >/dev/null; then tls=(OPENSSL_PREFIX="$(brew --prefix openssl@3)"); fi
        make -C "$folder" -j "$(getconf _NPROCESSORS_ONLN)" BUILD_TLS=yes MALLOC=libc ${tls[@]+"${tls[@]}"} >"$folder/.log" 2>&1 || {
            tail -n 40 "$folder/.log" >&2
            echo "server: ${wanted%%-*} $tag could not be built; the whole output is $folder/.log" >&2
            exit 1
        }
    fi
    wanted="$folder/src/$program"
fi
export TIDEGATE_REDIS_SERVER="$wanted"
"$wanted" --version

scripts/setup.sh
scripts/workflows/rust.sh
scripts/workflows/python.sh
scripts/workflows/node.sh
