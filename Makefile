# make demo   sets up and runs the main job on a synthetic event log, and shows its result
# make test   sets up and runs all checks: lint, types, tests
# make test-flink   runs jobs on a real Flink cluster on this machine; needs Java (11 or 17) and Maven

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := mechanisms transforms pipelines

.PHONY: demo test test-flink lint types unit clean

demo: $(VENV)/runtime
	$(BIN)/headcount demo --output demo

test: lint types unit

lint: $(VENV)/development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/development
	MYPYPATH=$(VENV)/src $(BIN)/mypy

unit: $(VENV)/development
	$(BIN)/python -m pytest -n 2 --ignore=tests/runners tests

# On one cluster, one after the other.
test-flink: $(VENV)/development
	$(BIN)/python -m pytest tests/runners

$(VENV)/runtime: requirements.txt setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -r requirements.txt -e .
	touch $@

# mypy cannot follow the mapping of an editable install, so it gets a tree of links.
$(VENV)/development: $(VENV)/runtime tests/requirements.txt
	$(BIN)/pip install --quiet -r tests/requirements.txt
	mkdir -p $(VENV)/src/headcount
	for package in $(PACKAGES); do ln -sfn ../../../$$package $(VENV)/src/headcount/$$package; done
	touch $@

clean:
	rm -rf $(VENV) demo
