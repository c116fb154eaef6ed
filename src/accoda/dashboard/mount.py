"""The dashboard as the service mounts it; if Jinja2 is missing, a page that says what to install."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from accoda.dashboard.answers import Answer, send_answer

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.long_polls import LongPolls
    from accoda.http.options import ServiceOptions

ADVICE = "The dashboard needs Jinja2; install it with: pip install 'accoda[dashboard]'"


def is_installed() -> bool:
    """Whether the dashboard can be shown."""
    return find_spec("jinja2") is not None


def mount(app: App, options: ServiceOptions, polls: LongPolls) -> Any:
    """An ASGI application for the dashboard's paths."""
    if not is_installed():
        return missing
    from accoda.dashboard.dashboard import Dashboard

    return Dashboard(app, options, polls)


async def missing(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    """What every page is answered with instead."""
    text = f"{ADVICE}\nThe HTTP API works without it: /docs\n"
    await send_answer(send, Answer(status=501, body=text.encode(), kind="text/plain; charset=utf-8"))
