"""Accoda inside FastAPI and Starlette: see docs/fastapi.md.

| file         | what it has                                                                            |
| ------------ | -------------------------------------------------------------------------------------- |
| lifespan.py  | `lifespan`: opens the store with the web application, and closes it; `get_app`         |
| mounting.py  | `mount`: the HTTP API and the dashboard under a prefix, behind the application's login |
| answers.py   | `accepted`, `status_of`, `events_of`: what a view answers                              |
| watching.py  | the jobs that streams wait for, looked at once for all of them                         |
| injecting.py | `Injector`: dependencies in handlers                                                   |
| resolving.py | from a function's parameters to values, without a request                              |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from accoda.app import App
from accoda.http.extra import require

require()

from accoda.asgi.answers import accepted, events_of, status_of  # noqa: E402  # only after the check
from accoda.asgi.injecting import Injector  # noqa: E402
from accoda.asgi.lifespan import get_app, lifespan  # noqa: E402
from accoda.asgi.mounting import Access, mount  # noqa: E402

if TYPE_CHECKING:
    from fastapi import Depends

    Jobs = Annotated[App, Depends(get_app)]
    """The app, as the parameter of a FastAPI view: `async def order(jobs: Jobs): …`."""

__all__ = ["Access", "Injector", "Jobs", "accepted", "events_of", "get_app", "lifespan", "mount", "status_of"]


def __getattr__(name: str) -> Any:
    if name != "Jobs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fastapi import Depends  # Starlette works without it

    return Annotated[App, Depends(get_app)]
