#!/usr/bin/env bash
# The tests of Python alone, with the first python3 of PATH, against the server that TIDEGATE_REDIS_SERVER names.
set -euo pipefail
cd "$(dirname "$0")/../.."

wheels=.cache/wheels
rm -rf "$wheels"
.cache/venv/bin/maturin build --release --locked --interpreter .cache/venv/bin/python --out "$wheels"
.cache/venv/bin/python -m pip install --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
TIDEGATE_WHEEL="$(echo "$PWD/$wheels"/*.whl)" .cache/venv/bin/python -m pytest --quiet tests/python
