# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := fast,plot,table,report,export,tune,baselines,bench,dev

.PHONY: demo test lint types coverage format clean
.DEFAULT_GOAL := test

# Reinstalled only when what is installed changes; the package itself is editable.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "restt needs Python 3.11 or newer, this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

demo: $(STAMP)
	$(BIN)/restt demo --output demo-output

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(STAMP)
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# The suite once more, counted; fails below 90 % of src/.
coverage: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --cov --cov-report term:skip-covered --cov-fail-under 90

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .coverage .pytest_cache .mypy_cache .ruff_cache demo-output
