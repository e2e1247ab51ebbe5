#!/usr/bin/env bash
# A million simulated schedules of faults of the transport, and as many histories of leases; TIDEGATE_SCHEDULES is their number.
set -euo pipefail
cd "$(dirname "$0")/../.."
export TIDEGATE_FULL=1 TIDEGATE_SCHEDULES="${TIDEGATE_SCHEDULES:-1000000}"
cargo test --release --locked -p tidegate --lib -- --nocapture simulation
