# Every command for work on Tidegate. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Recipes of one target depend on the order of their lines and share the machine's servers and cores.
.NOTPARALLEL:

# Every bash reads it first, those of the scripts too: what was installed into .cache comes before PATH.
export BASH_ENV := $(CURDIR)/scripts/environment.sh

# Caches stay inside the repository, where `make clean` finds them.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/python
export RUFF_CACHE_DIR := $(CURDIR)/.cache/ruff
export MYPY_CACHE_DIR := $(CURDIR)/.cache/mypy
# Some containers set it. Without caches every process compiles the frameworks again.
unexport PYTHONDONTWRITEBYTECODE

# How long `make fuzz` runs.
SECONDS ?= 60

.PHONY: help setup toolchain demo python stubs generate test test-all test-versions soak fuzz check docs bench clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what the tests need and is missing; TIDEGATE_SETUP=no only says what to do
	@scripts/setup.sh

toolchain:
	@scripts/setup.sh demo

demo: toolchain ## Show a policy of two limits admit, refuse, explain and admit again
	@echo "Building the demo (the first time takes a minute) …"
	@cargo run --release --locked --quiet -p tidegate-cli --no-default-features --features demo -- demo

python: setup ## Build the Python package into .cache/venv, for work on it
	@VIRTUAL_ENV=.cache/venv .cache/venv/bin/maturin develop --release --locked

stubs: python ## Write the Python stubs from the compiled module
	@rm -rf .cache/stubs
	@.cache/venv/bin/maturin generate-stubs --profile release --out .cache/stubs
	@PATH="$(CURDIR)/.cache/venv/bin:$$PATH" python scripts/stubs.py .cache/stubs

generate: toolchain ## Write the script and the options of each language from the sources of the core
	@cargo run --locked --quiet -p tidegate-tests --bin generate

test: setup ## Run all tests of all languages
	@scripts/test.sh

test-all: setup ## Run all tests, also against Redis 6.2 and Valkey 8, and build the documentation site
	@scripts/test_all.sh

test-versions: setup ## Run the tests with the oldest and the newest supported versions of frameworks and clients
	@scripts/workflows/versions.sh

soak: setup ## Ten minutes of random faults, every call of three languages recorded and checked
	@scripts/soak.sh

fuzz: toolchain ## Mutate inputs of every parser (SECONDS=60, which the targets share)
	@TIDEGATE_FUZZ_SECONDS="$(SECONDS)" scripts/fuzz.sh

sanitize: toolchain ## Run the core under Miri and ThreadSanitizer (installs a nightly toolchain)
	@scripts/sanitize.sh

check: setup ## Check formats, lints, types, documentation and licenses
	@scripts/check.sh

docs: setup ## Build the documentation site into .cache/site and check its links
	@scripts/docs.sh

bench: setup ## Measure Tidegate beside its peers, about 20 minutes (ONLY=python,node … for a part)
	@ONLY="$(ONLY)" QUICK="$(QUICK)" scripts/bench.sh

clean: ## Remove everything that was built
	@echo "Removing target, .cache and dist …"
	@rm -rf target .cache dist

# Packages.

.PHONY: dist dist-pack dist-examine package check-targets

dist: toolchain ## Build every package of a release into dist/, examine it and try it, about 30 minutes
	@scripts/dist.sh

dist-pack: toolchain ## Make the npm packages of the addons in dist/addons, then examine dist/ and try it
	@scripts/dist.sh --pack

dist-examine: toolchain ## Examine what is in dist/ and try it
	@scripts/dist.sh --examine

package: toolchain ## Package the crate and build it again from its archive
	@cargo package --locked --allow-dirty -p tidegate

check-targets: toolchain ## Type-check the crate for Windows, macOS, musl, 32 bits and WebAssembly
	@scripts/workflows/check_targets.sh

# What the workflows run beside the commands above.

.PHONY: workflows test-rust test-python test-free-threads test-node test-memory test-server test-clock test-bare msrv minimal-versions features
.PHONY: semver advisories simulations mutants sbom publish-crates publish-npm sanitize

workflows: setup ## Lint .github, and compare it with this file
	@scripts/workflows/lint.sh

test-rust: setup ## Run the tests of Rust
	@scripts/workflows/rust.sh

test-python: setup ## Run the tests of Python, with the first python3 of PATH
	@scripts/workflows/python.sh

test-free-threads: setup ## Run what threads share with a free-threaded Python (PYTHON=python3.14t)
	@PYTHON="$(PYTHON)" scripts/workflows/free_threads.sh

test-node: setup ## Run the tests of Node, with the node of PATH
	@scripts/workflows/node.sh

test-memory: toolchain ## Run what needs no server, and try the packages of this system
	@scripts/workflows/memory.sh

test-server: toolchain ## Run the tests with another server (SERVER=redis-7, valkey or a path)
	@scripts/workflows/server.sh "$(SERVER)"

test-bare: ## Try both commands in root file systems without what they need (as root, on Debian)
	@scripts/workflows/bare.sh

msrv: toolchain ## Compile with the oldest Rust that is promised
	@scripts/workflows/msrv.sh

minimal-versions: toolchain ## Compile with the oldest dependencies that Cargo.toml permits
	@scripts/workflows/minimal_versions.sh

test-clock: setup ## Run the tests with the clock at 23:59:30 of the last day of the year
	@scripts/workflows/clock.sh

features: toolchain ## Check the crate without features, with each alone and with all
	@scripts/workflows/features.sh

semver: toolchain ## Compare the public surface of the crate with the last release
	@scripts/workflows/semver.sh

advisories: setup ## Compare what is locked with the known advisories
	@scripts/workflows/advisories.sh

simulations: toolchain ## A million simulated schedules of faults
	@scripts/workflows/simulations.sh

mutants: setup ## Find changes of the code that no test notices (FILES='core/src/resilience/**/*.rs' SHARD=0/8)
	@FILES="$(FILES)" SHARD="$(SHARD)" scripts/workflows/mutants.sh

sbom: toolchain ## List the crates inside each package in dist/sbom
	@scripts/workflows/sbom.sh

publish-crates: toolchain
	@scripts/workflows/publish.sh crates

publish-npm:
	@scripts/workflows/publish.sh npm
