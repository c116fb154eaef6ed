"""One job: what it is, why it is not running, what has happened to it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from accoda.dashboard.answers import Answer
from accoda.dashboard.pages.flow_place import place_in_flow
from accoda.dashboard.pages.parameters import Text, id_of, level_of, pretty
from accoda.dashboard.pages.timeline import timeline
from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.errors import JobNotFound
from accoda.model import ENDED, ById
from accoda.names import is_system
from accoda.operations import budgets, demands, jobs, webhooks
from accoda.operations.budgets import BudgetView
from accoda.operations.handlers import options_of
from accoda.operations.jobs import SCHEDULES
from accoda.operations.levels import LEVELS
from accoda.operations.views import JobView
from accoda.operations.why import why
from accoda.operations.words import state_word

if TYPE_CHECKING:
    from accoda.app import App


@page("/jobs/{id}", "job.html", section="jobs")
async def job(call: PageCall) -> dict[str, Any]:
    """All about one job."""
    app, id = call.app, id_of(call.params["id"])
    view = await jobs.get(app, id)
    ended = view.state in ENDED
    notes = await jobs.failed_runs(app, id)
    return {
        "job": view,
        "ended": ended,
        "why": None if ended else await _why(app, id),
        "steps": timeline(view, notes),
        "payload": Text.of(view.payload),
        "result": Text.of(view.result),
        "waiters": await demands.waiters_of(app, id) if view.waiters else [],
        "own_schedule": view.key if view.queue == SCHEDULES else None,
        "of_demand": view.queue in app.demands,
        "budgets": await _budgets(app, view),
        "calls": await webhooks.of_job(app, view),
        "flow": await place_in_flow(app, id),
        "can": _can(app, view),
        "can_start": bool(_can(app, view) & {"retry", "start"}),
        "levels": LEVELS,
    }


@page("/jobs/{id}/payload", "", section="jobs", live=False)
async def payload(call: PageCall) -> Answer:
    """All of its payload, as a file."""
    view = await jobs.get(call.app, id_of(call.params["id"]))
    return _file(view, "payload", view.payload)


@page("/jobs/{id}/result", "", section="jobs", live=False)
async def result(call: PageCall) -> Answer:
    """All of its result, as a file."""
    view = await jobs.get(call.app, id_of(call.params["id"]))
    return _file(view, "result", view.result)


def _file(view: JobView, name: str, value: Any) -> Answer:
    """A value as JSON, which a browser stores and does not show. Secret fields were removed from the view."""
    disposition = f'attachment; filename="job-{view.id}-{name}.json"'
    return Answer(
        body=pretty(value).encode("utf-8", "replace"),
        kind="application/json",
        headers=(("content-disposition", disposition),),
    )


async def _why(app: App, id: int) -> Any:
    try:
        return await why(app, id)
    except JobNotFound:  # it ended and was not kept since it was read: the next rendering will show that
        return None


async def _budgets(app: App, view: JobView) -> list[BudgetView]:
    options = options_of(app, view.queue)
    names = () if options is None else options.budgets
    return [each for each in await budgets.list(app) if each.name in names] if names else []


def _can(app: App, view: JobView) -> set[str]:
    """What may be done with it as it is now."""
    if view.queue == SCHEDULES:  # it is the schedule itself
        return set()
    can = {"delete"}
    if view.state == "dead":
        can.add("retry")
    if view.state == "delayed":
        can.add("start")
    if view.state in ("ready", "delayed", "held", "taken"):
        can.add("cancel")
    if view.state in ("ready", "delayed", "held") and view.queue not in app.demands and not is_system(view.queue):
        can.add("priority")
    return can


@action("/do/jobs/{id}/retry")
async def retry(call: ActionCall) -> ActionResult:
    """A dead job is ready again, and a delayed one starts now."""
    id = id_of(call.params["id"])
    view = await jobs.retry(call.app, id)
    return ActionResult(f"/jobs/{id}", f"Job {id} is {state_word(view.state)}.")


@action("/do/jobs/{id}/cancel")
async def cancel(call: ActionCall) -> ActionResult:
    return await _gone(call, jobs.cancel, "was cancelled")


@action("/do/jobs/{id}/delete")
async def delete(call: ActionCall) -> ActionResult:
    return await _gone(call, jobs.delete, "was deleted")


async def _gone(call: ActionCall, act: Callable[[App, int], Awaitable[None]], did: str) -> ActionResult:
    id = id_of(call.params["id"])
    view = await jobs.get(call.app, id)
    await act(call.app, id)
    to = call.back
    if to in ("/", f"/jobs/{id}"):
        # If the job's own page is gone, its queue's jobs are the next best.
        is_kept = (await call.app.storage.look(ById(id))).job is not None
        to = f"/jobs/{id}" if is_kept else f"/jobs?queue={quote(view.queue)}"
    return ActionResult(to, f"Job {id} {did}.")


@action("/do/jobs/{id}/priority")
async def priority(call: ActionCall) -> ActionResult:
    """Give it another level."""
    id = id_of(call.params["id"])
    level = level_of(call.form.get("level", ""))
    await jobs.set_priority(call.app, id, level)
    return ActionResult(f"/jobs/{id}", f"Job {id} has priority {level} now.")


@action("/do/deliveries/{id}/again")
async def send_again(call: ActionCall) -> ActionResult:
    """Call its webhook once more."""
    await webhooks.send_again(call.app, id_of(call.params["id"]))
    return ActionResult(call.back, "The webhook is called again, with the same message id.")
