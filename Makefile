# make demo   the main job on the embedded broker: nothing is needed but Python 3.11
# make test   a sample of the tests, every kind of them, in minutes
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Half of the time of a test is waiting, for sockets, timers and processes.
WORKERS ?= $(shell echo $$(( $$(nproc) + 2 )))
PYTEST_ARGS ?=
ROUNDS ?= 20
BUSY ?= 4
SCOPE ?= sample
# Seeds, worlds and cases of each kind of test, and how many times 25 examples of properties.
SEEDS ?= 1
KAFKA_JARS := .kafka
HELM := .helm
COLLECTOR := .collector
# Suites of others: some of their names, or all; empty RECORD: the page stays as it is.
SUITES ?=
RECORD ?= --record
OUTSIDE_ARGS ?=
PEERS ?= ../shared/bench
BENCH_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start Python hundreds of times: without bytecode on disk each start compiles the product again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install wheel demo test test-all test-rest test-stress kafka-jars kafka-test takeover-test outside-test collector-test browser-test deploy-test pictures lint bench bench-peers docs clean distclean

help:
	@echo "make demo     run the main job on the embedded broker (installs what it needs into $(VENV))"
	@echo "make test     run a sample of the tests, some of every kind (4 minutes on two cores)"
	@echo "make test-all  run all tests but those of a real Kafka, SEEDS of each kind (test-rest: what the sample leaves out)"
	@echo "make test-stress  run the sample ROUNDS times beside BUSY busy loops (SCOPE=all: everything)"
	@echo "make kafka-test  run the tests of a real Kafka (needs Java 17 and Maven, which fetches it into $(KAFKA_JARS))"
	@echo "make takeover-test  run all cases of applications that Java and this library continue in turn (as kafka-test)"
	@echo "make outside-test  run the suites of tests of others, or SUITES of them, and write docs/conformance.md, which has their times (needs git, Go, Java 17, Maven, npm, a C and a C++ compiler)"
	@echo "make collector-test  run the tests of a real OpenTelemetry Collector (needs Go, which builds it into $(COLLECTOR))"
	@echo "make browser-test  run the tests of the live page in Chromium (pictures: and write those of the docs)"
	@echo "make deploy-test  build a wheel and install it, run helm on the chart (needs Go, which fetches helm into $(HELM))"
	@echo "make lint     ruff, mypy --strict, pyright on the examples, import layers"
	@echo "make bench    run the benchmarks"
	@echo "make bench-peers  compare with Kafka Streams and others on a real Kafka (Java, Maven, the peers' programs in PEERS)"
	@echo "make docs     build the documentation into site/"
	@echo "make wheel    build a wheel with compiled loops into dist/, for projects of one's own (needs a C compiler)"
	@echo "make install  install everything for development"
	@echo "make clean    remove what was built (distclean: and $(VENV), $(KAFKA_JARS), $(COLLECTOR), .outside, .bench)"

# The stamps say what is installed: base for the main job, and each extra of pyproject.toml.
# compat: a path file instead of an import hook, which type checkers cannot follow.
EDITABLE := --config-settings editable_mode=compat --editable
$(VENV)/.base: pyproject.toml Makefile
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "make: $(PYTHON) cannot create a virtual environment; on Debian: apt install python3-venv" >&2; exit 2; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		rm -rf $(VENV); echo "make: Python 3.11 or later is needed; try make PYTHON=python3.11" >&2; exit 2; }
	@echo "Installing streams into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet $(EDITABLE) .
	@touch $@

$(VENV)/.test $(VENV)/.lint $(VENV)/.bench $(VENV)/.docs $(VENV)/.browser $(VENV)/.dev: $(VENV)/.%: $(VENV)/.base
	@echo "Installing what 'make $*' needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet $(EDITABLE) '.[$*]'
	@touch $@

install: $(VENV)/.dev

# Extensions are optional in an installation; a wheel without them is a mistake.
MODULES = grep -c '^name = "streams\..*\.compiled_' pyproject.toml
wheel: $(VENV)/.base
	@rm -rf build dist
	@echo "Building a wheel into dist/ ..."
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@test "$$($(BIN)/python -m zipfile -l dist/*.whl | grep -Ec '/compiled_\w+\.[^/ ]+\.(so|pyd) ')" = "$$($(MODULES))" || { \
		rm -rf dist; echo "make: the loops were not compiled; a C compiler is needed (on Debian: apt install gcc)" >&2; exit 2; }
	@echo "Built. Install it in the environment of a project:"
	@echo "  pip install '$$(ls $(CURDIR)/dist/*.whl)[web]'"

demo: $(VENV)/.base
	@$(BIN)/python -m topology_examples.demo

# A sample of each kind in minutes; everything; what of everything is not in the sample.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --seeds $(SEEDS)
test: $(VENV)/.test
	$(PYTEST) $(PYTEST_ARGS)

test-all: $(VENV)/.test
	$(PYTEST) --scope all $(PYTEST_ARGS)

test-rest: $(VENV)/.test
	$(PYTEST) --scope rest $(PYTEST_ARGS)

