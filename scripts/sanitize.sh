#!/usr/bin/env bash
# Runs the parts of the core without sockets under Miri, and what several threads share under ThreadSanitizer. Both need a
# nightly toolchain with the parts miri and rust-src. TIDEGATE_NIGHTLY names it.
set -euo pipefail
cd "$(dirname "$0")/.."
nightly=${TIDEGATE_NIGHTLY:-nightly}
host=$(rustc -vV | sed -n 's/^host: //p')

echo "Installing the Rust toolchain $nightly with miri and rust-src, unless it is there …"
rustup toolchain install "$nightly" --profile minimal --component miri --component rust-src >/dev/null

echo "== Miri: rules, handles of plans, RESP"
# The clock is real, so Miri may read it. What makes digests is left out, because BLAKE3 has assembly, and so is what computes
# for long: Miri is some hundred times slower.
MIRIFLAGS=-Zmiri-disable-isolation \
    cargo "+$nightly" miri test --locked -p tidegate --lib -- \
    algorithm:: plan_cache histogram store::redis::protocol::resp --skip a_bounded_state

echo "== ThreadSanitizer: limiters that threads and tasks share"
# Only code built with the sanitizer is understood, so the standard library is built, too.
RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/tsan \
    cargo "+$nightly" test --locked -Zbuild-std --target "$host" -p tidegate-tests \
    --test suite -- exact_counts:: completion_queue:: reply_poller:: waiting:: out_of_step:: stats::
