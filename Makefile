# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
EXTRAS := fast,app,plot,export,tune,baselines,bench,dev

.PHONY: demo test test-portable lint types coverage docs fuzz matrix release-check format clean
.DEFAULT_GOAL := test

# Reinstalled only when what is installed changes; the package itself is editable.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "restt needs Python 3.11 or newer, this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[$(EXTRAS)]"
	touch $@

demo: $(STAMP)
	$(BIN)/restt demo --output demo-output

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	! git grep -nIE -f tools/words.txt -- src docs README.md CONTRIBUTING.md

types: $(STAMP)
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Most tests with the instruction sets of older processors and with two threads; tools/portable.py names those left out.
test-portable: $(STAMP)
	$(BIN)/python tools/portable.py $(PORTABLE)

# The suite once more, counted; fails below 90 % of src/.
coverage: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --cov --cov-report term:skip-covered --cov-fail-under 90

# Documents, API, the gallery (its scripts are run) and the two HTML pages; a warning is an error.
docs: $(STAMP)
	$(PIP) --editable ".[docs]"
	$(BIN)/python docs/make_pages.py
	$(BIN)/sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html

# Ten thousand damaged files for every loader; the tests have sixty.
fuzz: $(STAMP)
	$(BIN)/python tools/fuzz.py

# Every Python that can be had here, with the oldest and the newest dependencies.
matrix: $(STAMP)
	$(BIN)/python tools/matrix.py $(MATRIX)

# Wheel and sdist, looked into and used as a stranger would.
release-check: $(STAMP)
	$(PIP) --editable ".[release]"
	$(BIN)/python tools/release_check.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist docs/*.html docs/_build docs/api docs/gallery docs/_pictures docs/sg_execution_times.rst .coverage .pytest_cache .mypy_cache .ruff_cache demo-output
