#!/usr/bin/env bash
# Compiles the crates with the oldest compiler that Cargo.toml promises.
set -euo pipefail
cd "$(dirname "$0")/../.."

oldest="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
echo "msrv: Rust $oldest"
rustup toolchain install "$oldest" --profile minimal
# Tests and benchmarks are for the compiler of rust-toolchain.toml.
cargo "+$oldest" check --locked -p tidegate --all-features
cargo "+$oldest" check --locked --workspace --exclude tidegate-tests --exclude tidegate-benches
