#!/usr/bin/env bash
# Installs what builds, checks and tests the Node package: node_modules, as the lock file says.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    echo "node: the package needs Node 20 or newer, with npm, and none was found. Install it." >&2
    exit 1
fi
node -e 'process.exit(Number.parseInt(process.versions.node, 10) < 20 ? 1 : 0)' || {
    echo "node: $(node --version) is too old. Install Node 20 or newer." >&2
    exit 1
}

stamp=node_modules/.tidegate-lock
if ! cmp -s package-lock.json "$stamp"; then
    echo "node: npm ci"
    # No dependency needs its install scripts, and the package's own would build what the tests build themselves.
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null
    cp package-lock.json "$stamp"
fi
