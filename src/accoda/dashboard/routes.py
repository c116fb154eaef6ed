"""The tables of pages and actions, what each is given and gives back. Each module of `pages/` has its own routes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import unquote

from msgspec import Struct

from accoda.dashboard.answers import Answer
from accoda.http.security.identity import Identity

if TYPE_CHECKING:
    from accoda.app import App

MODULES = (
    "overview",
    "queue",
    "lanes",
    "jobs",
    "job",
    "bulk",
    "dead",
    "workers",
    "schedules",
    "flows",
    "budgets",
    "demands",
)


class PageCall(Struct, frozen=True, kw_only=True):
    """A request for a page. `query` and `params` are texts from the address.

    It does not say who asks: the live part of a page is rendered once for all viewers with the same rights.
    """

    app: App
    query: Mapping[str, str]
    params: Mapping[str, str]


class ActionCall(Struct, frozen=True, kw_only=True):
    """A form that was sent. Values are as they came; a form with a field twice was refused before."""

    app: App
    identity: Identity
    form: Mapping[str, str]
    params: Mapping[str, str]

    @property
    def back(self) -> str:
        """The page that the form was on, if it is one of ours; else the overview."""
        to = self.form.get("back", "")
        return to if is_local(to) else "/"


class ActionResult(Struct, frozen=True):
    """What an action did: which page to show, and a sentence about it."""

    to: str
    message: str = ""


class Elsewhere(Exception):
    """Raised by a view that has nothing to show: the page `to` is shown instead, with a sentence about it."""

    def __init__(self, to: str, message: str) -> None:
        super().__init__(message)
        self.to = to
        self.message = message


View = Callable[[PageCall], Awaitable[dict[str, Any] | Answer]]
"""What its template shows; or an answer without one, such as a file."""
Action = Callable[[ActionCall], Awaitable[ActionResult]]


def is_local(path: str) -> bool:
    r"""Whether an address is a path of this service, and cannot lead elsewhere.

    >>> [is_local(path) for path in ("/jobs?state=dead", "//evil.example", "/\\evil.example", "https://evil.example")]
    [True, False, False, False]
    """
    return path.startswith("/") and path[1:2] not in ("/", "\\") and path.isascii() and path.isprintable()


class PageRoute(Struct, frozen=True):
    """A page. `live`: its template has a block that is sent again whenever it changes. `section` is its entry in the
    navigation."""

    path: str
    view: View
    template: str
    scope: str = "read"
    section: str = ""
    live: bool = True


class ActionRoute(Struct, frozen=True):
    """What a form posted to this path does; paths begin with `/do/`."""

    path: str
    action: Action
    scope: str = "admin"


R = TypeVar("R", PageRoute, ActionRoute)


class Found(Struct, Generic[R], frozen=True):
    """A route and the values of its parameters."""

    route: R
    params: dict[str, str]


class Table(Generic[R]):
    """Finds the route of a path; of two that match, the one with fewer parameters.

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
        """By the path as the server gives it, without escapes."""
        for pattern, route in self._patterns:
            if (match := pattern.fullmatch(path)) is not None:
                return Found(route, match.groupdict())
        return None


_pages: list[PageRoute] = []
_actions: list[ActionRoute] = []


def page(path: str, template: str, section: str = "", *, live: bool = True) -> Callable[[View], View]:
    """Make a function the view of a page."""

    def add(view: View) -> View:
        _pages.append(PageRoute(path, view, template, section=section, live=live))
        return view

    return add


def action(path: str) -> Callable[[Action], Action]:
    """Make a function the action of a form."""

    def add(act: Action) -> Action:
        _actions.append(ActionRoute(path, act))
        return act

    return add


@cache
def pages() -> Table[PageRoute]:
    """Every page."""
    for name in MODULES:
        import_module(f"accoda.dashboard.pages.{name}")
    return Table(_pages)


@cache
def actions() -> Table[ActionRoute]:
    """Every action."""
    pages()
    return Table(_actions)


def split(address: str) -> tuple[str, str]:
    """Path (without escapes) and query of an address such as `/jobs?state=dead`."""
    path, _, query = address.partition("?")
    return unquote(path), query.partition("#")[0]


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{([a-z_]+)\}", path)
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts))
    )
