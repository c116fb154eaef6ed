"""The guard: an ASGI wrapper that stands before the router. It decides in this order, the cheapest first:

    path and method → Host → Origin → preflight → token → rate → kind and length of the body → body → the service

What is refused early has cost little: nothing of a body is read before its sender is known.

An application that the service is mounted in may have decided who the caller is (`accoda.identity` in the scope). Then
Host and token are its business, and the rest is checked all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from accoda.errors import AccodaError
from accoda.http.prefix import under_prefix
from accoda.http.problems import ProblemError, render
from accoda.http.security import refusals
from accoda.http.security.answers import Header, with_defaults
from accoda.http.security.bodies import Bodies, ClientGone, Message, Receive, is_json, linger, read_length
from accoda.http.security.connections import OUTPUT
from accoda.http.security.hosts import Hosts
from accoda.http.security.identity import ANONYMOUS, LOCAL, Identity
from accoda.http.security.origins import SAFE, Origins, is_own_page
from accoda.http.security.pages import FORM, LARGEST, LOGIN, LOGOUT, STATIC, is_page, takes_form, token_of, wants_json
from accoda.http.security.paths import problem_of_path
from accoda.http.security.policy import Security
from accoda.http.security.rates import Rates, address_key
from accoda.http.security.token_cache import TokenCache
from accoda.runtime.logs.text import one_line
from accoda.storage.common.reconnecting import limited_patience

if TYPE_CHECKING:
    from accoda.app import App

log = logging.getLogger("accoda.http")

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Headers = dict[bytes, bytes]
AsPage = Callable[[Scope, ProblemError], tuple[int, list[Header], bytes]]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
ONCE = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"transfer-encoding",
        b"sec-fetch-site",
        b"access-control-request-method",
    }
)
"""The headers that are looked at. Each may come once: of two, another part of the chain might see the other one."""
SMALL = 64 * 1024
"""A body that is refused unread: up to this size it is thrown away and the connection goes on, beyond it is closed."""
FAILURES, FAILURES_AT_ONCE = 5.0, 20.0
"""Tokens that are not valid, a second and in a burst, from one address, before the answer is 429."""
PLAIN_PATHS = 1000
LOOK_UP_FOR = 2.0
"""Seconds that a request waits for the tokens where the store is away or hangs."""
OPEN_PAGES = (LOGIN, LOGOUT, STATIC)
IDENTITY, STILL = "accoda.identity", "accoda.still"
"""What an application around the service may say of a request in its scope: who sent it, as an `Identity`, and an async
function without arguments that tells whether a stream may go on."""
HEALTH = "/health/"
"""Answers while the store does not, so it needs no token."""


class Guarded(Protocol):
    """An ASGI application that serves an App."""

    app: App

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Guard:
    """Wraps the service; see the top of this file. For one event loop, as the app's connection is."""

    def __init__(
        self, service: Guarded, security: Security, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.inner = service
        self._security = security
        self._limits = security.limits
        self._monotonic = monotonic
        self._far = security.needs_token(False)
        self._read_only = security.read_only
        self.as_page: AsPage | None = None
        """How a refusal is rendered for the dashboard; None: as for every other path."""
        self._plain: set[bytes] = set()
        self._hosts = Hosts(security.host, security.allow_hosts)
        self._origins = Origins(security.allow_origins)
        self._rates = Rates(security.rate, security.full_burst)
        self._failures = Rates(FAILURES, FAILURES_AT_ONCE)
        self._bodies = Bodies(security.limits)
        self.tokens = TokenCache(service.app.storage, service.app.connections.clock, monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        if scope.get("root_path"):
            await under_prefix(self, scope, receive, send)
            return
        headers: Headers = {}
        # One function for all of it, though it has two parts: each further coroutine on the way of a request costs a
        # third of a microsecond.
        try:
            try:
                asked = self._admit(scope, headers)
                if asked is not None:
                    await _answer(send, 204, with_defaults(asked))
                    return
                now = self._monotonic()
                if not self.tokens.is_fresh(now) and IDENTITY not in scope:
                    await self._look_up(scope, headers)
                scope[IDENTITY] = identity = self._identify(scope, headers, now)
                if b"content-length" in headers or b"transfer-encoding" in headers:
                    self._check_body(scope, identity, headers)
                    scope["accoda.body"] = body = await self._bodies.read(receive)
                    receive = handed_on(body, receive)
            except ProblemError as refusal:
                await self._refuse(scope, headers, receive, send, refusal)
                return
            except ClientGone:
                return
            await self.inner(scope, receive, self._secured(headers, send))
        except asyncio.CancelledError:
            # The server was told to stop and waits no longer. It would say "500 Internal Server Error".
            with contextlib.suppress(RuntimeError):  # unless an answer has begun
                status, answer, body = render(refusals.stopped())
                await _answer(send, status, [*with_defaults(answer), (b"connection", b"close")], body)
            raise

    def _admit(self, scope: Scope, headers: Headers) -> tuple[Header, ...] | None:
        """All checks that need no identity; gives the answer to a preflight, if it is one."""
        for name, value in scope["headers"]:
            if name in ONCE:
                if name in headers:
                    raise _twice(name)
                headers[name] = value
        if scope["method"] not in METHODS:
            raise refusals.unknown_method(scope["method"])
        if self._read_only and scope["method"] not in SAFE and scope["path"] not in (LOGIN, LOGOUT):
            raise refusals.read_only()
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        if path not in self._plain:
            self._check_path(path)
        if len(scope["query_string"]) > self._limits.query:
            raise refusals.bad_path(f"its query is longer than {self._limits.query:,} bytes")
        server = scope.get("server")
        if IDENTITY not in scope and (
            refusal := self._hosts.check(headers.get(b"host"), server[0] if server else None)
        ):
            raise refusal
        if b"origin" in headers or b"sec-fetch-site" in headers:
            return self._check_origin(scope["method"], headers)
        return None

    def _secured(self, headers: Headers, send: Send) -> Send:
        """`send` with the headers that every answer has."""
        extra = self._origins.headers(headers.get(b"origin"))

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_defaults(message.get("headers", ()), extra)
            elif len(message.get("body", b"")) > OUTPUT:
                message = await _all_but_the_last(message, send)
            await send(message)

        return secured

    def _check_path(self, path: bytes) -> None:
        if (why := problem_of_path(path, self._limits.path)) is not None:
            raise refusals.bad_path(why)
        if len(self._plain) < PLAIN_PATHS:  # those of operations come first, and often; a bound for all that have ids
            self._plain.add(path)

    def _check_origin(self, method: str, headers: Headers) -> tuple[Header, ...] | None:
        if (refusal := self._origins.check(method, headers)) is not None:
            raise refusal
        asked = self._origins.preflight(method, headers)
        if isinstance(asked, ProblemError):
            raise asked
        return asked

    async def _look_up(self, scope: Scope, headers: Headers) -> None:
        """Load the tokens, unless this request needs none."""
        if self._security.no_auth or (b"authorization" not in headers and scope["path"].startswith(HEALTH)):
            return
        try:
            with limited_patience(LOOK_UP_FOR):
                # Patience counts from a failure on. A store that hangs does not fail: its driver waits for it.
                async with asyncio.timeout(LOOK_UP_FOR):
                    await self.tokens.refresh()
        except (AccodaError, TimeoutError) as error:
            raise refusals.tokens_unknown() from error

    def _identify(self, scope: Scope, headers: Headers, now: float) -> Identity:
        """The caller, counted against its rate."""
        shown = headers.get(b"authorization")
        if IDENTITY in scope:
            identity: Identity = scope[IDENTITY]
        elif self._security.no_auth:
            identity = LOCAL
        elif shown is None:
            needed = self._far or not self.tokens.is_empty or scope["path"].startswith(HEALTH)
            identity = self._by_cookie(scope, now) if needed else LOCAL
        else:
            identity = self._known(scope, shown[7:] if shown[:7].lower() == b"bearer " else b"", now)
        wait = self._rates.wait(identity.id or _address(scope), now)
        if wait:
            raise refusals.too_many(wait)
        path = scope["path"]
        if identity.queues is not None and is_page(scope["method"], path) and not path.startswith(OPEN_PAGES):
            raise refusals.pages_show_all(identity.queues)
        return identity

    def _by_cookie(self, scope: Scope, now: float) -> Identity:
        """The dashboard's user: a browser sends its cookie with every request, so no other path looks at it, and
        one that is not valid (any more) is as good as none: the page leads to the login."""
        path = scope["path"]
        is_shown = is_page(scope["method"], path) and not path.startswith(STATIC)
        text = token_of(scope["headers"]) if is_shown else None
        if text is None:
            return ANONYMOUS
        try:
            return self._known(scope, text, now)
        except ProblemError as refusal:
            if refusal.problem.status == 401:
                return ANONYMOUS
            raise

    def enter(self, scope: Scope, token: bytes) -> Identity:
        """The identity behind a token that was typed into a form; an invalid one is refused and counted."""
        identity = self._known(scope, token, self._monotonic())
        if identity.queues is not None:
            raise refusals.pages_show_all(identity.queues)
        return identity

    def needs_token(self) -> bool:
        """Whether a request without a token is anonymous."""
        return not self._security.no_auth and (self._far or not self.tokens.is_empty)

    async def still(self, scope: Scope) -> bool:
        """Whether a request that began a while ago may go on: its token may have been revoked.

        An application that the service is mounted in is asked by `accoda.still` in the scope.
        """
        if STILL in scope:
            return bool(await scope[STILL]())
        if not self.tokens.is_fresh(self._monotonic()):
            try:
                await self._look_up(scope, {})
            except ProblemError:
                return False  # tokens that are older than a few seconds are not trusted
        identity: Identity = scope[IDENTITY]
        if identity.id is None:
            return not self.needs_token()
        shown = next((value[7:] for name, value in scope["headers"] if name == b"authorization"), None)
        return self.tokens.recognise(shown or token_of(scope["headers"]) or b"") == identity

    def _known(self, scope: Scope, text: bytes, now: float) -> Identity:
        # The token is looked at first and failures are counted after it: so a flood of wrong tokens from an address
        # never keeps out a valid one from the same address. The look costs a hash, and no call to the store.
        identity = self.tokens.recognise(text) if text else None
        if identity is None:
            wait = self._failures.wait(_address(scope), now)
            raise refusals.too_many_failures(wait) if wait else refusals.bad_token()
        return identity

    def _check_body(self, scope: Scope, identity: Identity, headers: Headers) -> None:
        """Refuse a body that may not be read, before it is."""
        length = None
        if b"content-length" in headers:
            length = read_length(headers[b"content-length"])
            if length > self._limits.body:
                raise refusals.too_large(self._limits.body)
        if length != 0 and (identity is ANONYMOUS or not is_json(headers.get(b"content-type", b""))):
            self._check_form(scope, identity, headers, length)
        coding = headers.get(b"content-encoding", b"identity")
        if coding.lower() != b"identity":
            raise refusals.encoded_body(coding.decode("latin-1"))

    def _check_form(self, scope: Scope, identity: Identity, headers: Headers, length: int | None) -> None:
        """Refuse what is neither JSON from a known caller nor a form of the dashboard's own pages."""
        path, kind = scope["path"], headers.get(b"content-type", b"")
        if identity is ANONYMOUS and path != LOGIN:  # what is open to everyone takes no body
            raise refusals.no_token()
        if not takes_form(path) or kind.partition(b";")[0].strip().lower() != FORM:
            raise refusals.not_json(kind.decode("latin-1"))
        if not is_own_page(headers):
            raise refusals.foreign_form()
        if length is None or length > LARGEST:
            raise refusals.too_large(LARGEST)

    async def _refuse(
        self, scope: Scope, headers: Headers, receive: Receive, send: Send, refusal: ProblemError
    ) -> None:
        is_shown = is_page(scope["method"], scope["path"]) and not wants_json(scope["headers"])
        if self.as_page is not None and is_shown:
            status, answer, body = self.as_page(scope, refusal)
        else:
            status, answer, body = render(refusal)
        # Never the Authorization header, and nothing of the body: what a client keeps secret stays out of the log.
        log.debug(
            "refused with %d: %s %s: %s", status, scope["method"], one_line(scope["path"][:200]), one_line(str(refusal))
        )
        answer = with_defaults(answer, self._origins.headers(headers.get(b"origin")))
        if not _is_long(scope, headers):
            await _answer(send, status, answer, body)
            return
        answer.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": answer})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await linger(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # nothing here speaks it
            await send({"type": "websocket.close", "code": 1008})
            return

        async def closing() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                # Before the service closes its store: what is still written here would open it again.
                await self.tokens.close()
            return message

        await self.inner(scope, closing, send)


async def _all_but_the_last(message: Message, send: Send) -> Message:
    """Send a large body in pieces, and give the last one. Before each piece uvicorn waits until the client has read
    enough; a body that is sent whole would be copied into the connection's buffer whole."""
    body: bytes = message["body"]
    last = (len(body) - 1) // OUTPUT * OUTPUT
    for at in range(0, last, OUTPUT):
        await send({"type": "http.response.body", "body": body[at : at + OUTPUT], "more_body": True})
    return {**message, "body": body[last:]}


def handed_on(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read as one message, and after it whatever comes: that the client has gone."""
    first: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replay() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        message, first = first, None
        return message

    return replay


def _is_long(scope: Scope, headers: Headers) -> bool:
    """Whether more of the request may come than is worth reading only to keep the connection."""
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" in headers or not length.isdigit() or int(length[:18]) > SMALL


def _twice(name: bytes) -> ProblemError:
    if name == b"host":
        return refusals.bad_host("a request must have one, not two")
    return ProblemError("malformed", f"the header {name.decode()} came twice; send it once")


async def _answer(send: Send, status: int, headers: Any, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return _key(client[0]) if client else "local"


_key = lru_cache(4096)(address_key)
