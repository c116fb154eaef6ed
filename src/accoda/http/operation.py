"""One endpoint as a record. The table of them gives the routes, the checks and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from msgspec import Struct, field

from accoda.http.call import Call

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Scope = Literal["read", "enqueue", "work", "admin"]
QueueRule = Literal["path", "job", "own", "all"]
Handler = Callable[[Call[Any, Any, Any]], Awaitable[Any]]
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])

JSON = "application/json"


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Header(Struct, frozen=True):
    """A header that a request may have, or an answer has."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    example: Any = None


class Link(Struct, frozen=True):
    """What may be asked next: an operation's name, and where in this answer its parameters are found."""

    operation: str
    parameters: dict[str, str]


class Reply(Struct, frozen=True, kw_only=True):
    """One way in which an operation answers when nothing is wrong. `type` None: without a body."""

    description: str
    type: Any = None
    content_type: str = JSON
    example: Any = None
    headers: Sequence[Header] = ()
    links: Sequence[Link] = ()


class Operation(Struct, frozen=True, kw_only=True):
    """What a method of a path does.

    `path_type`, `query` and `request` are structs; the first two are made of texts. `replies` by status: the first is
    the one that a handler's plain value gets. `errors` are the kinds of problem (`accoda.http.problems.KINDS`) that are
    particular to it: those that any operation may have (401, 403, 500, 503, a bad body) are known from the rest.
    `rules` are keywords of JSON Schema that hold for the request as a whole, which no type can say. `alias` is a second
    path of it, which its description names. `hidden`: not in the OpenAPI document. `body_optional`: an empty body
    stands for `{}`. `scope` None: open to every caller, with or without a token. `queues` says what becomes of a token
    that is limited to queues:

    - path: the `name` in the path is a queue, which must be one of the token's
    - job: the `id` in the path is a job, which must be in one of them
    - own: the handler refuses what names another queue, and leaves out what is of another
    - all: it is about the whole store, so such a token is refused; so is one by an operation that says nothing
    """

    method: Method
    path: str
    handler: Handler
    summary: str
    replies: dict[int, Reply]
    group: str
    scope: Scope | None = "read"
    queues: QueueRule = "all"
    description: str = ""
    path_type: type[Struct] = Nothing
    query: type[Struct] = Nothing
    request: Any = None
    body_optional: bool = False
    example: Any = None
    path_example: dict[str, Any] = {}
    query_example: dict[str, Any] = {}
    headers: Sequence[Header] = ()
    errors: Sequence[str] = ()
    rules: dict[str, Any] = {}
    alias: str | None = None
    hidden: bool = False

    @property
    def status(self) -> int:
        return next(iter(self.replies))

    @property
    def name(self) -> str:
        """Unique in the table: the handler's own name with its group's, in camelCase."""
        first, *rest = self.handler.__name__.split("_")
        return first + "".join(word.capitalize() for word in rest)


TABLE: list[Operation] = []
"""Every operation whose module was imported, in the order of their definitions."""


def operation(method: Method, path: str, group: str, summary: str, **more: Any) -> Callable[[H], H]:
    """Make a function the handler of a method and path: `@operation("GET", "/api/v1/jobs/{id}", "Jobs", "One job", …)`.

    What the request, the query and the path are made of is read from its argument: `Call[Request, Query, Path]`.
    """

    def add(handler: H) -> H:
        request, query, path_type = get_args(get_type_hints(handler, include_extras=True)["call"])
        given = None if request in (type(None), Any) else request
        query, path_type = (Nothing if each is Any else each for each in (query, path_type))
        about: dict[str, Any] = {"method": method, "path": path, "group": group, "summary": summary, **more}
        TABLE.append(Operation(handler=handler, request=given, query=query, path_type=path_type, **about))
        return handler

    return add
