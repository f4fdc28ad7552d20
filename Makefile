# Every target sets up what it needs: an environment in .venv with the versions of requirements.lock.
#
#   make PYTHON=python3.12 test                                   another Python (3.11 or newer)
#   make TORCH_INDEX=https://download.pytorch.org/whl/cpu test    the small CPU build of torch on Linux
#   make PYTEST_ARGS="-n 0 -x -k ditto" test                      other arguments to pytest
#   make BENCH_ARGS="--quick --only a,d" bench                    other arguments to benchmarks/speed.py

PYTHON ?= python3
TORCH_INDEX ?=
PYTEST_ARGS ?= -n 2
BENCH_ARGS ?= --modes

BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-all bench docs check format clean

help:  ## show this list
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile
	@sed -n 's/^#   /  /p' Makefile

demo: $(STAMP)  ## a first federation on your machine
	@$(BIN)/descant demo

test: $(STAMP)  ## the quick tests
	$(BIN)/python -m pytest -m "not slow" --dist loadfile $(PYTEST_ARGS)

test-all: $(STAMP)  ## all tests, the slow ones too
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The work is small and the tests run side by side: one thread each.
test test-all: export OMP_NUM_THREADS = 1
# What pytest makes of the files' asserts is kept for the next time, even where Python is told to keep nothing.
test test-all: export PYTHONDONTWRITEBYTECODE =
# Hypothesis tries the same examples in `make test`, and new ones here.
test-all: export DESCANT_EXAMPLES = new

bench: $(STAMP)  ## how fast it trains, beside a plain PyTorch loop and Apple's pfl (about a quarter of an hour)
	$(if $(TORCH_INDEX),PIP_EXTRA_INDEX_URL="$(TORCH_INDEX)") $(BIN)/python benchmarks/speed.py $(BENCH_ARGS)

docs: $(STAMP)  ## the documentation, into site/ (open site/index.html); writes the reference parts of docs/ anew
	$(BIN)/python docs/pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: $(STAMP)  ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests

format: $(STAMP)  ## repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment, builds and caches (runs/ stays)
	rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml requirements.lock
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "error: no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: descant needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1)." \
	       "Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' cannot make virtual environments. Install its venv module" \
	       "(Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@echo "Setting up .venv (minutes the first time: torch is large)"
	@"$(PYTHON)" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  $(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)") -c requirements.lock -e ".[dev,data]"
	@touch $@
