#!/usr/bin/env bash
# Builds what a release puts on npm, into .cache/npm: a package for each platform with nothing but a binary, and the package
# itself without one, which asks for them as optional dependencies. It publishes nothing.
#
#     scripts/npm_release.sh [TARGET…]      all targets of package.json, or some of them
#
# Each target needs its Rust standard library (rustup target add). Linux is built for on Linux with zig, against a glibc
# that is old enough for every system that Node 20 runs on; macOS and Windows are built for where they are at home: run it
# there for their targets, and bring the folders .cache/npm/artifacts together before the last run, with --pack.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/node.sh

out=.cache/npm
pack_only=
if [ "${1:-}" = --pack ]; then
    pack_only=1
    shift
fi
targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then
    mapfile -t targets < <(node -p 'require("./package.json").napi.targets.join("\n")')
fi

# The oldest glibc that Node 20 itself runs with.
GLIBC=2.28

build() {
    local target="$1" cross=() host
    host="$(rustc -vV | sed -n 's/^host: //p')"
    case "$target" in
        *-linux-gnu)
            if command -v zig >/dev/null && command -v cargo-zigbuild >/dev/null; then
                cross=(--cross-compile)
                export CARGO_ZIGBUILD_GLIBC="$GLIBC"
            elif [ "$target" = "$host" ]; then
                echo "release: without zig and cargo-zigbuild this binary needs the glibc of this machine" >&2
            fi ;;
        *-linux-musl) cross=(--cross-compile) ;;
    esac
    npx napi build --platform --release --target "$target" "${cross[@]}" --manifest-path bindings-node/Cargo.toml \
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
npm run --silent build:lib
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
        if [ -f "$binary" ]; then cp "$binary" "$folder"; else rm -r "$folder"; fi
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
