#!/usr/bin/env bash
# Compiles what is published with the oldest versions that Cargo.toml permits of what it depends on itself. The lock file is made
# in a copy, by a nightly cargo; the compiler is that of rust-toolchain.toml. TIDEGATE_NIGHTLY names the nightly.
set -euo pipefail
cd "$(dirname "$0")/../.."

nightly=${TIDEGATE_NIGHTLY:-nightly}
rustup toolchain list | grep -q "^$nightly" || rustup toolchain install "$nightly" --profile minimal
copy=.cache/minimal-versions
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | tar --null --files-from - --create --file - | tar -x -C "$copy"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/minimal-versions"
cd "$copy"
rm Cargo.lock
# Tests and benchmarks always run with the lock file.
sed -i.before -e '/^members/s|, "tests/rust"||' -e '/^members/s|, "benches"||' Cargo.toml
sed -i.before -e '/^\[dev-dependencies\]/,/^$/d' cli/Cargo.toml
cargo "+$nightly" -Z direct-minimal-versions generate-lockfile
cargo check --locked -p tidegate --all-features
cargo check --locked --workspace
