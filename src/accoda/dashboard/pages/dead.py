"""Dead letters by their cause; bringing them back, one, a group or all of them, and deleting them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accoda.admin import bulk
from accoda.admin import dead as admin
from accoda.admin.dead import DeadFilter
from accoda.admin.pages import JobFilter
from accoda.dashboard.calls import ActionCall, PageCall, Went
from accoda.dashboard.pages.asked import id_of, some
from accoda.dashboard.routes import ActionRoute, PageRoute
from accoda.errors import InvalidInput

SHOWN = 100
"""Groups on the page."""
REPLAYS = 5


async def dead(call: PageCall) -> dict[str, Any]:
    """The groups of the newest dead letters, and the replays that go on or have ended lately.

    With `queue`, only the causes that occur there.
    """
    found = await admin.latest_groups(call.app)
    queue = call.query.get("queue", "")
    groups = [group for group in found.groups if not queue or queue in group.queues]
    replays = await admin.list_replays(call.app)
    going = [each for each in replays if each.status == "running"]
    ended = [each for each in replays if each.status != "running"]
    return {
        "queue": queue,
        "groups": groups[:SHOWN],
        "hidden": max(0, len(groups) - SHOWN),
        "looked_at": found.looked_at,
        "partial": found.partial,
        "total": found.total,
        "replays": going + ended[:REPLAYS],
    }


async def ask(call: PageCall) -> dict[str, Any]:
    """A dry run: how many would come back, and a few of them."""
    which = _which(call.query)
    report = await admin.count(call.app, which)
    return {"which": which, "report": report, "looked_at": admin.LATEST, "rate": call.query.get("rate", "")}


async def replay(call: ActionCall) -> Went:
    """Bring back all that fit; it goes on by itself."""
    view = await admin.start_replay(call.app, _which(call.form), _rate(call.form.get("rate", "")))
    how = "as fast as the store allows" if view.rate is None else f"at most {view.rate:g} a second"
    return Went("/dead", f"The replay goes on by itself, {how}.")


async def replay_one(call: ActionCall) -> Went:
    """Bring back one."""
    id = id_of(call.params["id"])
    report = await admin.revive(call.app, [id])
    if report.revived:
        return Went(call.back, f"Job {id} is ready again.")
    held = "it stays dead, because another job holds its key" if report.held else "it is no longer among the dead"
    return Went(call.back, f"Job {id} was not brought back: {held}.")


async def stop(call: ActionCall) -> Went:
    """End a replay before its end."""
    view = await admin.stop_replay(call.app, call.params["id"])
    return Went("/dead", f"Stopped. {some(view.revived)} came back before.")


async def delete(call: ActionCall) -> Went:
    """Delete all that fit, as a bulk action, which goes on by itself."""
    which = _which(call.form)
    wanted = JobFilter(queue=which.queue, state="dead", error=which.fingerprint)
    view = await bulk.start(call.app, "delete", wanted, who=call.who.name)
    return Went(f"/bulk/{view.id}", "The dead letters are being deleted, also when you leave this page.")


def _which(said: Mapping[str, str]) -> DeadFilter:
    return DeadFilter(queue=said.get("queue") or None, fingerprint=said.get("fingerprint") or None)


def _rate(text: str) -> float | None:
    """Jobs a second; nothing: without a limit."""
    text = text.strip().replace(",", ".")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput("rate", f"must be jobs a second, such as 20 or 0.5, not {text!r:.60}") from None


PAGES = (
    PageRoute("/dead", dead, "dead.html", section="dead"),
    PageRoute("/dead/replay", ask, "dead_ask.html", section="dead"),
)
ACTIONS = (
    ActionRoute("/do/dead/replay", replay),
    ActionRoute("/do/dead/delete", delete),
    ActionRoute("/do/dead/{id}/replay", replay_one),
    ActionRoute("/do/replays/{id}/stop", stop),
)
