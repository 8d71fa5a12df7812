# make demo   the main job on the embedded broker: nothing is needed but Python 3.11
# make test   all tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
PYTEST_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install demo test lint bench docs clean distclean

help:
	@echo "make demo     run the main job on the embedded broker (installs what it needs into $(VENV))"
	@echo "make test     install everything and run all tests"
	@echo "make lint     ruff, mypy --strict, pyright on the examples, import layers"
	@echo "make bench    run the benchmarks"
	@echo "make docs     build the documentation into site/"
	@echo "make install  install everything for development"
	@echo "make clean    remove what was built (distclean: and $(VENV))"

# The stamps say what is installed: base for the main job, dev for everything.
$(VENV)/.base: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "make: $(PYTHON) cannot create a virtual environment; on Debian: apt install python3-venv" >&2; exit 2; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		rm -rf $(VENV); echo "make: Python 3.11 or later is needed; try make PYTHON=python3.11" >&2; exit 2; }
	@echo "Installing streams into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Installing development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

install: $(VENV)/.dev

demo: $(VENV)/.base
	@$(BIN)/python -m topology_examples.demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

clean: $(VENV)/.base
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs -r rm -rf

distclean: clean
	rm -rf $(VENV)
