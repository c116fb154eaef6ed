"""What all tests share."""

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

LOGGER = logging.getLogger("accoda")


LONGEST = (
    "dashboard/browser/test_sqlite.py",
    "storage/test_mutants.py",
    "faults/test_network.py",
    "dashboard/browser/test_redis.py",
    "testing/test_simulation.py",
    "runtime/test_fire.py",
    "storage/test_postgres.py",
    "faults/test_failover.py",
    "storage/test_redis_cluster.py",
    "storage/test_lua_mutants.py",
    "test_chaos.py",
    "storage/test_redis_faults.py",
    "demand/test_crowd.py",
    "benchmarks/test_scale.py",
    "http/test_contract.py",
    "storage/test_sqlite_processes.py",
    "storage/test_sqlite_conformance.py",
    "test_demo.py",
    "storage/test_redis.py",
    "http/test_secrets.py",
    "storage/test_tarantool.py",
    "runtime/test_every_storage.py",
    "http/test_worker_js.py",
    "schedules/test_every_storage.py",
    "storage/test_redis_sentinel.py",
    "storage/test_clocks.py",
    "demand/test_kills.py",
    "faults/test_disk.py",
    "test_deals_day.py",
    "benchmarks/test_peers_run.py",
    "storage/test_sqlite_power_cuts.py",
    "runtime/test_keeper.py",
    "schedules/test_kills.py",
    "test_readme.py",
    "benchmarks/test_check.py",
)
"""Files that take longest, before all others: else one process has half a minute's work left at the end, and the others
have none. Those that compute and those that mostly wait take turns, so that neither is done by all at once: leases of a
second are late where every process computes, and the processors have nothing to do where every process waits."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Thousands of tests are a million objects: no later look for garbage, and tests take many, need visit them."""
    gc.collect()
    gc.freeze()


PRISTINE = (list(LOGGER.handlers), LOGGER.level, LOGGER.propagate)


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    """Commands configure the logs of the whole process: each test begins and ends as if nobody had."""
    restore_logging()
    yield
    restore_logging()


def restore_logging() -> None:
    LOGGER.handlers[:], LOGGER.propagate = PRISTINE[0], PRISTINE[2]
    LOGGER.setLevel(PRISTINE[1])
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("accoda") and isinstance(logger, logging.Logger):
            logger.disabled = False


@pytest.fixture(autouse=True)
def width_of_a_pipe() -> None:
    """Commands fold their lines where COLUMNS is set, and readline sets it behind Python's back for child processes."""
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Text that no process could send to another (lone surrogates, which hostile tests log) is made sendable."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
