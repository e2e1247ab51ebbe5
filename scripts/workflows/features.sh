#!/usr/bin/env bash
# Judges the crate without features, with each feature alone and with all of them; then runs its tests and an example without any.
set -euo pipefail
cd "$(dirname "$0")/../.."

lint() {
    echo "features: ${*:-those of default}"
    cargo clippy --quiet --locked -p tidegate --all-targets "$@" -- -D warnings
}

lint --no-default-features
for feature in $(sed -n '/^\[features\]/,/^\[dev-dep/s/^\([a-z]*\) = .*/\1/p' core/Cargo.toml); do
    lint --no-default-features --features "$feature"
done
lint --all-features
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked -p tidegate --no-deps --no-default-features
cargo test --quiet --locked -p tidegate --no-default-features --lib
cargo test --quiet --locked -p tidegate --no-default-features --features redis --lib missing_feature
cargo run --quiet --locked -p tidegate --no-default-features --example memory
# What a program compiles: the crate, what it needs, and what only its build needs. The documents say how many that are.
crates() {
    local target="$1"
    shift
    cargo tree --locked -p tidegate --edges normal,build --prefix none --target "$target" "$@" | sed 's/ (\*)$//' | sort -u | wc -l
}
linux="$(crates x86_64-unknown-linux-gnu --no-default-features)"
windows="$(crates x86_64-pc-windows-msvc --no-default-features)"
apple="$(crates aarch64-apple-darwin --no-default-features)"
counted="$linux crates on x86_64 Linux, $windows on Windows, $apple on Apple silicon"
echo "features: without any, $counted"
compared="$linux crates instead of $(crates x86_64-unknown-linux-gnu)"
for said in "core/README.md:$counted" "docs/reference/rust.md:$counted" "docs/reference/rust.md:$compared"; do
    if ! grep -qF "${said#*:}" "${said%%:*}"; then
        echo "features: ${said%%:*} does not say \"${said#*:}\": correct it, or make what is new optional, in [features] of core/Cargo.toml" >&2
        exit 1
    fi
done
