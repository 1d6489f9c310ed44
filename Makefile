# The two commands: `make calibrate` and `make test`. Both make .venv first, once.
#
#   PYTHON=python3.12 make test     another Python (>= 3.11)
#   make test WORKERS=0             without parallel processes

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-dev
WORKERS ?= 2

export MPLBACKEND = Agg

.PHONY: calibrate test test-all test-oldest lint bench docs clean help

help:
	@echo "make calibrate   fit the predator-prey model to the pelts of hare and lynx; results/lynx_hare/report.html"
	@echo "make test        the tests          make test-all   with the slow ones"
	@echo "make test-oldest the tests with the lowest versions that are declared (PYTHON=python3.11)"
	@echo "make lint        ruff and mypy      make bench      benchmarks/results.md"
	@echo "make docs        docs/_build/       make clean      remove what the others made"

calibrate: $(VENV)/.installed
	rm -rf results/lynx
	$(BIN)/fmepy new results/lynx --from lynx
	$(BIN)/fmepy calibrate results/lynx/lynx.toml --out results/lynx_hare

test: $(STAMP)
	$(BIN)/python -m pytest --doctest-modules -n $(WORKERS)

test-all: $(STAMP)
	$(BIN)/python -m pytest --doctest-modules -n $(WORKERS) -m "slow or not slow" --hypothesis-profile thorough

# the lowest versions that pyproject.toml declares, in an environment of their own (without SALib, which asks for numpy 2); old
# libraries may warn of themselves
test-oldest: .venv-oldest/.installed
	.venv-oldest/bin/python -m pytest -n $(WORKERS) -W ignore::DeprecationWarning -W ignore::FutureWarning $(TESTS)

.venv-oldest/.installed: pyproject.toml tests/oldest.py
	$(PYTHON) -c 'import sys; assert sys.version_info[:2] == (3, 11), "the lowest Python is 3.11: PYTHON=python3.11"'
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) tests/oldest.py pyproject.toml > .venv-oldest/constraints.txt
	.venv-oldest/bin/python -m pip install --quiet --editable '.[arviz,dask,display,tests]' --constraint .venv-oldest/constraints.txt
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks --write benchmarks/results.md

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	$(BIN)/python docs/check_links.py docs/_build
	@echo "Open docs/_build/index.html"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fmepy needs Python 3.11 or newer; '$(PYTHON)' is not. Name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python    # the package alone; tests, benchmarks and pages bring their own
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python    # without a network, what is installed will do
	$(BIN)/python -m pip install --quiet --editable '.[docs]' || \
	  $(BIN)/python -c 'import fmepy, furo, myst_parser, sphinx, sphinx_gallery'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf build dist docs/_build docs/vignettes results vignettes/results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
