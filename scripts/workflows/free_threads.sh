#!/usr/bin/env bash
# Builds the wheel for a free-threaded Python (PYTHON, or else python3.14t), and runs the tests of what threads share, without a
# global lock. Packages that many tests need have no wheel for such a Python, so these tests need only pytest.
set -euo pipefail
cd "$(dirname "$0")/../.."
interpreter="${PYTHON:-python3.14t}"
if ! "$interpreter" -c 'import sysconfig; raise SystemExit(not sysconfig.get_config_var("Py_GIL_DISABLED"))'; then
    echo "free-threads: $interpreter is no Python without a global lock. Name one: make test-free-threads PYTHON=python3.14t" >&2
    exit 1
fi

venv=.cache/free-threads
"$interpreter" -m venv "$venv"
grep -E '^(maturin|pytest)==' tests/python/requirements.txt >"$venv/requirements"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$venv/requirements"
rm -rf "$venv/wheels"
"$venv/bin/maturin" build --locked --interpreter "$venv/bin/python" --out "$venv/wheels"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$venv/wheels"/*.whl

# Without the variable a module that needs the lock would enable it again.
PYTHON_GIL=0 "$venv/bin/python" -m pytest --quiet \
    tests/python/test_{free_threads,threads,limiter,asyncio_cancellation,holds,waiting_holds,settle_once,closing,out_of_step,stats}.py
