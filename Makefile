# Two commands on a fresh machine with Python ≥ 3.11: `make demo` and `make test`. Each does all its own set-up.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test lint types layers unit docs tables audit bench clean

help:
	@echo "make demo    fit a made-up clinic, serve it, ask it from several clients; DEMO_SECONDS=30 ends by itself"
	@echo "make test    lint, types, layers, tests"
	@echo "make docs    regenerate every table and build the documentation into docs/_build/html"
	@echo "make audit   attack every mechanism and every broken twin; print the table"
	@echo "make bench   measure speed against the named peers"

$(VENV)/.product: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reticent needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
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

unit: $(VENV)/.development
	$(BIN)/pytest -n auto

tables: $(VENV)/.development
	$(BIN)/reticent experiment all --out docs/generated

docs: tables
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs docs/_build/html

audit: $(VENV)/.development
	$(BIN)/reticent audit mechanisms

bench: $(VENV)/.development
	@for script in benchmarks/*.py; do echo "── $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
