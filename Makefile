# What a developer does with this repository, a target for each.  `make help` lists them.
# Everything runs in .venv, which is made on first use and made again when pyproject.toml or this file changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
INSTALLED := $(VENV)/.installed
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat
SPARK_INSTALLED := $(VENV)/.installed-spark

.DEFAULT_GOAL := help
.PHONY: help browser promtool serve cluster install lint fast check test prove bench docs reference pictures tour dist simulation mutants soak clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

serve: $(RUNS) ## start a broker on 127.0.0.1 with its data in ./wakeq-data
	@exec $(BIN)/wakeq serve

cluster: $(RUNS) ## start three nodes on this machine, for trying, with their data in ./wakeq-cluster
	@exec $(BIN)/wakeq cluster try

install: $(INSTALLED) ## create .venv and install wakeq and its development tools into it

# Only what a broker needs: whoever wants to try it has waited enough.
# compat: a path that type checkers and editors follow too, where the default is an import hook that they do not see.
$(RUNS): pyproject.toml Makefile
	@command -v $(PYTHON) >/dev/null || { echo "wakeq: there is no $(PYTHON); install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "wakeq: $$($(PYTHON) --version) is too old; wakeq needs 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "wakeq: $(PYTHON) has no venv module; install it (Debian: apt install python3-venv)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing wakeq into $(VENV) ..."
	@$(PIP) -e .
	@touch $@

$(INSTALLED): $(RUNS)
	@echo "installing what wakeq is developed with ..."
	@$(PIP) -e '.[dev]'
	@touch $@

# Half a gigabyte, so only the proofs fetch it.  Where it cannot be had, they say which tests that costs.
$(SPARK_INSTALLED): $(INSTALLED)
	@echo "installing Spark for the tests ..."
	@{ $(PIP) -e ".[dev,spark-jre]" "pyspark[connect]" || $(PIP) -e ".[dev,spark]"; } \
	&& touch $@ || echo "wakeq: pyspark, or Java for it, cannot be installed here; the Spark tests will be skipped" >&2

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p wakeq
	$(BIN)/lint-imports

PYTEST := $(BIN)/python -m pytest -q
# These share nothing, so they run on all cores.
SMALL := tests/unit tests/broker tests/interop tests/property
ON_ALL_CORES := -n auto --dist worksteal
# These start brokers, and wait more than they work: two files at once.
BROKERS := tests/e2e tests/simulation tests/typing
TWO_AT_ONCE := -n 2 --dist loadfile --no-loadscope-reorder
# Takes all cores by itself.
SPARK := tests/spark

# Whatever the environment says: hundreds of processes are started, and each would compile everything anew.
fast test prove soak bench: export PYTHONDONTWRITEBYTECODE :=

fast: install
	$(PYTEST) $(ON_ALL_CORES) -m "not long" --hypothesis-profile quick $(SMALL)

check: install ## format, lint, types, rooms, documentation, fast tests: before every commit; under a minute
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint docs
	@$(MAKE) --no-print-directory fast

test: lint docs ## all of that, and tests with real brokers; some minutes
	@failed=0; \
	$(PYTEST) $(ON_ALL_CORES) -m "not long" --hypothesis-profile quick $(SMALL) || failed=1; \
	$(PYTEST) $(TWO_AT_ONCE) -m "not long" $(BROKERS) || failed=1; \
	exit $$failed

# The dashboard is proved in a real browser; where there is none and we may not install one, its tests say so and are skipped.
browser:
	@command -v chromium google-chrome >/dev/null || { test "$$(id -u)" = 0 && apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1; } || echo "wakeq: there is no chromium, so the dashboard is not tested; install it (Debian: apt install chromium)"

# The alert rules are proved by the program of Prometheus; the same holds for it.
promtool:
	@command -v promtool >/dev/null || { test "$$(id -u)" = 0 && apt-get install -qq -y --no-install-recommends prometheus >/dev/null 2>&1; } || echo "wakeq: there is no promtool, so the alert rules are not tested; install it (Debian: apt install prometheus)"

prove: browser promtool $(SPARK_INSTALLED) ## the slow proofs: crash loops, power cuts, wide simulations, all examples, Spark
	@failed=0; \
	$(PYTEST) $(ON_ALL_CORES) -m "long or hypothesis or spark" $(SMALL) || failed=1; \
	$(PYTEST) $(TWO_AT_ONCE) -m "long or spark" $(BROKERS) || failed=1; \
	$(PYTEST) $(SPARK) || failed=1; \
	exit $$failed

bench: install ## run the benchmarks; results go to bench/results
	$(BIN)/python -m bench

docs: install ## check the documentation: links, snippets, generated pages; build its site in docs/_build/html
	$(BIN)/python docs/check.py
	@rm -rf docs/_build
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -d docs/_build/doctrees . docs/_build/html

reference: install ## regenerate the pages of docs/reference that are generated
	$(BIN)/python -m docs.reference_pages docs/reference

pictures: install ## make every picture of the repository again: screenshots, plots, diagrams (Chromium, Graphviz); minutes
	$(BIN)/python -m docs.draw

tour: install ## regenerate the pages of docs/tour: which functions a command passes through
	$(BIN)/python -m bench.tour

dist: install ## build wheel and sdist into dist/
	@rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	@rm -rf build

simulation: install ## simulate the consensus core: a thousand fresh seeds in each mode
	$(BIN)/python -m tests.simulation --first $$(date +%s) --seeds 1000 --mode safety --minimise
	$(BIN)/python -m tests.simulation --first $$(date +%s) --seeds 1000 --mode liveness --minimise

mutants: install ## how many fresh seeds each planted bug takes to be found
	$(BIN)/python -m tests.simulation --first $$(date +%s) --mutants

soak: install ## the same proofs with larger numbers, for hours
	SOAK=1 $(PYTEST) -m long

clean: ## remove generated files, but never data
	rm -rf $(VENV) build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
