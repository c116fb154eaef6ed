# `make demo` shows it, `make test` proves it. Both set up what they need first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup servers demo test check bench bench-peers clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

setup: $(VENV)/.ready  ## a virtual environment with everything in it

demo: setup  ## jobs flow through one SQLite file; ends by itself without a terminal
	@$(BIN)/python -m accoda.demo

servers:  ## the servers that tests start privately, installed where that is possible
	@tools/install-servers.sh

test: setup servers check  ## every test
	$(BIN)/python -m pytest

check: setup  ## types and style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup servers  ## rates beside the bare engines, into benchmarks/results/ (about 15 minutes)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.postgres_rot

bench-peers: setup servers  ## beside other queues for Python, each in an environment of its own (about 8 minutes)
	$(BIN)/python -m benchmarks.peers

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
