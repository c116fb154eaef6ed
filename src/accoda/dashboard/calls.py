"""What a page and an action are given, and what they give back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from accoda.app import App


class Viewer(Protocol):
    """Who looks."""

    @property
    def name(self) -> str: ...

    def may(self, scope: str) -> bool: ...


class PageCall(Struct, frozen=True, kw_only=True):
    """A page that somebody wants to see.

    `query` and `params` are texts from the address; `now` is this process's clock in milliseconds, for pages that have
    no better one. The live part of a page is made once for all with the same rights, so a view tells nobody's name: it
    asks `may_change`, and no more.
    """

    app: App
    who: Viewer
    path: str
    query: Mapping[str, str]
    params: Mapping[str, str]
    now: int
    read_only: bool = False

    @property
    def may_change(self) -> bool:
        """Whether buttons that change something are shown."""
        return not self.read_only and self.who.may("admin")


class ActionCall(Struct, frozen=True, kw_only=True):
    """A form that somebody sent. Values are as they came; a field that came twice is refused before."""

    app: App
    who: Viewer
    path: str
    form: Mapping[str, str]
    params: Mapping[str, str]
    now: int

    @property
    def back(self) -> str:
        """The page on which the form was, if it says so and it is one of ours; else the overview."""
        to = self.form.get("back", "")
        return to if is_local(to) else "/"


class Went(Struct, frozen=True):
    """An action went well: which page to show, and a sentence about what was done."""

    to: str
    message: str = ""


View = Callable[[PageCall], Awaitable[dict[str, Any]]]
Action = Callable[[ActionCall], Awaitable[Went]]


def is_local(path: str) -> bool:
    r"""Whether an address is a path of this service, and no way to lead somebody elsewhere.

    >>> [is_local(path) for path in ("/jobs?state=dead", "//evil.example", "/\\evil.example", "https://evil.example")]
    [True, False, False, False]
    """
    return path.startswith("/") and path[1:2] not in ("/", "\\") and path.isascii() and path.isprintable()
