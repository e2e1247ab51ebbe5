#!/usr/bin/env bash
# Builds the documentation site into .cache/site, strictly, and checks every link. The pages are in docs/; the API of Python is
# read from the package's source, that of Node by TypeDoc, and the crate's documentation is built beside. The playground has the
# command, compiled to WebAssembly.
#
#     scripts/docs.sh           builds and checks
#     scripts/docs.sh serve     serves the pages on port 8000 and builds them again when they change
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.cache/docs
if ! "$venv/bin/python" -c '' 2>/dev/null; then
    echo "docs: making $venv"
    rm -rf "$venv"
    # The environment of the tests has a Python that is new enough.
    .cache/venv/bin/python -m venv "$venv"
fi
if ! cmp -s docs/requirements.txt "$venv/requirements"; then
    echo "docs: pip install --requirement docs/requirements.txt"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --requirement docs/requirements.txt </dev/null
    cp docs/requirements.txt "$venv/requirements"
fi
# mkdocs-material announces what may follow it with every build.
export NO_MKDOCS_2_WARNING=1

typedoc=.cache/typedoc
mkdir -p "$typedoc"
if ! cmp -s docs/site/package-lock.json "$typedoc/installed"; then
    echo "docs: npm ci, into $typedoc"
    cp docs/site/package.json docs/site/package-lock.json "$typedoc"
    npm ci --prefix "$typedoc" --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null
    cp docs/site/package-lock.json "$typedoc/installed"
fi
echo "docs: the API of Node"
rm -rf .cache/node-api
entries=()
for name in index express fastify hono koa nest web trpc mcp http stores outgoing fetch undici llm bullmq express-rate-limit fastify-rate-limit nestjs-throttler prometheus opentelemetry; do
    entries+=("bindings-node/lib/$name.ts")
done
"$typedoc/node_modules/.bin/typedoc" --options docs/site/typedoc.json --tsconfig bindings-node/tsconfig.json \
    --treatWarningsAsErrors --logLevel Warn --out .cache/node-api "${entries[@]}"

wasm=wasm32-wasip1
if ! rustup target list --installed | grep -qx "$wasm"; then
    echo "docs: rustup target add $wasm"
    rustup target add "$wasm"
fi
echo "docs: the command for the playground"
cargo build --quiet --locked --package tidegate-cli --no-default-features --target "$wasm" --profile page
"$venv/bin/python" docs/site/packed.py "${CARGO_TARGET_DIR:-target}/$wasm/page/tidegate.wasm" .cache/tidegate.wasm.zst

if [ "${1:-}" = serve ]; then
    exec "$venv/bin/mkdocs" serve
fi

rm -rf .cache/site
# Not --quiet, which also hides the warnings that --strict counts.
"$venv/bin/mkdocs" build --strict
echo "docs: the API of Rust"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --package tidegate --no-deps --features axum,metrics,reqwest-middleware,tonic
cp -r "${CARGO_TARGET_DIR:-target}/doc" .cache/site/rust-api
"$venv/bin/python" docs/site/check.py .cache/site
node docs/site/search.mjs .cache/site
node docs/site/playground.mjs .cache/site
echo "docs: .cache/site/index.html"
