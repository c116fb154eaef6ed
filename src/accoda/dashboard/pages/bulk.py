"""One action on many jobs: what is asked before it begins, how far it is, and the end of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, get_args

from accoda.admin import bulk as admin
from accoda.admin import jobs
from accoda.admin.bulk import Action
from accoda.dashboard.calls import ActionCall, PageCall, Went
from accoda.dashboard.pages.asked import LEVELS, PICKED, address, filter_of, level_of, picked, some, words_of
from accoda.dashboard.routes import ActionRoute, PageRoute
from accoda.errors import Conflict, InvalidInput, JobNotFound

if TYPE_CHECKING:
    from accoda.app import App

MEANS: dict[Action, tuple[str, str]] = {
    "retry": ("Retry", "Dead jobs become ready again, delayed ones start now. Others are left alone."),
    "cancel": ("Cancel", "Jobs that wait or run are taken back and are gone. Those that have ended are left alone."),
    "delete": ("Delete", "Jobs are deleted in whatever state they are, with their results. This cannot be undone."),
    "priority": ("Set the priority of", "Jobs that wait get the new place in the line. Others are left alone."),
}
COUNTED = 4_000
"""Jobs that are looked at to count those that match a filter which no counter answers: so many are read in a moment."""
DID: dict[Action, str] = {"retry": "retried", "cancel": "cancelled", "delete": "deleted", "priority": "moved"}


async def ask(call: PageCall) -> dict[str, Any]:
    """What is about to be done, to how many; without an action, what was done lately."""
    recent = await admin.list(call.app)
    if not call.query.get("action"):
        return {"action": None, "recent": recent}
    action = _action(call.query["action"])
    ids = picked(call.query) if call.query.get("which") != "matching" else []
    if not ids and call.query.get("which") == "picked":
        raise InvalidInput("jobs", "none is ticked; tick the boxes beside them, or choose all that match")
    wanted = filter_of(call.query)
    words = words_of(wanted)
    if not ids and not words:
        raise InvalidInput("filter", "is empty, which would mean every job; filter the jobs first")
    count = None if ids else await admin.count(call.app, wanted, action, COUNTED)
    return {
        "action": action,
        "means": MEANS[action],
        "level": call.query.get("level", "") or "HIGH",
        "levels": LEVELS,
        "ids": ids,
        "picked": PICKED,
        "count": count,
        "words": words,
        "back": address("/jobs", **words),
        "recent": recent,
    }


async def one(call: PageCall) -> dict[str, Any]:
    """How far one is."""
    view = await admin.get(call.app, call.params["id"])
    words = words_of(view.filter)
    return {
        "bulk": view,
        "means": MEANS[view.action],
        "did": DID[view.action],
        "words": words,
        "jobs": address("/jobs", **words),
    }


async def start(call: ActionCall) -> Went:
    """Begin with all that match."""
    action = _action(call.form.get("action", ""))
    level = level_of(call.form.get("level", "")) if action == "priority" else None
    view = await admin.start(call.app, action, filter_of(call.form), level=level, who=call.who.name)
    return Went(f"/bulk/{view.id}", "It goes on by itself, also when you leave this page.")


async def do_picked(call: ActionCall) -> Went:
    """Do it to the jobs that were ticked, one after the other, and tell what became of them."""
    action = _action(call.form.get("action", ""))
    level = level_of(call.form.get("level", "")) if action == "priority" else None
    done, refused = 0, list[str]()
    for id in picked(call.form):
        try:
            await _ONE[action](call.app, id) if level is None else await jobs.set_priority(call.app, id, level)
            done += 1
        except (Conflict, JobNotFound) as error:  # the others are done all the same
            refused.append(str(error))
    told = f"{some(done)} {DID[action]}"
    if refused:
        told += f"; {len(refused)} left alone, such as: {refused[0]}"
    return Went(call.back, told)


async def stop(call: ActionCall) -> Went:
    """End one before its end."""
    id = call.params["id"]
    await admin.stop(call.app, id)
    return Went(f"/bulk/{id}", "Stopped. What was done stays done.")


def _action(text: str) -> Action:
    for action in get_args(Action):
        if text == action:
            return action  # type: ignore[no-any-return]
    raise InvalidInput("action", f"must be one of {', '.join(get_args(Action))}, not {text!r:.60}")


async def _retry(app: App, id: int) -> None:
    await jobs.retry(app, id)


_ONE: dict[Action, Callable[[App, int], Awaitable[None]]] = {
    "retry": _retry,
    "cancel": jobs.cancel,
    "delete": jobs.delete,
}

PAGES = (
    PageRoute("/bulk", ask, "bulk_ask.html", section="jobs"),
    PageRoute("/bulk/{id}", one, "bulk.html", section="jobs"),
)
ACTIONS = (
    ActionRoute("/do/bulk", start),
    ActionRoute("/do/picked", do_picked),
    ActionRoute("/do/bulk/{id}/stop", stop),
)