# `make test` (or SCOPE=all) again and again beside busy loops, until a round fails.
test-stress: $(VENV)/.test
	$(BIN)/python -m tests.stress --rounds $(ROUNDS) --busy $(BUSY) -- $(PYTEST) --scope $(SCOPE) $(PYTEST_ARGS)

# Beside it first: a fetch that breaks off leaves the jars as they were.
$(KAFKA_JARS)/.fetched: tests/kafka/pom.xml
	@for tool in java mvn; do command -v $$tool >/dev/null || { \
		echo "make: $$tool is not on the PATH; the tests of a real Kafka need Java 17 or later and Maven" >&2; exit 2; }; done
	@echo "Fetching Kafka, Kafka Streams, Spark's Kafka source and a database into $(KAFKA_JARS) ..."
	@rm -rf $(KAFKA_JARS).new
	@for part in node streams spark jdbc; do \
		mvn --quiet --batch-mode --file tests/kafka/pom.xml --activate-profiles $$part \
			dependency:copy-dependencies -DoutputDirectory='$(CURDIR)/$(KAFKA_JARS).new/'$$part || exit 2; done
	@rm -rf $(KAFKA_JARS) && mv $(KAFKA_JARS).new $(KAFKA_JARS) && touch $@

kafka-jars: $(KAFKA_JARS)/.fetched

# Where such tests are; several at once, for they wait for sessions and for Java's start.
PYTEST_KAFKA = $(BIN)/python -m pytest -n $(WORKERS) --seeds $(SEEDS) tests/kafka tests/clients/tcp/test_security.py
kafka-test: $(VENV)/.test kafka-jars
	$(PYTEST_KAFKA) -m 'kafka and not takeover' $(PYTEST_ARGS)

# The other cases of applications that Java and this library continue in turn.
takeover-test: $(VENV)/.test kafka-jars
	$(PYTEST_KAFKA) -m 'kafka and takeover' $(PYTEST_ARGS)

outside-test: $(VENV)/.test
	$(BIN)/python -m tests.outside $(RECORD) $(OUTSIDE_ARGS) $(SUITES)

# Its own go.sum is written beside the build: the modules are those of go.mod and what they need.
$(COLLECTOR)/collector: tests/telemetry/collector/main.go tests/telemetry/collector/go.mod
	@command -v go >/dev/null || { \
		echo "make: go is not on the PATH; the tests of a real OpenTelemetry Collector need Go 1.25 or later" >&2; exit 2; }
	@echo "Building an OpenTelemetry Collector into $(COLLECTOR) ..."
	@mkdir -p $(COLLECTOR) && cp $^ $(COLLECTOR) && cd $(COLLECTOR) && go mod tidy >tidy.log 2>&1 && go build -o collector . \
		|| { cat $(CURDIR)/$(COLLECTOR)/tidy.log >&2; exit 2; }

collector-test: $(VENV)/.test $(COLLECTOR)/collector
	$(BIN)/python -m pytest -m collector tests/telemetry $(PYTEST_ARGS)

browser-test: $(VENV)/.test $(VENV)/.browser
	$(BIN)/python -m pytest -m browser tests/browser $(PYTEST_ARGS)

$(HELM)/helm:
	@command -v go >/dev/null || { echo "make: go is not on the PATH; the tests of the chart need Go or helm" >&2; exit 2; }
	GOBIN='$(CURDIR)/$(HELM)' go install helm.sh/helm/v3/cmd/helm@v3.22.0

# The rules of promtool, which cannot be installed as a module: as the collector, with a go.sum of its own.
$(HELM)/rules: tests/deploy/rules/rules_test.go tests/deploy/rules/go.mod
	@command -v go >/dev/null || { echo "make: go is not on the PATH; the test of the alerts needs Go" >&2; exit 2; }
	@rm -rf $(HELM)/build && mkdir -p $(HELM)/build && cp $^ $(HELM)/build
	@cd $(HELM)/build && go mod tidy >tidy.log 2>&1 && go test -c -o ../rules . \
		|| { cat $(CURDIR)/$(HELM)/build/tidy.log >&2; exit 2; }

deploy-test: $(VENV)/.test $(HELM)/helm $(HELM)/rules
	PATH="$(CURDIR)/$(HELM):$$PATH" $(BIN)/python -m pytest -m deploy tests/deploy $(PYTEST_ARGS)

pictures: $(VENV)/.test $(VENV)/.browser
	$(BIN)/python -m pytest -m browser --pictures tests/browser $(PYTEST_ARGS)
	$(BIN)/python -m pytest --pictures tests/cli/test_pictures.py $(PYTEST_ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.bench
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.recording

bench-peers: $(VENV)/.dev kafka-jars
	$(BIN)/python -m tests.bench.peers --peers '$(PEERS)' --latency $(BENCH_ARGS)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: $(VENV)/.base
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs -r rm -rf

distclean: clean
	rm -rf $(VENV) $(KAFKA_JARS) $(KAFKA_JARS).new $(HELM) $(COLLECTOR) .outside .bench
