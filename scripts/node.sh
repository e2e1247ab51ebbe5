#!/usr/bin/env bash
# Installs what builds, checks and tests the Node package: node_modules, as the lock file says.
#
#     scripts/node.sh            installs it
#     scripts/node.sh --check    fails when there is something to install
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
source scripts/setup/needs.sh

stamp=node_modules/.tidegate-lock
if [ "${1:-}" = --check ]; then
    cmp -s package-lock.json "$stamp"
    exit
fi
if ! has_node; then
    echo "node: the package needs Node $oldest_node or newer with npm, and none was found. Run make setup." >&2
    exit 1
fi
if ! cmp -s package-lock.json "$stamp"; then
    echo "node: npm ci"
    # No dependency needs its install scripts, and the package's own would build what the tests build themselves.
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null
    cp package-lock.json "$stamp"
fi
