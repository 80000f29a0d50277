# Every target sets up what it needs on a fresh clone; what is there already is left alone.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
# Bytecode is kept, so that commands start fast.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
SETUP := scripts/setup.sh
# make bench BENCH=hook_overhead;  make test PYTEST_ARGS='-m "not spark"'
BENCH ?=
PYTEST_ARGS ?=

# make soak COMMIT=v0.1.0 HISTORIES=100000 ROUNDS=50 RANDOM_KILLS=100 SEED=7 SINKS=delta,kafka
HISTORIES ?= 100000
ROUNDS ?= 20
RANDOM_KILLS ?= 40
SEED ?= $(shell date +%s)
SINKS ?=

# make differential COMMIT=main~20 HISTORIES=20000
COMMIT ?= main

# make matrix LINES="3.5.7+3.3.3 4.2.0+4.4.0"
LINES ?=

.PHONY: help setup try demo test messages soak differential record replay matrix recipes lint docs bench figures wheel hashes digests sbom clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: ## Python environment, Java, Chromium and jars
	@$(SETUP) python java browser databases jars

try: ## Three recorded streams with their faults, audited now: no Java, no broker, no jars
	@$(SETUP) try
	build/try/bin/recon try
	@echo "recon of this environment is build/try/bin/recon; README says how to install it into your own."

demo: ## A real broker, a real stream, faults, an audit and its report
	@$(SETUP) python java jars
	$(BIN)/recon demo

test: lint ## Lint, then every test on real parts
	@$(SETUP) java browser databases jars
	scripts/test.sh $(PYTEST_ARGS)

messages: ## Take over changed messages into tests/golden/messages.json; read the diff
	@$(SETUP) python $(if $(PYTEST_ARGS),java browser databases jars)
	$(BIN)/python -m scripts.messages $(PYTEST_ARGS)

soak: ## Longer: what `make test` leaves out, random histories held against the truth, more kills, at random moments
	@$(SETUP) python java databases jars
	$(BIN)/pytest -q -n 2 --dist loadfile -m long
	RECON_TRUTH_HISTORIES=$(HISTORIES) $(BIN)/pytest -q -n 2 tests/truth/test_truth.py
	-$(BIN)/python -m scripts.differential $(COMMIT) 20000 # read what it lists: each difference is right or a fault
	RECON_MUTATIONS=5000 $(BIN)/pytest -q -n 2 tests/fuzz
	RECON_TRACED_BATCHES=1000 $(BIN)/pytest -q -n 2 tests/unit/recovery/test_trace.py tests/unit/recovery/test_hops.py
	RECON_CRASH_ROUNDS=$(ROUNDS) RECON_CRASH_VARIANT_ROUNDS=$(ROUNDS) RECON_CRASH_RANDOM=$(RANDOM_KILLS) \
	  RECON_CRASH_SEED=$(SEED) RECON_CRASH_AWAY=30 $(if $(SINKS),RECON_CRASH_SINKS=$(SINKS)) $(BIN)/pytest tests/crash -s $(PYTEST_ARGS)

differential: ## What the judge says otherwise than that of COMMIT, of the histories of tests/truth
	@$(SETUP) python
	$(BIN)/python -m scripts.differential $(COMMIT) $(HISTORIES)

record: ## What the audits of tests/cases see, on real parts, into build/recorded; half an hour
	@$(SETUP) python java databases jars
	RECON_RECORD=build/recorded $(BIN)/pytest -q -n 3 --dist loadfile tests/cases

replay: ## What the judge says otherwise of what `make record` kept; a minute, no JVM
	@$(SETUP) python
	$(BIN)/python -m scripts.recorded build/recorded

matrix: ## The tests on real parts with each Spark and Delta that recon supports, into docs/compatibility.md; an hour
	@$(SETUP) python java databases jars
	$(BIN)/python -m scripts.matrix $(LINES)

recipes: ## The examples for Airflow and Dagster, run by these tools in environments of their own
	@$(SETUP) python java jars
	$(BIN)/python -m scripts.recipes $(PYTEST_ARGS)

lint: ## ruff, mypy, the import contracts, and how complex the judge is
	@$(SETUP) python
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.complexity

docs: ## The site of docs/, with the API reference and sample reports, in build/docs/site
	@$(SETUP) python
	$(BIN)/python -m scripts.docs_site

bench: ## Measure into bench/.results.json; BENCH=name for one figure
	@$(SETUP) python java jars
	$(BIN)/python -m bench $(BENCH)

figures: ## Carry what `make bench` measured here into docs/figures.md and README.md; read the diff
	@$(SETUP) python
	$(BIN)/python -m scripts.figures

wheel: ## README's first commands in an empty folder: make try, and the wheel in an empty environment
	@$(SETUP) python
	scripts/try_wheel.sh

hashes: ## The pins of constraints.txt with the hashes of their files, in requirements-hashes.txt; read the diff
	@$(SETUP) python tools
	$(BIN)/python -m scripts.hashes

digests: ## The digests of the jars that recon fetches, in recon/spark/jars.txt, after new versions; read the diff
	@$(SETUP) python java
	$(BIN)/python -m scripts.jar_digests

sbom: ## A CycloneDX bill of materials of the Python packages and the jars, in build/sbom.json
	@$(SETUP) python tools
	.venv/tools/bin/python scripts/sbom.py

clean: ## Remove what was built, cached or left by the demo; .venv and fetched jars too
	rm -rf .venv build dist *.egg-info demo-lake recon-try target spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
