#!/usr/bin/env bash
# Changes the code of some files in every way that cargo-mutants knows, one change after the other, and finds those changes
# that no test notices. What is left alone, and why, is said in .cargo/mutants.toml.
#
#     FILES='core/src/resilience/**/*.rs' SHARD=2/8 scripts/workflows/mutants.sh
#
# FILES is a pattern, the algorithms unless it is set; SHARD is one part of many, everything unless it is set.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/workflows/cargo_tool.sh
. scripts/workflows/cargo_tool.sh
use_cargo_tool cargo-mutants 27.1.0
export PATH="$PWD/.cache/venv/bin:$PATH"

# Each change compiles the core and its tests again, and the tests below run until the first that fails: fewer histories find
# the same changes in less time.
export NEXTEST_PROFILE=mutants TIDEGATE_FULL=1 TIDEGATE_HISTORIES=1000 TIDEGATE_SCHEDULES=700
exec cargo mutants --test-tool nextest --profile mutants --package tidegate --test-package tidegate,tidegate-tests \
    --file "${FILES:-core/src/algorithm/*.rs}" ${SHARD:+--shard "$SHARD"} --timeout 300 --output .cache --colors never
