#!/usr/bin/env bash
# Type-checks the crate, with all that it does by default, for systems that this machine cannot build packages for, and tries that
# a Python without a global interpreter lock is refused. Zig compiles the C of dependencies.
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

echo "check-targets: free-threaded Python 3.14"
mkdir -p .cache
# What such an interpreter would tell PyO3, so that none is needed.
printf '%s\n' implementation=CPython version=3.14 shared=true pointer_width=64 build_flags=Py_GIL_DISABLED >.cache/free-threaded
if told="$(PYO3_CONFIG_FILE="$PWD/.cache/free-threaded" cargo check --locked -p tidegate-python 2>&1)"; then
    echo "check-targets: it is not refused; packages for it would be published untested" >&2
    exit 1
elif ! grep -o 'Tidegate does not support the free-threaded build.*' <<<"$told"; then
    echo "check-targets: it is refused for another reason:" >&2
    printf '%s\n' "$told" >&2
    exit 1
fi
