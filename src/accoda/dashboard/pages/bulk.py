"""One action on many jobs: the question before it begins, how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from accoda.dashboard.pages.parameters import PICKED, address, filter_of, level_of, picked, words_of
from accoda.dashboard.routes import ActionCall, ActionResult, Elsewhere, PageCall, action, is_local, page
from accoda.errors import Conflict, InvalidInput, JobNotFound
from accoda.operations import bulk as operations
from accoda.operations import jobs
from accoda.operations.bulk import Action
from accoda.operations.levels import LEVELS
from accoda.operations.words import many

if TYPE_CHECKING:
    from accoda.app import App

MEANS: dict[Action, tuple[str, str]] = {
    "retry": ("Retry", "Dead jobs become ready again, delayed ones start now. Others are left alone."),
    "cancel": ("Cancel", "Waiting jobs will not run, and running ones are stopped. Others are left alone."),
    "delete": ("Delete", "Jobs are deleted in any state, with their results. This cannot be undone."),
    "priority": ("Set the priority of", "Waiting jobs get a new place in the queue. Others are left alone."),
}
COUNTED = 4_000
"""Jobs that are examined to count those that match: so many are read in a moment."""
DID: dict[Action, str] = {"retry": "retried", "cancel": "cancelled", "delete": "deleted", "priority": "moved"}


@page("/bulk", "bulk_ask.html", section="jobs", live=False)
async def ask(call: PageCall) -> dict[str, Any]:
    """What is about to be done, to how many jobs; without an action, what was done lately."""
    recent = await operations.list(call.app)
    if not call.query.get("action"):
        return {"action": None, "recent": recent}
    action = _action(call.query["action"])
    ids = picked(call.query) if call.query.get("which") != "matching" else []
    wanted = filter_of(call.query)
    words = words_of(wanted)
    back = call.query.get("back", "")
    back = back if is_local(back) else address("/jobs", **words)
    if not ids and call.query.get("which") == "picked":
        raise Elsewhere(back, "No job is selected. Select some, or apply the action to all matching.")
    if not ids and not words:
        raise InvalidInput("filter", "is empty, which would mean every job; filter the jobs first")
    count = None if ids else await operations.count(call.app, wanted, action, COUNTED)
    return {
        "action": action,
        "means": MEANS[action],
        "level": call.query.get("level", "") or "HIGH",
        "levels": LEVELS,
        "ids": ids,
        "picked": PICKED,
        "count": count,
        "words": words,
        "back": back,
        "recent": recent,
    }


@page("/bulk/{id}", "bulk.html", section="jobs")
async def one(call: PageCall) -> dict[str, Any]:
    """How far one is."""
    view = await operations.get(call.app, call.params["id"])
    words = words_of(view.filter)
    return {
        "bulk": view,
        "means": MEANS[view.action],
        "did": DID[view.action],
        "words": words,
        "jobs": address("/jobs", **words),
    }


@action("/do/bulk")
async def start(call: ActionCall) -> ActionResult:
    """Begin with all that match."""
    action = _action(call.form.get("action", ""))
    level = level_of(call.form.get("level", "")) if action == "priority" else None
    view = await operations.start(call.app, action, filter_of(call.form), level=level, who=call.identity.name)
    return ActionResult(f"/bulk/{view.id}", "Runs in the background; you can leave this page.")


@action("/do/picked")
async def do_picked(call: ActionCall) -> ActionResult:
    """Change the jobs that were selected, one after the other."""
    action = _action(call.form.get("action", ""))
    level = level_of(call.form.get("level", "")) if action == "priority" else None
    done, refused = 0, list[str]()
    for id in picked(call.form):
        try:
            await _ONE[action](call.app, id) if level is None else await jobs.set_priority(call.app, id, level)
            done += 1
        except (Conflict, JobNotFound) as error:  # the others are done all the same
            refused.append(str(error))
    said = f"{many(done, 'job')} {DID[action]}"
    if refused:
        said += f"; {len(refused)} left alone, such as: {refused[0]}"
    return ActionResult(call.back, said)


@action("/do/bulk/{id}/stop")
async def stop(call: ActionCall) -> ActionResult:
    """End one early."""
    id = call.params["id"]
    await operations.stop(call.app, id)
    return ActionResult(f"/bulk/{id}", "Stopped. What was done stays done.")


def _action(text: str) -> Action:
    for known in MEANS:
        if text == known:
            return known
    raise InvalidInput("action", f"must be one of {', '.join(MEANS)}, not {text!r:.60}")


async def _retry(app: App, id: int) -> None:
    await jobs.retry(app, id)


_ONE: dict[Action, Callable[[App, int], Awaitable[None]]] = {
    "retry": _retry,
    "cancel": jobs.cancel,
    "delete": jobs.delete,
}
