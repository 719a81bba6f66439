# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
# One thread per process: two threads on a shared core are slower than one.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow lint bench table docs lock clean

demo: $(VENV)/.run
	$(BIN)/gcfl demo

test: lint
	$(BIN)/python -m pytest -n 2 --durations 10

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m slow --durations 10

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/population.py
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/labels.py
	$(BIN)/python benchmarks/attribute_noise.py
	$(BIN)/python benchmarks/lookalikes.py
	$(BIN)/python benchmarks/clients.py
	$(BIN)/python benchmarks/flower.py
	$(BIN)/python benchmarks/robust.py --rounds 10

table: $(VENV)/.dev
	$(BIN)/python benchmarks/methods.py

docs: $(VENV)/.docs
	$(BIN)/zensical build --clean --strict

lock: $(VENV)/.run
	$(BIN)/python .ci/lock.py

clean:
	rm -rf $(VENV) site runs demo

# torch first and alone, at its pinned version, so that nothing else can choose another build of it.
$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("gcfl needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) --editable '.[docs]'
	touch $@
