# The commands of coexec. Each makes .venv when it is missing; python3 (3.11 or newer) and make are all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --dist worksteal
comma := ,
RUN := $(VENV)/.stamp-run# coexec and OpenCL: enough for the demo and the benchmarks
DEV := $(VENV)/.stamp-dev# and the tools that test and check it

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow check bench fuzz format clean
.NOTPARALLEL:

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */make \1\t/' | expand -t 16

demo: $(RUN)  ## the main job in one minute: co-execute, print the gain, write the trace and the picture
	@echo "Running the demo: coexec demo"
	@$(BIN)/coexec demo

test: $(DEV)  ## run the tests in WORKERS=2 processes
	@echo "Running the tests: pytest in $(WORKERS) processes"
	@$(PYTEST)

test-slow: $(DEV)  ## run the long versions of some tests, which `make test` leaves out
	@echo "Running the slow tests: pytest -m slow in $(WORKERS) processes"
	@$(PYTEST) -m slow

check: $(DEV)  ## what CI runs: format, lint, types, tests
	@echo "Checking the format: ruff format --check"
	@$(BIN)/ruff format --quiet --check .
	@echo "Checking the code: ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "Checking the types: mypy --strict"
	@$(BIN)/mypy src tests
	@$(MAKE) --no-print-directory test

bench: $(RUN)  ## run every benchmark
	@echo "Running the benchmarks: coexec bench all"
	@$(BIN)/coexec bench all

fuzz: $(DEV)  ## run random programs against NumPy: SECONDS=60 JOBS=1 MIX=all SEED=
	@echo "Running random programs: python -m tests.fuzz"
	@$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) --jobs $(or $(JOBS),1) --mix '$(or $(MIX),all)' $(if $(SEED),--seed $(SEED))

format: $(DEV)  ## format the code and mend what can be mended
	@echo "Formatting: ruff check --fix, ruff format"
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

clean:  ## remove .venv, caches and builds
	@echo "Removing $(VENV), caches and builds"
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

define set_up
	@echo "Setting up $(VENV): $(2) (once; needs the package index)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coexec needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable '.[$(1)]'
	@touch $(3)
endef

$(RUN): pyproject.toml constraints.txt
	$(call set_up,opencl,coexec with OpenCL,$@)

$(DEV): pyproject.toml constraints.txt
	$(call set_up,opencl$(comma)torch$(comma)dev,coexec with OpenCL$(comma) torch and the development tools,$(RUN) $@)
