# Each target sets up what it needs; nothing but Python 3.11, 3.12 or 3.13 and the package index is expected.
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

# Trains the embedded default; the curve and the exported policy lie in the folder it prints.
train: $(VENV)/installed
	$(BIN)/tfsac train --preset=pendulum_sac --seed=1

test: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal

# What takes more than an hour, named one by one as it ends: tests/acceptance/README.md tells what it holds.
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

# The site, in build/site; every link and anchor is checked.
docs: $(VENV)/installed-for-docs
	$(BIN)/python -m mkdocs build --strict

docs-serve: $(VENV)/installed-for-docs
	$(BIN)/python -m mkdocs serve

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
