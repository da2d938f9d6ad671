# Two commands on a fresh machine with Python ≥ 3.11: `make demo` and `make test`. Each does all its own set-up.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OLDEST ?= .venv-oldest
# A worker that has run its share takes over tests of another: all end together.
WORKERS := -n auto --dist worksteal
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test quick lint types layers unit oldest docs tables audit bench clean

help:
	@echo "make demo    a made-up clinic changes; one predictor learns its outcomes, one does not; DEMO_SECONDS=30 ends by itself"
	@echo "make test    lint, types, layers, tests"
	@echo "make quick   the tests that take less than about a fifth of a second each"
	@echo "make oldest  run tests with every dependency at its declared minimum, on Python 3.11"
	@echo "make tables  regenerate every table and plot of the documentation into docs/generated"
	@echo "make docs    the same, then build the documentation into docs/_build/html"
	@echo "make audit   attack every mechanism and every broken twin; print the table"
	@echo "make bench   measure speed against the named peers"

$(VENV)/.product: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reticent needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[service]"
	@touch $@

$(VENV)/.development: $(VENV)/.product
	$(PIP) -e ".[dev]"
	@touch $@

demo: $(VENV)/.product
	$(BIN)/reticent demo $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS))

test: lint types layers unit

lint: $(VENV)/.development
	$(BIN)/ruff check .

types: $(VENV)/.development
	$(BIN)/mypy

layers: $(VENV)/.development
	$(BIN)/lint-imports
	$(BIN)/python tools/private_names.py

# Where no bytecode may be written, each worker and each process that a test starts compiles every module again.
unit quick oldest: export PYTHONDONTWRITEBYTECODE =

unit: $(VENV)/.development
	$(BIN)/pytest $(WORKERS)

quick: $(VENV)/.development
	$(BIN)/pytest $(WORKERS) -m "not slow"

# What depends most on the versions of others: the protocol and its clients, tables, learners, stored states, the tools.
# OLDEST_TESTS= (nothing) runs all tests. The fuzzer of the routes is left out: the test client of older Starlettes
# leaves streams of newer AnyIOs open.
OLDEST_TESTS ?= tests/test_oldest.py tests/test_extras.py tests/test_import.py tests/cli/test_command_line.py tests/service/test_open_inference.py tests/service/test_app.py \
  tests/service/test_uvicorn_parts.py tests/service/test_quick.py tests/service/test_invocations.py tests/service/test_limits.py \
  tests/service/test_client.py tests/service/test_real_clients.py tests/service/test_service_tables.py \
  tests/service/test_store.py tests/service/test_answering.py \
  tests/teachers/test_frames.py tests/learners/test_logistic.py tests/predictors/test_state_file.py \
  tests/predictors/test_everlasting_predictor.py tests/noise/test_opendp.py

$(OLDEST)/.ready: pyproject.toml tools/oldest.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "the oldest versions are those of Python 3.11: make oldest PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(OLDEST)
	$(PYTHON) tools/oldest.py > $(OLDEST)/pins.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(OLDEST)/pins.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/ruff check .
	$(OLDEST)/bin/lint-imports
	RETICENT_OLDEST=1 $(OLDEST)/bin/pytest $(WORKERS) $(OLDEST_TESTS)

tables: $(VENV)/.development
	$(BIN)/reticent experiment all --out docs/generated

docs: tables
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs docs/_build/html

audit: $(VENV)/.development
	$(BIN)/reticent audit mechanisms

bench: $(VENV)/.development
	@for script in benchmarks/*.py; do echo "── $$script"; $(BIN)/python -m benchmarks.$$(basename $$script .py) || exit 1; done

clean:
	rm -rf $(VENV) $(OLDEST) docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
