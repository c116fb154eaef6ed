"""The tables of pages and actions. Each module that is named here brings `PAGES` and `ACTIONS`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Generic, TypeVar
from urllib.parse import unquote

from msgspec import Struct

from accoda.dashboard.calls import Action, View

MODULES = (
    "accoda.dashboard.pages.overview",
    "accoda.dashboard.pages.queue",
    "accoda.dashboard.pages.jobs",
    "accoda.dashboard.pages.job",
    "accoda.dashboard.pages.bulk",
    "accoda.dashboard.pages.dead",
    "accoda.dashboard.pages.workers",
    "accoda.dashboard.pages.schedules",
    "accoda.dashboard.pages.budgets",
    "accoda.dashboard.pages.demands",
)


class PageRoute(Struct, frozen=True):
    """A page: `template` is its whole, `{name}_live.html` beside it the part that lives, where there is one.

    `section` is the entry of the navigation that it belongs to.
    """

    path: str
    view: View
    template: str
    scope: str = "read"
    section: str = ""

    @property
    def live(self) -> str:
        """The template of the part that lives."""
        return self.template.removesuffix(".html") + "_live.html"


class ActionRoute(Struct, frozen=True):
    """What a form does that is posted to this path; paths begin with `/do/`."""

    path: str
    action: Action
    scope: str = "admin"


R = TypeVar("R", PageRoute, ActionRoute)


class Found(Struct, Generic[R], frozen=True):
    """A route and what stands in the path at its places."""

    route: R
    params: dict[str, str]


class Table(Generic[R]):
    """Finds the route of a path; of two that fit, the one with fewer parameters.

    >>> async def view(call): ...
    >>> table = Table([PageRoute("/jobs/{id}", view, "job.html"), PageRoute("/jobs/new", view, "new.html")])
    >>> table.find("/jobs/17").params, table.find("/jobs/new").route.template, table.find("/jobs/1/2")
    ({'id': '17'}, 'new.html', None)
    """

    def __init__(self, routes: Iterable[R]) -> None:
        by_width = sorted(routes, key=lambda route: route.path.count("{"))
        self.routes: Sequence[R] = by_width
        self._patterns: list[tuple[re.Pattern[str], R]] = [(_pattern(route.path), route) for route in by_width]

    def find(self, path: str) -> Found[R] | None:
        """By the path as the server gives it: escapes are read already."""
        for pattern, route in self._patterns:
            if (match := pattern.fullmatch(path)) is not None:
                return Found(route, match.groupdict())
        return None


@cache
def pages() -> Table[PageRoute]:
    """Every page."""
    return Table(route for name in MODULES for route in import_module(name).PAGES)


@cache
def actions() -> Table[ActionRoute]:
    """Every action."""
    return Table(route for name in MODULES for route in import_module(name).ACTIONS)


def split(address: str) -> tuple[str, str]:
    """Path (with its escapes read) and query of an address such as `/jobs?state=dead`."""
    path, _, query = address.partition("?")
    return unquote(path), query.partition("#")[0]


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{([a-z_]+)\}", path)
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts))
    )
