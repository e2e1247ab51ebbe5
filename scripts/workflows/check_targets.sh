#!/usr/bin/env bash
# Type-checks the crate, with all that it does by default, for systems that this machine cannot build packages for, and the Python
# module for interpreters that it does not have. Zig compiles the C of dependencies.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/packages/zig.sh
need_zig

for target in x86_64-pc-windows-gnu aarch64-apple-darwin aarch64-unknown-linux-musl \
    i686-unknown-linux-gnu armv7-unknown-linux-gnueabihf; do
    echo "check-targets: $target"
    rustup target add "$target"
    cargo-zigbuild check --locked -p tidegate --target "$target"
done

echo "check-targets: wasm32-unknown-unknown, limits in memory"
rustup target add wasm32-unknown-unknown
cargo check --locked -p tidegate --no-default-features --target wasm32-unknown-unknown

echo "check-targets: wasm32-wasip1, the command without stores"
rustup target add wasm32-wasip1
cargo check --locked -p tidegate-cli --no-default-features --target wasm32-wasip1

# What such interpreters would tell PyO3, so that none is needed: of 3.14 the ABI of its own, of 3.15 the stable one (abi3t).
mkdir -p .cache
for version in 3.14 3.15; do
    echo "check-targets: free-threaded Python $version"
    printf '%s\n' implementation=CPython version=$version shared=true pointer_width=64 build_flags=Py_GIL_DISABLED >.cache/free-threaded
    PYO3_CONFIG_FILE="$PWD/.cache/free-threaded" cargo check --locked -p tidegate-python
done
