"""The dashboard and the HTTP API as a view, behind Django's own login and permissions.

    path("jobs/", include("accoda.django.urls"))

`accoda.view_jobs` lets a user look, `accoda.change_jobs` act. The service is an ASGI application; it is called on the
loop thread of `app.sync`, under WSGI as well as under ASGI. Django's token against CSRF has no place in its forms: the
service itself refuses what a page of another origin sends, by the headers in which browsers say where a request comes
from. The names by which the service may be called are those of ALLOWED_HOSTS.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from accoda.asgi import Access, mount
from accoda.asgi.mounting import Mounted
from accoda.django.project import Project, project_of
from accoda.http.security import Security
from accoda.http.security.guard import IDENTITY, STILL

VIEW, CHANGE = "accoda.view_jobs", "accoda.change_jobs"
ASK_AGAIN = 10.0
"""Seconds after which a stream asks again whether its viewer may see it."""
SERVERS_OWN = frozenset({b"connection", b"content-length", b"transfer-encoding"})
"""Headers about the connection and the length of the body. The web server says them; WSGI allows nobody else to."""
POLL = b"event: poll\ndata:\n\n"
"""Tells a live page that its stream ends here and that it is to ask again, as it does by itself after some seconds."""


@csrf_exempt
def jobs(request: HttpRequest, path: str = "", backend: str = "default") -> HttpResponseBase:
    """Answer a request below the prefix of `urls.py`."""
    access = access_of(request.user)
    if access is None:
        return _refuse(request, path)
    project = project_of(backend)
    call = Call(_mounted(project), _scope(request, path, access), request.body)
    live = isinstance(request, ASGIRequest)
    status, headers, body, streams = project.app.sync.run(call.answer(live))
    content: Any = _events(project, call, body) if streams else body
    response = StreamingHttpResponse(content, status) if streams else HttpResponse(content, status=status)
    del response.headers["content-type"]
    for name, value in headers:
        if name == b"set-cookie":
            response.cookies.load(value.decode("latin-1"))
        elif name not in SERVERS_OWN:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
    return response


def access_of(user: Any) -> Access | None:
    """What a user may do; None: not even look."""
    if not user.is_active or not (user.has_perm(VIEW) or user.has_perm(CHANGE)):
        return None
    return Access("full" if user.has_perm(CHANGE) else "read", user.get_username())


class Call:
    """One request to the service, on the loop thread."""

    def __init__(self, mounted: Mounted, scope: dict[str, Any], body: bytes) -> None:
        self._mounted = mounted
        self._scope = scope
        self._body: bytes | None = body
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def answer(self, live: bool) -> tuple[int, list[tuple[bytes, bytes]], bytes, bool]:
        """Status, headers, body; and whether more of it comes by `more`, which only a `live` caller waits for.

        Otherwise a stream ends after its first event: under WSGI each stream would hold a thread of the server. The
        page asks again after three seconds, so it is as good as live.
        """
        self._task = asyncio.create_task(self._mounted(self._scope, self._receive, self._sent.put))
        self._task.add_done_callback(self._ended)
        start = await self._sent.get()
        if start["type"] != "http.response.start":
            await self._task  # raises what went wrong
            raise RuntimeError("the service did not answer")
        streams = any(name == b"content-type" and value.startswith(b"text/event") for name, value in start["headers"])
        if streams and live:
            return start["status"], start["headers"], b"", True
        body = bytearray()
        while (part := await self.more()) is not None:
            body += part
            # A long event comes in several parts; only its last line is empty.
            if streams and b"event:" in body and body.endswith(b"\n\n"):
                body += POLL
                break
        await self.end()
        return start["status"], start["headers"], bytes(body), False

    async def more(self) -> bytes | None:
        """The next part of the body; None: there is no more."""
        message = await self._sent.get()
        if message["type"] != "http.response.body":
            return None
        if not message.get("more_body"):
            self._sent.put_nowait({"type": "ended"})
        return bytes(message.get("body", b""))

    async def end(self) -> None:
        """The client has gone, or has all that it wants."""
        self._gone.set()
        if self._task is not None:
            await self._task

    async def _receive(self) -> dict[str, Any]:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whoever waits for more must not wait for ever."""
        self._sent.put_nowait({"type": "ended"})


async def _events(project: Project, call: Call, first: bytes) -> AsyncIterator[bytes]:
    """What a stream sends, for the server's own loop: the service is on another one, so a thread waits for it."""
    run = project.app.sync.run
    # The thread makes the coroutine: a viewer who leaves before it has one would leave one that nobody awaits.
    more = sync_to_async(lambda: run(call.more()), thread_sensitive=False)
    end = sync_to_async(lambda: run(call.end()), thread_sensitive=False)
    try:
        yield first
        while (part := await more()) is not None:
            yield part
    finally:
        await end()


def _refuse(request: HttpRequest, path: str) -> HttpResponseBase:
    known = request.user.is_authenticated
    if path.startswith("api/"):
        status, detail = (403, f"needs the permission {VIEW}") if known else (401, "needs a login")
        return JsonResponse({"title": "not allowed", "status": status, "detail": detail}, status=status)
    if known:
        raise PermissionDenied
    login = redirect_to_login(request.get_full_path() if request.method == "GET" else request.path)
    if "hx-request" not in request.headers:
        return login
    # A form of a page was sent by a script, which would follow the redirect and show the login inside the page.
    return HttpResponse(status=401, headers={"hx-redirect": login.url})


def _scope(request: HttpRequest, path: str, access: Access) -> dict[str, Any]:
    prefix = request.path.removesuffix(path).removesuffix("/")
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    # Django has read the body, whatever framing it had. A development server says of no body that its length is "".
    headers = [one for one in headers if one[0] not in (b"host", *SERVERS_OWN)]
    if request.body:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": quote(request.path).encode(),
        "root_path": prefix,
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        # The name that the browser used, if a proxy hands it on and the settings say so.
        "headers": [*headers, (b"host", request.get_host().encode("latin-1"))],
        "server": (request.get_host().partition(":")[0], int(request.get_port())),
        "client": (request.META.get("REMOTE_ADDR") or "", 0),
        IDENTITY: access.identity,
        STILL: _still(request, access),
    }


def _still(request: HttpRequest, access: Access) -> Callable[[], Awaitable[bool]]:
    """Whether a viewer may go on with a stream: the session may be over by now, and permissions gone."""
    asked_at = time.monotonic()
    user, session = request.user.pk, request.session

    def ask() -> bool:
        try:
            found = get_user_model()._default_manager.filter(pk=user).first()
            return session.exists(session.session_key or "") and found is not None and access_of(found) == access
        finally:
            connections.close_all()

    async def still() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at < ASK_AGAIN:
            return True
        asked_at = time.monotonic()
        return await sync_to_async(ask, thread_sensitive=False)()

    return still


def _mounted(project: Project) -> Mounted:
    """The service of a project's part: one for the process."""
    found = _services.get(project)
    if found is None:
        found = _services[project] = mount(project.with_handlers(), auth=Security(no_auth=True))
        project.app.sync.run(_open(found))
    return found


async def _open(mounted: Mounted) -> None:
    mounted.open()


_services: WeakKeyDictionary[Project, Mounted] = WeakKeyDictionary()
