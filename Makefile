# `make demo` shows it, `make test` proves it; `make help` lists the rest. Each target sets up what it needs first.
PYTHON ?= python3
VENV := .venv
SERVERS ?= servers
BIN := $(VENV)/bin
# Tests start hundreds of Python processes: each would compile every module again where Python may keep no bytecode.
CACHED := env -u PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

help:  ## this list
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*  ## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | sort | \
		awk -F'\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'

setup: $(VENV)/.ready  ## a virtual environment with everything in it

demo: setup  ## jobs flow through one SQLite file; ends by itself without a terminal
	@$(BIN)/python -m examples.demo

servers:  ## the servers that tests start privately, installed where that is possible
	@tools/install-servers.sh

test: setup $(SERVERS)  ## every test
	@# One process compiles the tests while another checks the types: else each process of the next step would do it.
	@$(CACHED) $(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 & \
		$(MAKE) --no-print-directory check; checked=$$?; wait; exit $$checked
	@# Four processes: many tests wait for a server or a lease.
	$(CACHED) $(BIN)/python -m pytest -n 4 --dist worksteal -r fEs

coverage: setup servers  ## every test, with the lines that they reach; fails below the floor in pyproject.toml
	$(CACHED) $(BIN)/python -m pytest -n 4 --dist worksteal -r fEs --cov --cov-report=term:skip-covered

# Django 6 needs Python 3.12; where $(PYTHON) is older, any other that is installed will do, those of pyenv too.
DJANGO_VENV := .venv-django
NEW_PYTHONS = $(PYTHON) python3.14 python3.13 python3.12 \
	$(shell ls -dr "$$(pyenv root 2>/dev/null)"/versions/3.1[2-9]*/bin/python 2>/dev/null)
PYTHON_DJANGO6 ?= $(shell for python in $(NEW_PYTHONS); do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$python && break; done)

$(DJANGO_VENV)/.ready: pyproject.toml
	$(PYTHON_DJANGO6) -m venv $(DJANGO_VENV)
	$(DJANGO_VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[dev]' 'django>=6.0'
	@touch $@

test-django6: $(SERVERS)  ## the tests of accoda.django on Django 6, in an environment of its own (about 4 minutes)
	@if [ -z "$(PYTHON_DJANGO6)" ]; then \
		echo "skipped: Django 6 needs Python 3.12 or newer, and none was found; name one with PYTHON_DJANGO6="; \
	else \
		$(MAKE) --no-print-directory $(DJANGO_VENV)/.ready && $(DJANGO_VENV)/bin/python -m django --version && \
		$(CACHED) $(DJANGO_VENV)/bin/python -m pytest tests/django -r fEs; \
	fi

check: setup  ## types and style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: setup  ## a million hostile inputs for every decoder (about 2 minutes)
	$(BIN)/python -m proof.fuzz --decodes 1000000

bench: setup servers  ## rates beside the bare engines, into benchmarks/results/ (about 20 minutes)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.postgres_rot
	$(BIN)/python -m benchmarks.demand

bench-check: setup servers  ## has it become slower than the committed figures say? exit 1 beyond 20 % (about 4 minutes)
	$(BIN)/python -m benchmarks.check $(if $(SAVE),--save)

power-cuts: setup  ## cut the power of SQLite stores, CUTS=2000 times in each mode (about a minute)
	$(BIN)/python -m proof.powercut --cuts $(or $(CUTS),2000)

bench-peers: setup servers  ## beside other queues, each in an environment of its own (about 80 minutes): ARGS="--quick"
	$(BIN)/python -m benchmarks.peers $(ARGS)
	@# Its storages, peers and measures are others: only a run that chooses nothing of them is also one of mixed work.
	$(if $(filter-out --quick,$(ARGS)),,$(BIN)/python -m benchmarks.mixed $(ARGS))

bench-flows: setup servers  ## fans and joins beside other queues, also under kills, and 10,000 flows (about 12 minutes): ARGS="--quick"
	$(BIN)/python -m benchmarks.flows $(ARGS)

bench-lanes: setup servers  ## lanes: rates, turns and limits, beside queues that limit by key (about 10 minutes): ARGS="--quick"
	$(BIN)/python -m benchmarks.lanes $(ARGS)

bench-contract: setup  ## records of contracts beside pydantic and msgspec by hand (seconds)
	@$(BIN)/python -m benchmarks.contract

bench-demand: setup servers  ## requests that share a fetch, beside plain enqueues; 100,000 on one key (about 2 minutes)
	$(BIN)/python -m benchmarks.demand

bench-http: setup  ## the HTTP API beside a bare Starlette endpoint in the same run (about a minute)
	$(BIN)/python -m benchmarks.http

bench-transactions: setup servers  ## a job in a transaction beside a row of one's own; Django's tasks (about 2 minutes): ARGS="--quick"
	$(BIN)/python -m benchmarks.transactions $(ARGS)

bench-dashboard: setup servers  ## every page and `why` with a million jobs, and 50 open dashboards (about 5 minutes)
	$(BIN)/python -m benchmarks.dashboard

bench-scale: setup servers  ## ten million jobs, a thousand queues, 1 to 8 processes, a Cluster, and the model (about 25 minutes)
	$(BIN)/python -m benchmarks.scale

screenshots: setup  ## every page of the dashboard, wide and narrow, light and dark, into docs/screenshots/ (about a minute)
	$(BIN)/python -m tools.screenshots

bench-why: setup  ## how good the estimates of `why` are, in mixed queues with real workers (about 2 minutes)
	$(BIN)/python -m benchmarks.why

chaos-schedules: setup servers  ## TICKS=200 of a one-second schedule, its schedulers killed again and again, STORAGE=sqlite
	$(BIN)/python -m proof.chaos.schedules --ticks $(or $(TICKS),200) --every 1 \
		--storage $(if $(filter command environment,$(origin STORAGE)),$(STORAGE),sqlite)

contract-http: setup  ## schemathesis over every operation of the HTTP API, in memory and on SQLite (about 10 minutes)
	$(BIN)/python tests/http/contract.py --examples $(or $(EXAMPLES),100)
	$(BIN)/python tests/http/contract.py --examples $(or $(EXAMPLES),100) --store sqlite

fire-peers: setup servers  ## ten kills in 2,000 jobs, for Accoda and for others (about 6 minutes)
	$(BIN)/python -m benchmarks.peers.fire

STORAGE ?= redis
MINUTES ?= 5

chaos-demand: setup servers  ## a crowd before one key, its worker killed KILLS=20 times, on every storage (about 10 minutes)
	$(BIN)/python -m proof.chaos.demand --kills $(or $(KILLS),20)

chaos-transactions: setup servers  ## callers killed between write and commit, relays in their step, KILLS=20 each (about 2 minutes)
	$(BIN)/python -m proof.chaos.transactions --kills $(or $(KILLS),20)

deals: setup  ## the simulated day and hour of the deals example, into examples/deals/results/ (about a minute)
	$(BIN)/python -m examples.deals.day
	$(BIN)/python -m examples.deals.hour

chaos: setup servers  ## real processes under fire, then a verdict: STORAGE=redis MINUTES=5, and SEED and FAULTS
	$(BIN)/python -m proof.chaos --storage $(STORAGE) --minutes $(MINUTES) \
		$(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

OPERATIONS ?= 1000000
SEEDS ?= 0-
# Only if it was asked for: its default above is for chaos.
LONG := $(filter command environment,$(origin MINUTES))

simulate: setup  ## all on a virtual clock, faults from seeds: OPERATIONS=1000000 or MINUTES=60, and SEEDS=0-99
	$(BIN)/python -m proof.simulation --seeds $(SEEDS) \
		$(if $(LONG),--minutes $(MINUTES),--operations $(OPERATIONS))

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(DJANGO_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
