"""The lanes of a queue: its rules, which lanes wait and run, and how many places a lane has."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from msgspec import Struct

from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.errors import InvalidInput
from accoda.model import LANE, LANE_LIMIT, check_lane
from accoda.operations import lanes
from accoda.operations.lanes import LanesView, LaneView, RulesView
from accoda.operations.words import listed

KINDS = (("taken", "running"), ("ready", "in line"), ("held", "held"))
"""The parts of a bar from its left, with their names."""
OTHERS = 50
"""Lanes with rules of their own that are shown though no job of theirs is."""


class Row(Struct, frozen=True):
    """A lane with its bars: `parts` are a kind, where it begins, and how long it is, in hundredths of the longest.
    `hour` is how long the bar of its runs is, in hundredths of the longest of these."""

    lane: LaneView
    text: str
    parts: list[tuple[str, float, float]]
    hour: float


@page("/queues/{queue}/lanes", "lanes.html", section="overview")
async def view(call: PageCall) -> dict[str, Any]:
    """Rules and lanes; `lane` is one whose limit shall be changed."""
    found = await lanes.get(call.app, call.params["queue"])
    most = max((each.jobs for each in found.lanes), default=0)
    most_runs = max((each.runs for each in found.lanes), default=0)
    asked = call.query.get("lane", "")[:LANE]
    limits = found.rules.limits if found.rules else {}
    return {
        "found": found,
        "rules": found.rules or RulesView(),
        "rows": [_row(each, most, most_runs) for each in found.lanes],
        "kinds": KINDS,
        "limited": any(each.limit is not None for each in found.lanes),
        "weighted": any(each.weight != 1 for each in found.lanes),
        "others": _others(found),
        "shown_others": OTHERS,
        "asked": asked,
        "asked_limit": limits.get(asked),
        "most_limit": LANE_LIMIT,
        "shared_with": listed(found.shared_with),
    }


def _row(lane: LaneView, most: int, most_runs: int) -> Row:
    parts, at, words = [], 0.0, []
    for kind, name in KINDS:
        count: int = getattr(lane, kind)
        wide = round(100 * count / most, 2) if most else 0.0
        if count:
            parts.append((kind, round(at, 2), wide))
            words.append(f"{count:,} {name}")
        at += wide
    if lane.runs:
        words.append(f"{lane.runs:,} ran in the last hour")
    return Row(lane, f"{lane.lane}: {', '.join(words)}", parts, round(100 * lane.runs / max(1, most_runs), 2))


def _others(found: LanesView) -> list[tuple[str, str]]:
    """Lanes that are not listed and have rules of their own, with these in words."""
    rules, listed = found.rules or RulesView(), {each.lane for each in found.lanes}
    names = sorted({*rules.limits, *rules.weights} - listed)
    return [(name, _own(rules, name)) for name in names]


def _own(rules: RulesView, lane: str) -> str:
    parts = []
    if lane in rules.limits:
        limit = rules.limits[lane]
        parts.append("no limit" if limit is None else f"limit {limit:,}" if limit else "paused")
    if lane in rules.weights:
        parts.append(f"weight {rules.weights[lane]:g}")
    return ", ".join(parts)


@action("/do/queues/{queue}/lanes")
async def limit(call: ActionCall) -> ActionResult:
    """Give one lane another limit, or the one that it had before all changes."""
    queue, lane = call.params["queue"], call.form.get("lane", "")
    check_lane(lane)
    to = call.back if call.back != "/" else f"/queues/{quote(queue)}/lanes"
    if call.form.get("reset"):
        await lanes.reset(call.app, queue, lane, 0)
        return ActionResult(to, f"What was changed for lane {lane} is forgotten.")
    text = call.form.get("limit", "").strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise InvalidInput("limit", f"must be a whole number from 0 to {LANE_LIMIT:,}, not {text!r:.40}")
    found = await lanes.change(call.app, queue, {"limits": {lane: int(text)}}, 0)
    if not int(text):
        return ActionResult(to, f"Lane {lane} is paused: its jobs are held. Those that run go on.")
    lowest = f" Where {listed(found.shared_with)} gives it less, that holds." if found.shared_with else ""
    return ActionResult(to, f"Lane {lane} may have {int(text):,} in line or running at once.{lowest}")


@action("/do/queues/{queue}/lanes/shared")
async def share(call: ActionCall) -> ActionResult:
    """Share the limits with the queues that have the same name there, or no longer."""
    queue, name = call.params["queue"], call.form.get("shared", "").strip()
    found = await lanes.change(call.app, queue, {"shared": None if call.form.get("end") else name}, 0)
    to = call.back if call.back != "/" else f"/queues/{quote(queue)}/lanes"
    if call.form.get("end"):
        return ActionResult(to, f"The limits of {queue} are its own.")
    others = listed(found.shared_with) or "no other queue yet"
    return ActionResult(to, f"{queue} shares its limits as {name}, with {others}.")
