# Each target installs its own dependencies. You need Python 3.11, 3.12 or 3.13 and access to the package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: train test check style acceptance docs docs-serve clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-for-tests: setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(VENV)/installed $@

# Trains the default preset and prints the folder with the learning curve and the exported policy.
train: $(VENV)/installed
	$(BIN)/tfsac train --preset=pendulum_sac --seed=1

test: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal

# Takes more than an hour and prints each test as it finishes; tests/acceptance/README.md describes the tests.
acceptance: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -m acceptance --verbose --verbose --numprocesses=2 --dist=worksteal

style: $(VENV)/installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

check: style
	$(BIN)/python -m pytest -m "not slow and not acceptance" --numprocesses=2 --dist=worksteal

$(VENV)/installed-for-docs: setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $(VENV)/installed $@

# Builds the site in build/site and checks every link and anchor.
docs: $(VENV)/installed-for-docs
	$(BIN)/python -m mkdocs build --strict

docs-serve: $(VENV)/installed-for-docs
	$(BIN)/python -m mkdocs serve

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
