#!/usr/bin/env bash
# Runs the tests with the oldest and the newest versions that tests/versions/supported.json names, and says what failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/parts.sh
. scripts/parts.sh
# shellcheck source=scripts/compile.sh
. scripts/compile.sh
# shellcheck source=scripts/versions.sh
. scripts/versions.sh

compile
versions
finish "All tests passed."
