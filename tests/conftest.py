"""What all tests share."""

import logging
import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest

LOGGER = logging.getLogger("accoda")


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    """Commands configure the logs of the whole process: afterwards they are as they were."""
    before = (list(LOGGER.handlers), LOGGER.level, LOGGER.propagate)
    yield
    LOGGER.handlers[:], LOGGER.propagate = before[0], before[2]
    LOGGER.setLevel(before[1])


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
