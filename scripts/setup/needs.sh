# shellcheck shell=bash disable=SC2034,SC2154
# What the demo and the tests need, and whether it is there. Sourced in the root of the repository.

# Each version stands in one place, where the tool that uses it reads it.
pinned_rust="$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)"
oldest_python="$(sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)"
oldest_node="$(sed -n 's/^ *"node": ">=\([0-9.]*\)".*/\1/p' package.json)"
oldest_redis=6.2
# The tests can run against another server, such as valkey-server, which must be installed then.
redis="${TIDEGATE_REDIS_SERVER:-redis-server}"

# In the order in which they are installed.
NEEDS_OF_THE_DEMO="certificates cc rust"
NEEDS_OF_THE_TESTS="certificates cc rust python openssl redis postgres venv node modules"

has() { command -v "$1" >/dev/null 2>&1; }

# at_least OLDEST VERSION
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

has_certificates() {
    [ "$(uname -s)" = Linux ] || return 0
    local file
    # A user who names a file trusts that one only.
    if [ -n "${SSL_CERT_FILE:-}" ]; then
        [ -r "$SSL_CERT_FILE" ]
        return
    fi
    for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem /etc/ssl/ca-bundle.pem; do
        [ ! -r "$file" ] || return 0
    done
    return 1
}

# compiles LINE [FLAG…]: whether a program that begins with that line compiles and links. A compiler without the headers of the
# C library is common.
compiles() {
    local line="$1" folder status=0
    shift
    folder="$(mktemp -d)"
    printf '%s\nint main(void) { return 0; }\n' "$line" >"$folder/a.c"
    cc "$folder/a.c" -o "$folder/a" "$@" >/dev/null 2>&1 || status=1
    rm -rf "$folder"
    return "$status"
}

has_cc() {
    case "$(uname -s)" in
        # Its cc opens a window when the tools are missing.
        Darwin) xcode-select -p >/dev/null 2>&1 ;;
        Linux) has cc && compiles '#include <stdlib.h>' ;;
        # On Windows, Rust finds the linker by itself.
        *) true ;;
    esac
}

rust_version() { cargo --version 2>/dev/null | cut -d ' ' -f 2; }

has_rust() {
    # A cargo that belongs to rustup would download the pinned version here, before that is announced.
    if has rustup && ! RUSTUP_AUTO_INSTALL=0 rustup run "$pinned_rust" cargo --version >/dev/null 2>&1; then return 1; fi
    has cargo && at_least "$pinned_rust" "$(rust_version)"
}

# fits PYTHON: whether it is new enough for the package. Harness and scripts need less.
fits() { "$1" -c "import sys; sys.exit(sys.version_info < (${oldest_python/./, }))" 2>/dev/null; }

# Prints the Python that environments are made with.
find_python() {
    local candidate
    for candidate in python3 python3.{14..10} "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.1[0-9].*/bin/python3; do
        if has "$candidate" && fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

has_python() {
    local python
    has python3 && python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || return 1
    ! fits .cache/venv/bin/python || return 0
    # Debian has the module that makes environments in a package of its own.
    python="$(find_python)" && "$python" -c 'import ensurepip, venv' 2>/dev/null
}

has_redis() {
    has "$redis" || return 1
    [ "$redis" != redis-server ] || at_least "$oldest_redis" "$(redis-server --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p')"
}

# Debian keeps the server out of PATH, in a folder of its version, and the pooler in a folder of root.
has_postgres() {
    { has initdb || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null; } && { has pgbouncer || [ -x /usr/sbin/pgbouncer ]; }
}

has_node() { has node && has npm && at_least "$oldest_node" "$(node --version | tr -d v)"; }

is_there() {
    case "$1" in
        openssl) has openssl ;;
        venv) scripts/python.sh --check ;;
        modules) scripts/node.sh --check ;;
        *) "has_$1" ;;
    esac
}

# found COMMAND…: what that command says of its version, for a tool that is there and too old.
found() { if has "$1"; then "$@" 2>/dev/null | sed 's/^/; here is /'; fi; }

describe() {
    case "$1" in
        certificates) echo "the certificates of authorities, which tell whether a server is the right one (ca-certificates)" ;;
        curl) echo "curl or wget, to download with" ;;
        cc) echo "a C compiler with the headers of the C library (cc)" ;;
        # A cargo of rustup would download.
        rust) echo "Rust $pinned_rust (cargo)$(has rustup || found cargo --version)" ;;
        python) echo "Python $oldest_python or newer with its module venv$(found python3 --version)" ;;
        openssl) echo "openssl, which makes the certificates of the tests" ;;
        headers) echo "the headers of OpenSSL, to build Redis with" ;;
        redis)
            if [ "$redis" = redis-server ]; then
                echo "Redis $oldest_redis or newer (redis-server)$(found redis-server --version | cut -d ' ' -f 1-6)"
            else
                echo "$redis, which TIDEGATE_REDIS_SERVER names"
            fi
            ;;
        postgres) echo "PostgreSQL 14 or newer (initdb and postgres), and PgBouncer" ;;
        node) echo "Node $oldest_node or newer with npm$(found node --version)" ;;
        venv) echo "the packages of tests/python/requirements.txt, in .cache/venv" ;;
        modules) echo "the packages of package-lock.json, in node_modules" ;;
    esac
}
