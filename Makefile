# Every command for work on Tidegate. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Recipes of one target depend on the order of their lines and share the machine's servers and cores.
.NOTPARALLEL:

# Caches stay inside the repository, where `make clean` finds them.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/python
export RUFF_CACHE_DIR := $(CURDIR)/.cache/ruff
export MYPY_CACHE_DIR := $(CURDIR)/.cache/mypy

.PHONY: help setup toolchain demo python stubs test test-all soak check bench clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what the tests need where that is allowed, or say what to do
	@scripts/setup.sh

toolchain:
	@scripts/toolchain.sh

demo: toolchain ## Show a policy of two limits admit, refuse, explain and admit again
	@echo "Building the demo (the first time takes a minute) …"
	@cargo run --release --locked -p tidegate --example demo

python: setup ## Build the Python package into .cache/venv, for work on it
	@VIRTUAL_ENV=.cache/venv .cache/venv/bin/maturin develop --release --locked

stubs: python ## Write the Python stubs from the compiled module
	@rm -rf .cache/stubs
	@.cache/venv/bin/maturin generate-stubs --profile release --out .cache/stubs
	@PATH="$(CURDIR)/.cache/venv/bin:$$PATH" python scripts/stubs.py .cache/stubs

test: setup ## Run all tests of all languages
	@scripts/test.sh

test-all: setup ## Run all tests, also against Redis 6.2 and Valkey 8
	@scripts/test_all.sh

soak: setup ## Ten minutes of random faults, every call of three languages recorded and checked
	@scripts/soak.sh

sanitize: toolchain ## Run the core under Miri and ThreadSanitizer (installs a nightly toolchain)
	@scripts/sanitize.sh

check: setup ## Check formats, lints, types, documentation and licenses
	@scripts/check.sh

bench: setup ## Measure Tidegate beside its peers, about 20 minutes (ONLY=python,node … for a part)
	@ONLY="$(ONLY)" QUICK="$(QUICK)" scripts/bench.sh

clean: ## Remove everything that was built
	@echo "Removing target, .cache and dist …"
	@rm -rf target .cache dist
