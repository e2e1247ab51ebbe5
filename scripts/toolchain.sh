#!/usr/bin/env bash
# Rust is the one thing nobody installs on a person's behalf.
set -euo pipefail

if ! command -v cargo >/dev/null; then
    echo "cargo was not found. Install Rust from https://rustup.rs, then run this again." >&2
    exit 1
fi
