#!/usr/bin/env bash
# Builds what a release publishes into dist/, examines it, and tries what this machine can run. It publishes nothing.
#
#     scripts/dist.sh            everything that this system builds: on Linux the crates, the sdist, and wheels and addons for
#                                glibc and musl on x86_64 and aarch64; on macOS and Windows wheels and addons of their own
#     scripts/dist.sh --pack     builds nothing: makes the npm packages of all addons in dist/addons, and examines dist/
#     scripts/dist.sh --examine  builds nothing: examines dist/ and tries it
#
# TARGETS="x86_64-unknown-linux-gnu …" are the only targets to build for. FREE_THREADED=yes builds the wheels for Python without a
# global lock too. A release runs this on a host of each system, collects their dist/ on the Linux host, and runs it there with
# --pack.
#
#     dist/crates   what `cargo package` has built again from its own archive
#     dist/python   the sdist, and wheels for every Python from 3.10 on (abi3), for 3.14t, and for every free-threaded Python from
#                   3.15 on (abi3t), each with a list of the crates inside (CycloneDX)
#     dist/addons   the binaries for Node
#     dist/npm      the main package, and a package for each binary
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages/zig.sh

# The most KiB that an artefact may have. One without a line here is an error, and so is a line without an artefact for what was
# built: growth is decided, not noticed later. Wheels and addons contain the command too. A second number is the most KiB of
# the library inside, unpacked and stripped. PostgreSQL takes 1,000 KiB of a library, and stores of an application with its doctor 900. A quarter of the sdist is tests, which Cargo's
# workspace names.
BOUNDS='
crates/tidegate-[0-9]*.crate                             704
crates/tidegate-cli-*.crate                              512
crates/tidegate-simulate-*.crate                          96
python/tidegate-*.tar.gz                                1536
python/tidegate-*manylinux2014_x86_64*.whl              5504 11136
python/tidegate-*manylinux2014_aarch64*.whl             5504
python/tidegate-*musllinux_1_2_x86_64.whl               5504
python/tidegate-*musllinux_1_2_aarch64.whl              5504
python/tidegate-*macosx*.whl                            5504
python/tidegate-*win*.whl                               5504
npm/tidegate-[0-9]*.tgz                                  256
npm/tidegate-linux-x64-gnu-*.tgz                        5504
npm/tidegate-linux-arm64-gnu-*.tgz                      5504
npm/tidegate-linux-x64-musl-*.tgz                       5504
npm/tidegate-linux-arm64-musl-*.tgz                     5504
npm/tidegate-darwin-*.tgz                               5504
npm/tidegate-win32-*.tgz                                5504
'

case "$(uname -s)" in
    Linux) system=-linux- ;;
    Darwin) system=-apple- ;;
    *) system=-windows- ;;
esac

# The same targets for Python and for Node: those of package.json that this system builds.
targets() {
    if [ -n "${TARGETS:-}" ]; then
        tr ' ' '\n' <<<"$TARGETS"
    else
        node -p 'require("./package.json").napi.targets.join("\n")' | grep -e "$system"
    fi
}

crates() {
    # Those that are not `publish = false`.
    cargo metadata --locked --no-deps --format-version 1 | "$python" -c '
import json, sys
print(*(crate["name"] for crate in json.load(sys.stdin)["packages"] if crate["publish"] != []), sep="\n")'
}

build_crates() {
    local named=() name version
    while read -r name; do named+=(--package "$name"); done < <(crates)
    # What was not committed is packed too, for a trial of what one works on. `cargo publish` refuses it.
    cargo package --locked --allow-dirty "${named[@]}"
    mkdir -p dist/crates
    version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
    while read -r name; do
        cp "${CARGO_TARGET_DIR:-target}/package/$name-$version.crate" dist/crates
    done < <(crates)
}

build_wheel() {
    local target="$1" how=()
    rustup target add "$target"
    case "$target" in
        # The oldest glibc and musl that manylinux2014 and musllinux_1_2 promise.
        *-linux-gnu) how=(--zig --compatibility manylinux2014) ;;
        *-linux-musl) how=(--zig --compatibility musllinux_1_2) ;;
    esac
    how=(--release --locked --strip --target "$target" ${how[@]+"${how[@]}"} --out dist/python)
    "$maturin" build "${how[@]}"
    # maturin knows these interpreters, so none has to be here. 3.15t stands for all that have the stable ABI `abi3t`.
    [ "${FREE_THREADED:-}" != yes ] || "$maturin" build "${how[@]}" --interpreter 3.14t 3.15t
}

build() {
    rm -rf dist
    mkdir -p dist
    if [ "$system" = -linux- ]; then
        need_zig
        printf '\n== the crates\n'
        build_crates
        printf '\n== the sdist\n'
        "$maturin" sdist --out dist/python
    fi
    local target named=()
    while read -r target; do
        printf '\n== the wheel for %s\n' "$target"
        build_wheel "$target"
        named+=("$target")
    done < <(targets)
    printf '\n== the addons\n'
    rm -rf .cache/npm/artifacts
    scripts/npm_release.sh "${named[@]}"
    mkdir -p dist/addons
    cp .cache/npm/artifacts/*.node dist/addons
    if [ -d .cache/npm/tarballs ]; then
        rm -rf dist/npm
        cp -r .cache/npm/tarballs dist/npm
    fi
}

pack() {
    rm -rf .cache/npm dist/npm
    mkdir -p .cache/npm/artifacts
    cp dist/addons/*.node .cache/npm/artifacts
    scripts/npm_release.sh --pack
    cp -r .cache/npm/tarballs dist/npm
}

# An environment with maturin alone: not every system has all that the tests need.
environment() {
    local wanted candidate
    wanted="$(grep '^maturin==' tests/python/requirements.txt)"
    programs=.cache/dist/bin
    [ "$system" != -windows- ] || programs=.cache/dist/Scripts
    if [ "$(cat .cache/dist/installed 2>/dev/null)" != "$wanted" ]; then
        rm -rf .cache/dist
        for candidate in python3 python; do
            if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
                echo "dist: $wanted, into .cache/dist"
                "$candidate" -m venv .cache/dist
                "$programs/python" -m pip install --quiet --disable-pip-version-check "$wanted"
                printf '%s\n' "$wanted" >.cache/dist/installed
                return
            fi
        done
        echo "dist: Python 3.10 or newer was not found. Install it." >&2
        exit 1
    fi
}

scripts/setup.sh demo
environment
scripts/node.sh
python="$programs/python"
maturin="$programs/maturin"
# Timestamps in archives are those of the commit, so that the same commit gives the same files.
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"

case "${1:-}" in
    --pack) pack ;;
    --examine) ;;
    '') build ;;
    *)
        echo "dist: $1 is no option of this script; its options are --pack and --examine" >&2
        exit 1
        ;;
esac

printf '\n== sizes, and what is inside\n'
"$python" scripts/packages/examine.py dist <<<"$BOUNDS"
printf '\n== what this machine runs\n'
"$python" scripts/packages/installed.py dist
if [ "$system" = -linux- ]; then
    printf '\n== pages, from their first line on\n'
    "$python" scripts/packages/followed.py dist
    printf '\n== what other machines run\n'
    "$python" scripts/packages/emulated.py dist
fi
