"""Dead letters by their cause; replaying one, a group or all of them, and deleting them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accoda.dashboard.pages.parameters import id_of
from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.errors import InvalidInput
from accoda.operations import bulk, failure_groups, jobs
from accoda.operations.job_filter import JobFilter

SHOWN = 100
"""Groups on the page."""
EXAMINED = 2000
"""The latest dead letters, of which the groups are made."""
SAMPLES = 5


@page("/dead", "dead.html", section="dead")
async def dead(call: PageCall) -> dict[str, Any]:
    """The groups of the latest dead letters. With `queue`, only the causes that occur there."""
    found = await failure_groups.groups(call.app, most=EXAMINED)
    queue = call.query.get("queue", "")
    groups = [group for group in found.groups if not queue or queue in group.queues]
    return {
        "queue": queue,
        "groups": groups[:SHOWN],
        "hidden": max(0, len(groups) - SHOWN),
        "looked_at": found.looked_at,
        "partial": found.partial,
        "total": found.total,
    }


@page("/dead/replay", "dead_ask.html", section="dead", live=False)
async def ask(call: PageCall) -> dict[str, Any]:
    """A dry run: how many would be ready again, and a few of them."""
    wanted = _filter(call.query)
    return {
        "wanted": wanted,
        "count": await bulk.count(call.app, wanted, "retry", EXAMINED),
        "samples": (await jobs.page(call.app, wanted, limit=SAMPLES)).items,
        "rate": call.query.get("rate", ""),
    }


@action("/do/dead/replay")
async def replay(call: ActionCall) -> ActionResult:
    """Replay all that match, in the background."""
    rate = _rate(call.form.get("rate", ""))
    view = await bulk.start(call.app, "retry", _filter(call.form), rate=rate, who=call.identity.name)
    how = "as fast as the store allows" if rate is None else f"at most {rate:g} a second"
    return ActionResult(f"/bulk/{view.id}", f"The replay runs in the background, {how}.")


@action("/do/dead/{id}/replay")
async def replay_one(call: ActionCall) -> ActionResult:
    """Replay one."""
    id = id_of(call.params["id"])
    await jobs.retry(call.app, id)
    return ActionResult(call.back, f"Job {id} is ready again.")


@action("/do/dead/delete")
async def delete(call: ActionCall) -> ActionResult:
    """Delete all that match, in the background."""
    view = await bulk.start(call.app, "delete", _filter(call.form), who=call.identity.name)
    return ActionResult(f"/bulk/{view.id}", "The dead letters are being deleted in the background.")


def _filter(said: Mapping[str, str]) -> JobFilter:
    return JobFilter(state="dead", queue=said.get("queue") or None, fingerprint=said.get("fingerprint") or None)


def _rate(text: str) -> float | None:
    """Jobs a second; nothing: without a limit."""
    text = text.strip().replace(",", ".")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput("rate", f"must be jobs a second, such as 20 or 0.5, not {text!r:.60}") from None
