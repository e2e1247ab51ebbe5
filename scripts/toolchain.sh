#!/usr/bin/env bash
# Rust is not installed automatically: its installer changes the user's environment.
set -euo pipefail

if ! command -v cargo >/dev/null; then
    echo "cargo was not found. Install Rust from https://rustup.rs, then run this again." >&2
    exit 1
fi
