"""Under which path of another application the service is mounted: `/ops/jobs`, or nothing.

Inside the service every path begins at its own root, as if it were not mounted at all. A request loses the prefix on
the way in (`under_prefix`), and whatever leads a client back here gets it on the way out (`public_path`).

The prefix is a context variable, and not read from the scope, because links are made far from the request: in
templates, in problem documents, in cookies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

Scope = MutableMapping[str, Any]

prefix: ContextVar[str] = ContextVar("accoda_prefix", default="")
"""As it stands in an address, with escapes, and without a slash at its end."""


def public_path(path: str) -> str:
    """A path of the service as its clients have to write it."""
    return prefix.get() + path


async def under_prefix(service: Callable[..., Awaitable[None]], scope: Scope, receive: Any, send: Any) -> None:
    """Let a service answer a request whose ASGI `root_path` says that it is mounted."""
    root = quote(scope["root_path"].strip("/"))
    # One slash at the beginning, whatever was matched: after two, a browser reads the name of a host.
    before = prefix.set(f"/{root}" if root else "")
    try:
        # Without its root_path: a router inside would take it off the path once more, of `/jobs/jobs/17` for example.
        await service({**scope, "path": _inner_path(scope), "root_path": ""}, receive, send)
    finally:
        prefix.reset(before)


def _inner_path(scope: Scope) -> str:
    """The path from the service's own root on.

    >>> [_inner_path({"path": path, "root_path": "/ops/jobs"}) for path in ("/ops/jobs/dead", "/ops/jobs")]
    ['/dead', '/']

    A proxy may have cut the first part of the prefix off the path, which the server still says in `root_path`:

    >>> _inner_path({"path": "/jobs/dead", "root_path": "/ops/jobs", "app_root_path": "/ops"})
    '/dead'
    """
    path, root = str(scope["path"]), scope["root_path"].rstrip("/")
    for each in (root, root.removeprefix(scope.get("app_root_path", "").rstrip("/"))):
        if each and (path == each or path.startswith(each + "/")):
            return path[len(each) :] or "/"
    return path
