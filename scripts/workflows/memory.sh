#!/usr/bin/env bash
# What needs no server, for systems without one (Windows): the core's own tests, which include the simulated servers, and both
# packages as a user installs them.
set -euo pipefail
cd "$(dirname "$0")/../.."

cargo test --locked -p tidegate --all-features
TARGETS="$(rustc -vV | sed -n 's/^host: //p')" scripts/dist.sh
