#!/usr/bin/env bash
# Compares what is locked with the list of known advisories. Unlike `make check` it fails when the list cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PWD/.cache/venv/bin:$PATH"
cargo deny --locked check advisories bans licenses sources
npm audit --omit=dev
