"""One world for each storage, and windows that must stay without a complaint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).parent))

from browser_visit import Visit, Windows  # only once they can be found
from browser_world import World
from covers import covered_by, used_in


@pytest.fixture(scope="class")
def world(
    browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Of the storage that the class of the tests names."""
    made = World(request.cls.storage, tmp_path_factory.mktemp("world"))
    yield made
    made.close()


@pytest.fixture(scope="class")
def windows(browser: Browser, world: World) -> Iterator[Windows]:
    made = Windows(browser, world)
    yield made
    made.close()


@pytest.fixture
def open_window(windows: Windows, world: World, request: pytest.FixtureRequest) -> Iterator[Callable[..., Visit]]:
    """Opens windows; when the test ends, none of them may have a complaint, and they did what the test covers."""
    opened: list[Visit] = []
    world.visited.clear()
    world.driven.clear()

    def open_one(token: str | None = "admin", address: str | None = None) -> Visit:
        opened.append(windows.open(token, address))
        return opened[-1]

    yield open_one
    try:
        for visit in opened:
            visit.check()
        assert covered_by(request.function) - used_in(world) == set()
    except BaseException:
        for visit in opened:
            visit.dispose()
        raise
    windows.keep(opened)


@pytest.fixture
def visit(open_window: Callable[..., Visit]) -> Visit:
    """A window with all rights."""
    return open_window()
