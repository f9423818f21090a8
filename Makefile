# Everything a person types. `make setup` needs Python 3.11 (or 3.12 to 3.14) and make, nothing else:
# the JVM that Spark runs on comes as a wheel.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.harrow-setup
COMPILED := $(VENV)/.harrow-compiled
SOURCES := pyproject.toml setup.py

# Without bytecode each process parses every module again: a fork server then starts in 3.4 s of CPU instead of 1.1 s.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# `make gallery RUNS=20`: runs of each wrong application and of each correct twin
RUNS ?= 1
LONG = $(shell grep -rl --include='*.py' '^from long_runs import' tests) examples/aiokafka_offset_fetch examples/retry_queue/tests examples/postgres_table/tests examples/aiokafka_1134 examples/aiokafka_1151 examples/simulated_gallery examples/faststream_service

.PHONY: help setup demo gallery retries test long conformance differential client-suites lint type docs wheels wheel environments image bench clean

help:  ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): $(SOURCES)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 14) else f"Harrow needs Python 3.11 to 3.14, {sys.executable} is {v[0]}.{v[1]}; call: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python -e . --group test --group lint --group bench
	@touch $(STAMP)

setup: $(STAMP)  ## make a virtual environment with everything in it

demo: $(STAMP)  ## a shop that loses orders, its correct twin, and the verdicts on both
	@$(BIN)/harrow demo

gallery: $(STAMP)  ## wrong services and their correct twins, RUNS times each, and a table of the verdicts
	@$(BIN)/python examples/gallery/repeat.py --wrong $(RUNS) --right $(RUNS) $(ARGS)

retries: $(STAMP)  ## the retry queue of the examples and its wrong twins, RUNS times each; ARGS="--seeds 200": random faults
	@$(BIN)/python examples/retry_queue/repeat.py --wrong $(RUNS) --right $(RUNS) $(ARGS)

# Pytest compiles tests when it collects them. All workers start at once, so that each of them would compile every file.
$(COMPILED): $(STAMP)
	@echo "compiling the tests (once)"
	@$(BIN)/python -m pytest --collect-only -q tests/unit > /dev/null & \
	  $(BIN)/python -m pytest --collect-only -q --ignore=tests/unit > /dev/null; wait; touch $@

test: $(COMPILED)  ## the whole suite, in parallel, one JVM
	@$(BIN)/python -m pytest -n 4 --dist loadgroup $(ARGS)

conformance: $(STAMP)  ## what needs Apache Kafka or a Spark cluster, where they are here
	@$(BIN)/python tests/support/spark_kafka_jars.py > /dev/null || echo "so the tests of Spark's connector are skipped"
	@$(BIN)/python tests/support/programs_in_other_languages.py > /dev/null || echo "so the programs in Go, Node and Java are skipped"
	@HARROW_APACHE=1 HARROW_SPARK_CLUSTER=1 $(BIN)/python -m pytest -p no:randomly tests/conformance tests/checks/test_spark_cluster.py $(ARGS)

differential: $(STAMP)  ## 20,000 requests with edge values to Harrow and to Apache Kafka, and what differs; ARGS="--seed N --cases N --api REQUEST"
	@PYTHONPATH=tests/conformance:tests/support $(BIN)/python -m differential $(ARGS)

long: $(STAMP)  ## tests with a JVM of their own, and searches over seeds
	@HARROW_LONG=1 $(BIN)/python -m pytest -p no:randomly $(LONG) $(ARGS)

lint: $(STAMP)  ## ruff, import-linter, tidy, mypy and pyright
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@PYTHONPATH=.typing $(BIN)/lint-imports  # the links there are the package as one folder
	@$(BIN)/python -m pytest -q -p no:randomly tests/test_tidy.py
	@$(MAKE) --no-print-directory type

type: $(STAMP)  ## mypy and pyright, strict, at the same time
	@$(BIN)/pyright & pyright=$$!; $(BIN)/mypy cluster faults harness package tests benchmarks; mypy=$$?; wait $$pyright && exit $$mypy

docs:  ## build the documentation as a site into build/docs; a broken link fails
	@test -x .venv-docs/bin/uv || { $(PYTHON) -m venv .venv-docs && .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check uv; }
	@.venv-docs/bin/uv pip install --quiet --system-certs --python .venv-docs/bin/python --group docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict
	@echo "build/docs/index.html"

# pyspark has no wheel, but it has no native code either: its source needs no compiler.
wheels: $(STAMP)  ## check that each dependency installs without a compiler on every Python that is allowed
	@for version in 3.11 3.12 3.13 3.14; do \
	  $(BIN)/uv pip compile --quiet --system-certs --python-version $$version --python-platform x86_64-manylinux_2_28 \
	    --only-binary :all: --no-binary pyspark --all-extras pyproject.toml --output-file /dev/null > /dev/null \
	  && echo "Python $$version: every dependency has a wheel" || failed=1; done; exit $${failed:-0}

wheel: $(STAMP)  ## build the wheel, install it in an empty environment, and run the README's example there
	@$(BIN)/python tests/wheel_as_a_stranger.py $(ARGS)

environments: $(STAMP)  ## run the README's example with proxies, long paths, small limits and odd variables, and print a table
	@$(BIN)/python tests/environments.py $(ROWS)

client-suites: $(STAMP)  ## run a client's own tests on Apache Kafka and on Harrow: SUITE=kafka-go, CHECKOUT=FOLDER (docs/clients.md)
	@$(BIN)/python tests/client_suites.py $(SUITE) $(if $(CHECKOUT),--checkout $(CHECKOUT)) $(ARGS)

image: $(STAMP)  ## build Harrow's brokers as the image harrow, from this source tree
	@rm -f containers/wheels/*.whl
	@$(BIN)/uv build --quiet --system-certs --wheel --out-dir containers/wheels .
	@docker build --tag harrow $(ARGS) containers

bench: $(STAMP)  ## every benchmark, each with its ratio against a peer
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || failed=1; done; exit $${failed:-0}

clean:  ## remove what the commands made
	rm -rf $(VENV) .venv-docs harrow-out build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
