# Each target sets itself up in .venv from a bare python3; stamps make the second run quick.
PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
BENCH_READY := $(BENCH_VENV)/.ready
OLD_ENOUGH := $(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "callgate needs Python 3.11 or newer: run make PYTHON=python3.12 $(MAKECMDGOALS)")'
PIP := -m pip --disable-pip-version-check --quiet install

.PHONY: demo test check bench clean

demo: $(READY)
	$(PY) -m examples.shop

test: $(READY)
	$(PY) -m pytest --numprocesses logical --maxprocesses 4 --dist worksteal

check: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(VENV)/bin/pyright
	$(VENV)/bin/lint-imports

bench: $(BENCH_READY)
	$(BENCH_VENV)/bin/python -m bench

clean:
	rm -rf $(VENV) $(BENCH_VENV) dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# pip first: the one that a new environment brings may be too old for dependency groups.
$(READY): pyproject.toml constraints.txt
	@$(OLD_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(PY) $(PIP) --constraint constraints.txt --upgrade pip
	$(PY) $(PIP) --constraint constraints.txt --group build
	$(PY) $(PIP) --constraint constraints.txt --group dev --no-build-isolation --editable '.[all]'
	touch $@

$(BENCH_READY): pyproject.toml constraints.txt bench/requirements.txt
	@$(OLD_ENOUGH)
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python $(PIP) --constraint constraints.txt --upgrade pip
	$(BENCH_VENV)/bin/python $(PIP) --constraint constraints.txt --group build
	$(BENCH_VENV)/bin/python $(PIP) --requirement bench/requirements.txt --no-build-isolation --editable '.[postgres]'
	touch $@
