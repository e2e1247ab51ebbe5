#!/usr/bin/env bash
# The tests of Node alone, with the node of PATH, against the server that TIDEGATE_REDIS_SERVER names. Other runtimes (Bun, Deno,
# newer Nodes) run the same binary in tests/node/runtimes.test.mjs.
set -euo pipefail
cd "$(dirname "$0")/../.."

npm run --silent build
node --test --test-reporter=spec tests/node/*.test.mjs tests/node/web/*.test.mjs tests/node/long/*.test.mjs
