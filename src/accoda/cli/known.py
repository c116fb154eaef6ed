"""Queues that are there, and what was meant by a name of none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accoda.cli.groups import near

if TYPE_CHECKING:
    from accoda.admin.views import QueueView
    from accoda.app import App


async def known(app: App, name: str) -> QueueView:
    """The queue of that name; a typo is no queue that a person wants to pause or look for."""
    from accoda.admin import queues
    from accoda.errors import NotFound

    try:
        return await queues.get(app, name)
    except NotFound:
        names = [queue.name for queue in await queues.list(app)]
        hint = near(name, names) or "accoda queues lists those that are there"
        raise NotFound("queue", name, hint) from None
