# `make demo` shows it, `make test` proves it. Both set up what they need first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests start hundreds of Python processes: each would compile every module again where Python may keep no bytecode.
CACHED := env -u PYTHONDONTWRITEBYTECODE

.PHONY: setup servers demo test check fuzz simulate power-cuts chaos chaos-demand deals bench bench-check bench-peers bench-contract bench-demand bench-http bench-why bench-dashboard bench-scale screenshots chaos-schedules contract-http fire-peers clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

setup: $(VENV)/.ready  ## a virtual environment with everything in it

demo: setup  ## jobs flow through one SQLite file; ends by itself without a terminal
	@$(BIN)/python -m accoda.demo

servers:  ## the servers that tests start privately, installed where that is possible
	@tools/install-servers.sh

test: setup servers  ## every test
	@# One process compiles the tests while another checks the types: else each process of the next step would do it.
	@$(CACHED) $(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 & \
		$(MAKE) --no-print-directory check; checked=$$?; wait; exit $$checked
	@# Four processes: many tests wait. In the order of tests/conftest.py. One that fails is run once more and named at
	@# the end: on a busy machine a server, a browser or a lease of a second may be late.
	$(CACHED) $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --reruns 1 -r fEsR

check: setup  ## types and style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: setup  ## a million hostile inputs for every decoder (about 2 minutes)
	$(BIN)/python -m accoda.testing.fuzz --decodes 1000000

bench: setup servers  ## rates beside the bare engines, into benchmarks/results/ (about 20 minutes)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.postgres_rot
	$(BIN)/python -m benchmarks.demand

bench-check: setup servers  ## has it become slower than the committed figures say? exit 1 beyond 20 % (about 4 minutes)
	$(BIN)/python -m benchmarks.check $(if $(SAVE),--save)

power-cuts: setup  ## cut the power of SQLite stores, CUTS=2000 times in each mode (about a minute)
	$(BIN)/python -m accoda.testing.powercut --cuts $(or $(CUTS),2000)

bench-peers: setup servers  ## beside other queues, each in an environment of its own (about 45 minutes): ARGS="--quick"
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-contract: setup  ## records of contracts beside pydantic and msgspec by hand (seconds)
	@$(BIN)/python -m benchmarks.contract

bench-demand: setup servers  ## requests that share a fetch, beside plain enqueues; 100,000 on one key (about 2 minutes)
	$(BIN)/python -m benchmarks.demand

bench-http: setup  ## the HTTP API beside a bare Starlette endpoint in the same run (about a minute)
	$(BIN)/python -m benchmarks.http

bench-dashboard: setup servers  ## every page and `why` with a million jobs, and 50 open dashboards (about 5 minutes)
	$(BIN)/python -m benchmarks.dashboard

bench-scale: setup servers  ## ten million jobs, a thousand queues, 1 to 8 processes, a Cluster, and the model (about 25 minutes)
	$(BIN)/python -m benchmarks.scale

screenshots: setup  ## every page of the dashboard, wide and narrow, light and dark, into docs/screenshots/ (about a minute)
	$(BIN)/python tools/screenshots.py

bench-why: setup  ## how good the estimates of `why` are, in mixed queues with real workers (about 2 minutes)
	$(BIN)/python -m benchmarks.why

chaos-schedules: setup servers  ## TICKS=200 of a one-second schedule, its schedulers killed again and again, STORAGE=sqlite
	$(BIN)/python -m chaos.schedules --ticks $(or $(TICKS),200) --every 1 \
		--storage $(if $(filter command environment,$(origin STORAGE)),$(STORAGE),sqlite)

contract-http: setup  ## schemathesis over every operation of the HTTP API, in memory and on SQLite (about 10 minutes)
	$(BIN)/python tests/http/contract.py --examples $(or $(EXAMPLES),100)
	$(BIN)/python tests/http/contract.py --examples $(or $(EXAMPLES),100) --store sqlite

fire-peers: setup servers  ## ten kills in 2,000 jobs, for Accoda and for others (about 6 minutes)
	$(BIN)/python -m benchmarks.peers.fire

STORAGE ?= redis
MINUTES ?= 5

chaos-demand: setup servers  ## a crowd before one key, its worker killed KILLS=20 times, on every storage (about 10 minutes)
	$(BIN)/python -m chaos.demand --kills $(or $(KILLS),20)

deals: setup  ## the simulated day and hour of the deals example, into examples/deals/results/ (about a minute)
	$(BIN)/python -m examples.deals.day
	$(BIN)/python -m examples.deals.hour

chaos: setup servers  ## real processes under fire, then a verdict: STORAGE=redis MINUTES=5, and SEED, FAULTS, BESIDE
	$(BIN)/python -m chaos --storage $(STORAGE) --minutes $(MINUTES) \
		$(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(BESIDE),--beside $(BESIDE))

OPERATIONS ?= 1000000
SEEDS ?= 0-
# Only if it was asked for: its default above is for chaos.
LONG := $(filter command environment,$(origin MINUTES))

simulate: setup  ## all on a virtual clock, faults from seeds: OPERATIONS=1000000 or MINUTES=60, and SEEDS=0-99
	$(BIN)/python -m accoda.testing.simulation --seeds $(SEEDS) \
		$(if $(LONG),--minutes $(MINUTES),--operations $(OPERATIONS))

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
