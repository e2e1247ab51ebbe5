#!/usr/bin/env bash
# Compares the public surface of the crate with its last release, which a tag names: what breaks callers needs a new version.
# TIDEGATE_BASELINE names another commit to compare with.
set -euo pipefail
cd "$(dirname "$0")/../.."

baseline="${TIDEGATE_BASELINE:-$(git tag --list 'v[0-9]*' --merged HEAD --sort=-version:refname | head -n 1)}"
if [ -z "$baseline" ]; then
    echo "semver: no tag names a release yet, so there is nothing to compare with (TIDEGATE_BASELINE=COMMIT compares with a commit)"
    exit 0
fi

. scripts/workflows/cargo_tool.sh
use_cargo_tool cargo-semver-checks 0.51.0
# `bench` opens the inside, and promises nothing.
cargo semver-checks --package tidegate --baseline-rev "$baseline" \
    --default-features --features axum,metrics,reqwest-middleware,tonic
