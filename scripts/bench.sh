#!/usr/bin/env bash
# Measures Tidegate beside its peers, and writes docs/benchmarks. Peers come in the versions that benches/python/requirements.txt,
# package-lock.json and Cargo.lock pin.
#
#     ONLY=python,node scripts/bench.sh    only these parts
#     QUICK=1 scripts/bench.sh             short rounds, which only show that everything works
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v taskset >/dev/null; then
    echo "bench: taskset was not found; it pins clients and servers to their cores. Install util-linux." >&2
    exit 1
fi
if ! command -v redis-benchmark >/dev/null; then
    echo "bench: redis-benchmark was not found. On Debian, as root: apt-get install redis-tools" >&2
    exit 1
fi

arguments=()
if [ -n "${ONLY:-}" ]; then arguments+=(--only "$ONLY"); fi
if [ -n "${QUICK:-}" ]; then arguments+=(--quick); fi

scripts/python.sh benches/python/requirements.txt
# A part that does not exist is an error before anything is built.
.cache/venv/bin/python benches/bench.py --list ${arguments[@]+"${arguments[@]}"} >/dev/null
echo "bench: building the Python package, the addon and the contenders in Rust …"
VIRTUAL_ENV=.cache/venv .cache/venv/bin/maturin develop --release --locked
npm run --silent build
cargo build --release --locked -p tidegate-benches --bin contender

.cache/venv/bin/python benches/bench.py ${arguments[@]+"${arguments[@]}"}
