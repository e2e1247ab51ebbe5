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
# What a program compiles: the crate, what it needs, and what only its build needs.
crates() {
    cargo tree --locked -p tidegate --edges normal,build --prefix none --target x86_64-unknown-linux-gnu "$@" |
        sed 's/ (\*)$//' | sort -u | wc -l
}
memory="$(crates --no-default-features)" default="$(crates)"
echo "features: $memory crates without any, $default with those of default"
if [ $((2 * memory)) -ge "$default" ]; then
    echo "features: docs/reference/rust.md says less than half: make what is new optional, in [features] of core/Cargo.toml" >&2
    exit 1
fi
