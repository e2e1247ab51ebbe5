#!/usr/bin/env bash
# Random faults for TIDEGATE_SOAK seconds, ten minutes unless it is set. First an exact model of single checks, then the
# histories of clients in Rust, Python and Node, which need both packages.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds="${TIDEGATE_SOAK:-600}"
VIRTUAL_ENV=.cache/venv .cache/venv/bin/maturin develop --release --locked
npm run --silent build

TIDEGATE_SOAK=$((seconds / 5)) cargo test --release --locked -p tidegate-tests --test suite -- soak:: --nocapture --test-threads 1
TIDEGATE_CLIENTS=python,node TIDEGATE_SOAK=$((seconds - seconds / 5)) \
    cargo test --release --locked -p tidegate-tests --test suite -- --nocapture order_of_the_calls file_loses_nothing
