#!/usr/bin/env bash
# Builds what a release puts on npm, into .cache/npm: a package for each platform with nothing but a binary, and the package
# itself without one, which asks for them as optional dependencies. It publishes nothing.
#
#     scripts/npm_release.sh [TARGET…]      the targets of package.json that are built for on this system, or those named
#     scripts/npm_release.sh --pack [ROOM]  no builds: the packages, from the binaries in ROOM/artifacts, .cache/npm if not said
#
# A release runs it on three hosts: on Linux for glibc and musl (x64, arm64), on macOS for x64 and arm64, on Windows (in the
# bash that comes with git) for x64 and arm64. Then it brings their folders .cache/npm/artifacts together on the Linux host
# and runs it there with --pack. Linux is built for with zig, against a glibc that is old enough for every system that Node
# 20 runs on; what zig needs is fetched into .cache/zig unless it is there. Apple's and Microsoft's own linkers do both of
# their machines.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/node.sh

out=.cache/npm
pack_only=
if [ "${1:-}" = --pack ]; then
    pack_only=1
    out="${2:-$out}"
    set --
fi
case "$(uname -s)" in
    Linux) at_home=-linux- ;;
    Darwin) at_home=-apple- ;;
    *) at_home=-windows- ;;
esac
targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then
    # Not mapfile: the bash of macOS has none.
    while read -r target; do targets+=("$target"); done < <(
        node -p 'require("./package.json").napi.targets.join("\n")' | grep -e "$at_home"
    )
fi

# The oldest glibc that Node 20 itself runs with.
GLIBC=2.28
ZIG=(ziglang==0.17.0 cargo-zigbuild==0.24.0)

zig() {
    command -v cargo-zigbuild >/dev/null && command -v zig >/dev/null && return
    if [ ! -x .cache/zig/bin/cargo-zigbuild ]; then
        echo "release: ${ZIG[*]}, into .cache/zig"
        python3 -m venv .cache/zig
        .cache/zig/bin/pip install --quiet --disable-pip-version-check "${ZIG[@]}"
        # Under the name that is looked for.
        printf '#!/bin/sh\nexec "%s" -m ziglang "$@"\n' "$PWD/.cache/zig/bin/python" >.cache/zig/bin/zig
        chmod +x .cache/zig/bin/zig
    fi
    export PATH="$PWD/.cache/zig/bin:$PATH"
}

build() {
    local target="$1" cross=()
    rustup target add "$target"
    case "$target" in
        *-linux-*)
            zig
            cross=(--cross-compile)
            ;;
    esac
    case "$target" in
        *-linux-gnu) target="$target.$GLIBC" ;;
    esac
    npx napi build --platform --release --target "$target" ${cross[@]+"${cross[@]}"} --manifest-path bindings-node/Cargo.toml \
        --output-dir "$out/artifacts" --no-const-enum --no-js -- --locked
}

if [ -z "$pack_only" ]; then
    mkdir -p "$out/artifacts"
    for target in "${targets[@]}"; do
        echo "release: $target"
        build "$target"
    done
fi

# The package is put together aside, so that the checkout stays as it is.
rm -rf "$out/package" "$out/tarballs"
mkdir -p "$out/package" "$out/tarballs"
# Tests pack while others read what is built: it is built again only when it is old.
if [ -n "$(find bindings-node/lib package.json -newer bindings-node/dist/index.mjs 2>&1)" ]; then
    npm run --silent build:lib
fi
git ls-files -z package.json README.md LICENSE CHANGELOG.md bindings-node/binding | xargs -0 cp --parents -t "$out/package"
cp -r --parents bindings-node/dist "$out/package"
(
    cd "$out/package"
    # Its scripts are for a checkout; whoever installs it builds nothing.
    npm pkg delete scripts devDependencies
    napi="$OLDPWD/node_modules/.bin/napi"
    "$napi" create-npm-dirs
    # Only what was built is promised; a platform without a binary says so when it is loaded.
    for folder in npm/*/; do
        name="$(basename "$folder")"
        binary="$OLDPWD/$out/artifacts/tidegate.$name.node"
        if [ -f "$binary" ]; then
            cp "$binary" "$folder"
        else
            echo "release: without $name, of which there is no binary" >&2
            rm -r "$folder"
        fi
    done
    node -e '
        const { readdirSync, writeFileSync } = require("node:fs");
        const manifest = require("./package.json");
        const names = readdirSync("npm").map((name) => [`${manifest.name}-${name}`, manifest.version]);
        manifest.optionalDependencies = Object.fromEntries(names);
        writeFileSync("package.json", `${JSON.stringify(manifest, null, 2)}\n`);
    '
    for folder in npm/*/ ./; do npm pack --silent "$folder" --pack-destination ../tarballs; done
)
echo "release: $(find "$out/tarballs" -name '*.tgz' | wc -l) packages are in $out/tarballs"
