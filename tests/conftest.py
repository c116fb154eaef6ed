"""What all tests share."""

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright
from proof.servers.process import find_program
from proof.servers.pytest import KINDS, need, store_of

LOGGER = logging.getLogger("accoda")
ROOT = str(Path(__file__).parents[1])

# `proof`, `examples` and `benchmarks` stand beside the package: the processes that tests start must find them too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))


def pytest_collection_finish() -> None:
    """Thousands of tests are a million objects: no later look for garbage, and tests take many, need visit them."""
    gc.collect()
    gc.freeze()


PRISTINE_ROOT = logging.root.level
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
    logging.captureWarnings(False)
    logging.root.handlers[:] = [one for one in logging.root.handlers if not type(one).__module__.startswith("accoda")]
    logging.root.setLevel(PRISTINE_ROOT)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("accoda") and isinstance(logger, logging.Logger):
            logger.disabled = False
            if logger is not LOGGER:
                logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def width_of_a_pipe() -> None:
    """Commands fold their lines where COLUMNS is set, and readline sets it behind Python's back for child processes."""
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")


@pytest.fixture(scope="module", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store of each kind, for all tests of a module: they use queues of their own."""
    with store_of(request.param, tmp_path_factory.mktemp("store")) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Without it the tests are skipped on a laptop and fail in CI.

    It lives no longer than a module: Playwright's synchronous API keeps an event loop in this thread, and other tests
    start loops of their own.
    """
    program = need(lambda: find_program("chromium"))
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Text that no process could send to another (lone surrogates, which hostile tests log) is made sendable."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
