#!/usr/bin/env bash
# Builds the npm packages of a release into .cache/npm: one for each platform, which contains only a binary, and the main package
# without a binary, which has the others as optional dependencies. It publishes nothing.
#
#     scripts/npm_release.sh [TARGET…]        builds the named targets; by default those of package.json that this system can build
#     scripts/npm_release.sh --pack [FOLDER]  builds nothing: packs the binaries in FOLDER/artifacts, by default .cache/npm
#
# A release runs it on three hosts: on Linux for glibc and musl (x64, arm64), on macOS for x64 and arm64, on Windows (in the
# bash that comes with git) for x64 and arm64. Then it collects their folders .cache/npm/artifacts on the Linux host and runs
# the script there with --pack. The Linux targets are built with zig, against a glibc that is old enough for every system that
# Node 20 runs on; zig is installed into .cache/zig when it is missing. Apple's and Microsoft's own linkers build for both of
# their architectures.
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
    Linux) system=-linux- ;;
    Darwin) system=-apple- ;;
    *) system=-windows- ;;
esac
targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then
    # Not mapfile, which the bash of macOS does not have.
    while read -r target; do targets+=("$target"); done < <(
        node -p 'require("./package.json").napi.targets.join("\n")' | grep -e "$system"
    )
fi

# The oldest glibc that Node 20 itself runs with.
GLIBC=2.28

source scripts/packages/zig.sh

build() {
    local target="$1" cross=()
    rustup target add "$target"
    case "$target" in
        *-linux-*)
            need_zig
            cross=(--cross-compile)
            ;;
    esac
    case "$target" in
        *-linux-gnu) target="$target.$GLIBC" ;;
    esac
    npx napi build --platform --release --strip --target "$target" ${cross[@]+"${cross[@]}"} --manifest-path bindings-node/Cargo.toml \
        --output-dir "$out/artifacts" --no-js -- --locked
}

if [ -z "$pack_only" ]; then
    mkdir -p "$out/artifacts"
    for target in "${targets[@]}"; do
        echo "release: $target"
        build "$target"
    done
    if [ "$system" != -linux- ]; then
        echo "release: the binaries are in $out/artifacts; a Linux host packs them"
        exit
    fi
fi

# The package is put together in a folder of its own, so that the checkout does not change.
rm -rf "$out/package" "$out/tarballs"
mkdir -p "$out/package" "$out/tarballs"
# The tests pack while others read the build: it is built again only when a source is newer.
if [ -n "$(find bindings-node/lib package.json -newer bindings-node/dist/index.mjs 2>&1)" ]; then
    npm run --silent build:lib
fi
git ls-files -z package.json LICENSE CHANGELOG.md bindings-node/binding | xargs -0 cp --parents -t "$out/package"
# npm shows the README.md of a package's root; that of the repository is about three languages.
cp bindings-node/README.md "$out/package/README.md"
cp -r --parents bindings-node/dist "$out/package"
(
    cd "$out/package"
    # Its scripts are for a checkout; an installation builds nothing.
    npm pkg delete scripts devDependencies
    napi="$OLDPWD/node_modules/.bin/napi"
    "$napi" create-npm-dirs
    # The package depends only on binaries that were built; on other platforms loading it is an error.
    for folder in npm/*/; do
        name="$(basename "$folder")"
        binary="$OLDPWD/$out/artifacts/tidegate.$name.node"
        if [ -f "$binary" ]; then
            cp "$binary" "$folder"
        else
            echo "release: $name is left out, because its binary is missing" >&2
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
    npm pack --silent ./npm/*/ ./ --pack-destination ../tarballs
)
echo "release: $(find "$out/tarballs" -name '*.tgz' | wc -l) packages are in $out/tarballs"
