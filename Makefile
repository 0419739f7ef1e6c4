# Two commands: `make demo` sets up and runs the main job, `make test` sets up and runs the tests.
SHELL := /bin/bash
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.10 python3,$(if $(shell $(p) -c 'import sys; print(int((3,10)<=sys.version_info[:2]<=(3,12)))' 2>/dev/null | grep 1),$(p))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PINNED := $(if $(shell $(PYTHON) -c 'import sys; print(int(sys.version_info[:2] >= (3, 11)))' 2>/dev/null | grep 1),-c constraints.txt)

.PHONY: demo test lint lab clean
demo: $(READY)
	$(BIN)/workbench rehearse

test: $(READY) lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check workbench tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/nbstripout --verify $$(find notebooks -name '*.ipynb' -not -path '*/.ipynb_checkpoints/*')

lab: $(READY)
	$(BIN)/workbench open

$(READY): pyproject.toml constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.10, 3.11 or 3.12 found. Fix: install one (Debian: apt-get install python3 python3-venv), or call: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) with $(PYTHON) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV) || { echo "The virtual environment could not be made. Fix: install the venv module (Debian: apt-get install python3-venv), remove $(VENV), and call make again."; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check $(PINNED) -e '.[mindspore,dask,dev]' || { echo "The packages could not be installed. Fix: check that pip reaches a package index (or set PIP_INDEX_URL / PIP_FIND_LINKS to your mirror or wheel folder) and that about 4 GB of disk are free, then call make again."; exit 1; }
	@touch $(READY)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
