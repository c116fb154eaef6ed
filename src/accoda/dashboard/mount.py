"""The dashboard as the service mounts it; where its libraries are missing, a page that says what to install."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from accoda.dashboard.answers import Answer, send_answer
from accoda.dashboard.extra import ADVICE, is_installed

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.options import ServiceOptions
    from accoda.http.polls import Polls


def mount(app: App, options: ServiceOptions, polls: Polls) -> Any:
    """An ASGI application for the dashboard's paths."""
    if not is_installed():
        return missing
    from accoda.dashboard.dashboard import Dashboard

    return Dashboard(app, options, polls)


async def missing(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    """What stands in the place of every page."""
    text = f"{ADVICE}\nThe HTTP API is there without it: /docs\n"
    await send_answer(send, Answer(status=501, body=text.encode(), kind="text/plain; charset=utf-8"))
