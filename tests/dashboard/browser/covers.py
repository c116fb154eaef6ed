"""Which pages and actions a test uses: declared beside it, and checked when it has run.

Several processes may share the tests of a class, so none of them knows all that the browsers did. What each test
declares is known everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from browser_world import World

from accoda.dashboard.routes import actions, pages

Test = TypeVar("Test", bound=Callable[..., None])


def covers(*routes: str) -> Callable[[Test], Test]:
    """The browser opens these pages, and does these actions, in the test."""

    def declare(test: Test) -> Test:
        test.covers = routes  # type: ignore[attr-defined]
        return test

    return declare


def covered_by(test: Any) -> set[str]:
    """What a test declares."""
    return set(getattr(test, "covers", ()))


def used_in(world: World) -> set[str]:
    """The routes that browsers used since the world's lists were cleared."""
    found = [*map(pages().find, world.visited), *map(actions().find, world.driven)]
    return {each.route.path for each in found if each is not None}
