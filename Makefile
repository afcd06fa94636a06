# Two commands on a fresh machine: `make demo` and `make test`. They set up all they need.

VENV   := .venv
PYTHON := $(VENV)/bin/python
READY  := $(VENV)/.ready
CLASSES := $(VENV)/spark-classes.jsa
# Each worker has a Spark session and all that runs on it (tests/conftest.py); the rest goes where there is time.
BESIDE := -n 2 --dist loadgroup

.PHONY: demo test test-all check unit bench soak setup java kafka clean help

help:            ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

demo: setup      ## a burst at twice this machine's capacity through a network, with and without shedding
	$(VENV)/bin/streamshed demo

test: check unit ## all checks and all tests

unit: setup kafka $(CLASSES) ## the tests alone
	$(PYTHON) -m pytest $(BESIDE)

test-all: check setup kafka $(CLASSES) ## the same with a hundred generated networks on Spark instead of a dozen, and new examples for properties
	STREAMSHED_EXPLORE=1 STREAMSHED_NETWORKS=100 $(PYTHON) -m pytest $(BESIDE)

check: $(READY)  ## lint, types, import layers
	$(VENV)/bin/ruff check src tests examples
	$(VENV)/bin/ruff format --check src tests examples
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: setup kafka ## every benchmark, one line of JSON each
	@for name in overhead drain burst latency cold outage pause realtime ladder las-spark network sharing compiled parse fair control fair-decision road-map simulator las; do $(VENV)/bin/streamshed bench $$name --json; done

soak: setup      ## 20,000 small batches: does anything grow, is anything left after close()?
	$(PYTHON) -m tests.soak.soak

setup: java $(READY)

java:
	@sh scripts/ensure-java

kafka:           ## a Kafka broker and Spark's connector to it, for tests, benchmarks and examples
	@sh scripts/ensure-kafka .kafka

# Made once: the tests start Spark many times, and this has it start in half the time.
$(CLASSES): $(READY) | java
	@$(PYTHON) scripts/class_archive.py $@

$(READY): pyproject.toml constraints.txt scripts/make-venv
	@sh scripts/make-venv $(VENV)
	@touch $@

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .kafka .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
