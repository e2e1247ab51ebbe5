#!/usr/bin/env bash
# Mutates the inputs of tests/rust/corpus for TIDEGATE_FUZZ_SECONDS, a minute unless it is set, which the targets share. An
# input that breaks a promise is made small and kept there.
#
#     TIDEGATE_FUZZ_TARGET=notation   one target instead of all
#     TIDEGATE_FUZZ_SEED=7            repeats the mutations of a run that said this seed, as far as its time allows
set -euo pipefail
cd "$(dirname "$0")/.."
# Backtraces would be made of each of the many failures while one is made small.
export RUST_BACKTRACE=0
cargo test --locked -p tidegate-tests --test suite -- --ignored --exact --nocapture fuzz::a_while_of_mutations
