# make demo   set everything up and run the main job on the CPU
# make test   set everything up and pass the tests
# make lint   linters; make test-full the whole matrix; make docs the documentation site in build/site

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test test-full lint docs dist clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip

# torch first and pinned, so that nothing that follows pulls another build of it
$(VENV)/.torch: $(BIN)/python
	$(PIP) install "$(TORCH)"
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml examples/requirements.txt
	$(PIP) install "$(TORCH)" -r examples/requirements.txt -e .
	touch $@

$(VENV)/.test: $(VENV)/.demo tests/requirements.txt
	$(PIP) install "$(TORCH)" -r tests/requirements.txt -e ".[dev]"
	touch $@

demo: $(VENV)/.demo
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

test: $(VENV)/.test
	$(BIN)/python -m pytest -m "not full and not gpu"

test-full: $(VENV)/.test
	$(PIP) install -e ".[mlflow,wandb]"
	$(BIN)/python -m pytest

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The time of the last commit stands for "now", so that two builds of one commit are equal byte for byte.
dist: $(VENV)/.test
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
