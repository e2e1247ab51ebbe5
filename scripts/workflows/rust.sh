#!/usr/bin/env bash
# The tests of Rust alone, against the server that TIDEGATE_REDIS_SERVER names.
set -euo pipefail
cd "$(dirname "$0")/../.."
rust=(--locked --workspace --exclude tidegate-benches)
.cache/venv/bin/cargo-nextest nextest run --ignore-default-filter "${rust[@]}"
cargo test --quiet --doc "${rust[@]}"
