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
# What a program that limits in memory compiles.
crates="$(cargo tree --locked -p tidegate --no-default-features --edges normal --prefix none | sort -u | wc -l)"
echo "features: $crates crates without any"
if [ "$crates" -gt 40 ]; then
    echo "features: that is more than 40: make what is new optional, in [features] of core/Cargo.toml" >&2
    exit 1
fi
