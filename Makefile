# Needs python3 (with venv), git and make. All that is installed goes into .venv.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.stamp
PYTEST := $(BIN)/python -m pytest

NOTEBOOKS := $(shell find notebooks -name '*.ipynb' -not -path '*/.ipynb_checkpoints/*' 2>/dev/null)
NB_TESTS   = $(if $(NOTEBOOKS),--nbval --nbval-current-env --nbval-sanitize-with tests/nbval.cfg $(NOTEBOOKS))
STRIP      = $(BIN)/nbstripout --keep-count
EXECUTE    = $(BIN)/jupyter nbconvert --to notebook --execute --inplace --log-level WARN

.DEFAULT_GOAL := help
.PHONY: help setup lab test test-pages test-rest test-fast test-full audit lint format lock notebooks captures bench soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## create .venv with the locked packages and labkit (once)

# The lock goes first and decides every version. labkit follows without dependencies, and is built by the locked
# setuptools, so that nothing else is fetched.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"labkit needs Python 3.11 or newer; name one: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lab: setup ## open the dashboards in the browser
	$(BIN)/labkit lab

# What holds real runs to set times goes first and alone. Pages wait for kernels and browsers most of the time, so the
# rest runs beside them; what pages say is shown when they are done.
test: setup ## the tests: fast, engine, notebooks, browser
	$(PYTEST) tests -m "quiet and $(SHORT)"
	$(MAKE) --no-print-directory --keep-going -j2 test-pages test-rest

SHORT := not soak and not bench and not full

test-pages: setup
	$(PYTEST) tests -m "browser and $(SHORT)" > .venv/pages.log 2>&1; code=$$?; cat .venv/pages.log; exit $$code

test-rest: setup
	$(PYTEST) tests $(NB_TESTS) -m "not browser and not quiet and $(SHORT)"

test-full: setup ## make test, and a second look at every lesson, in JupyterLab too
	$(PYTEST) tests $(NB_TESTS) -m "not soak and not bench"

test-fast: setup ## tests that start no process and no browser: seconds
	$(PYTEST) tests -m "not (engine or browser or notebook or gpu or soak or bench)"

# pip-audit asks a service on the network, and lives in an environment of its own.
audit: setup ## known faults of the locked packages
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install -q pip-audit
	.venv/audit/bin/pip-audit --no-deps --disable-pip -r requirements.lock

lint: setup ## style of the code; notebooks without outputs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(if $(NOTEBOOKS),$(STRIP) --verify $(NOTEBOOKS))

format: setup ## mend what lint can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(if $(NOTEBOOKS),$(STRIP) $(NOTEBOOKS))

# After e.g. `.venv/bin/pip install -U voila`. Local version tags (torch 2.13.0+cpu) name one machine's build: dropped.
# Freeze knows only this platform, so what others need or do not need is said here.
lock: ## write requirements.lock from what .venv holds
	$(BIN)/python -m pip freeze --all --exclude pip --exclude-editable > .venv/freeze.txt
	@echo 'appnope==1.0.0' >> .venv/freeze.txt
	@{ echo "# Exact pins for pip, conda and CI. Written by 'make lock'; the ranges are in pyproject.toml."; \
	   sed -E -e 's/\+.*//' \
	          -e 's/^appnope==.*/& ; sys_platform == "darwin"/' \
	          -e 's/^overrides==.*/& ; python_version < "3.12"/' .venv/freeze.txt | LC_ALL=C sort -fu; \
	 } > requirements.lock
	@touch $(STAMP)
	$(PYTEST) -q tests/test_environment.py

# Cells tagged keep_output hold what nbval compares; the outputs of all others are stripped. Counts stay, since nbval
# asks whether a cell with an output was run.
notebooks: setup ## run the lessons and keep the outputs that tests compare
	$(EXECUTE) $(NOTEBOOKS)
	$(STRIP) $(NOTEBOOKS)

captures: setup ## run anew what the lessons open with, and keep it in assets/captures (wants a quiet machine)
	rm -rf assets/captures
	LABKIT_KEEP_CAPTURES=1 $(MAKE) notebooks

bench: setup ## measure speed (wants a quiet machine)
	$(PYTEST) tests -m bench -s --timeout 1800

soak: setup ## run for minutes, looking for leaks and hangs; writes RELIABILITY.md
	$(PYTEST) tests -m soak --timeout 3600
	LABKIT_EXAMPLES=5 $(PYTEST) tests/test_any_trace.py --timeout 3600
	$(BIN)/python tests/soak

clean: ## remove builds and caches; .venv stays (rm -r .venv)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis test-results
	find . -path ./.venv -prune -o -path ./.git -prune -o \
		\( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -exec rm -rf {} +
