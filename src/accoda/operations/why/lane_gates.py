"""The gates of lanes: whether a place in the job's lane is free, and whether the queue may run one more. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.model import JobInfo
from accoda.operations.why.records import Fact, Gate
from accoda.operations.why.snapshot import Snapshot
from accoda.operations.words import listed, many, quoted, rough


def lane(s: Snapshot) -> Gate | None:
    """Whether its lane has a place for it; and that lanes take turns, if they do."""
    name, stand = s.job.lane, s.lanes
    if name is None or stand is None:
        return None
    limit, shown = stand.limit, quoted(name)
    facts: dict[str, Fact] = {"lane": name}
    if limit is not None:
        facts["limit"] = limit
    if stand.shared_with:
        facts["shared_with"] = ", ".join(stand.shared_with)
    if stand.counts is not None:
        facts |= {"ready": stand.counts.ready, "held": stand.counts.held, "taken": stand.counts.taken}
    if s.job.state == "held":
        return Gate("lane", "shut", _held(s, shown, limit), facts)
    parts: list[str] = []
    if limit is not None:
        would = "; it would be held if it were ready now" if s.would_be_held else ""
        parts.append(f"lane {shown} may have {limit:,} in line or running at once{_in(s)}{_now(s)}{would}")
    if stand.rules.fair:
        weight = facts["weight"] = stand.rules.weights.get(name, 1)
        with_weight = f", with weight {weight:g}" if weight != 1 else ""
        parts.append(f"lane {shown} takes turns with the other lanes of its priority level{with_weight}")
    if not parts:
        return None
    return Gate("lane", "note" if stand.rules.fair or s.would_be_held else "open", "; ".join(parts), facts)


def _held(s: Snapshot, shown: str, limit: int | None) -> str:
    stand = s.lanes
    assert stand is not None
    if limit == 0:
        by = None if s.job.queue in stand.limited_by else stand.limited_by[0]
        return f"lane {shown} is paused: its limit is 0" + (f" in queue {by}, which shares its limits" if by else "")
    if limit is None:  # the rules were changed after the job was read
        return f"lane {shown} had no place free a moment ago; its limit has just been lifted"
    taken = sum(each.state == "taken" for each in stand.places)
    used = max(limit, taken if stand.counts is None else stand.counts.taken)
    text = f"lane {shown} has its {used:,} of {limit:,}{_in(s)}"
    return (f"{text}: {_named(s, stand.places, used)}" if stand.places else text) + _paused(s)


def _in(s: Snapshot) -> str:
    """In which queues together, if the limits are shared."""
    others = () if s.lanes is None else s.lanes.shared_with
    queues = sorted((s.job.queue, *others))
    if len(queues) == 1:
        return ""
    most = 5
    named = queues[:most] if len(queues) > most else queues[:-1]
    last = f"{len(queues) - most:,} more" if len(queues) > most else queues[-1]
    return f" in queues {', '.join(named)} and {last}"


def paused_holders(s: Snapshot) -> list[str]:
    """The other queues that share the limits, are paused, and have ready jobs in places of the lane."""
    held = {} if s.lanes is None else {each.queue: None for each in s.lanes.places if each.state == "ready"}
    return [queue for queue in held if queue != s.job.queue and queue in s.queues and s.queues[queue].paused]


def _paused(s: Snapshot) -> str:
    queues = paused_holders(s)
    if not queues:
        return ""
    they, their = ("queue", "is paused, and its") if len(queues) == 1 else ("queues", "are paused, and their")
    return f"; {they} {listed(queues)} {their} ready jobs keep these places"


def _now(s: Snapshot) -> str:
    """How many of its lane have a place now, where that is known."""
    counts = None if s.lanes is None else s.lanes.counts
    return "" if counts is None else f", and has {counts.ready + counts.taken:,}"


def total(s: Snapshot) -> Gate | None:
    """Whether the queue may run one job more."""
    stand = s.lanes
    if stand is None or stand.rules.total is None:
        return None
    most, taken = stand.rules.total, s.stats.taken
    facts: dict[str, Fact] = {"total": most, "taken": taken}
    if taken < most:
        return Gate("total", "open", f"{taken:,} of {many(most, 'job')} that may run at once are running", facts)
    if most == 0:
        return Gate("total", "shut", f"none of the jobs of {s.job.queue} may run: its total is 0", facts)
    text = f"{taken:,} of {most:,} jobs of the queue run at once"
    return Gate("total", "shut", f"{text}: {_named(s, stand.running, taken)}" if stand.running else text, facts)


def _named(s: Snapshot, found: Sequence[JobInfo], count: int) -> str:
    """Jobs with what they do, and how many more there are."""
    shown = [_doing(s, each) for each in found] + [""] * max(0, count - len(found))
    noun = "job" if len(shown) == 1 else "jobs"
    return f"{noun} {listed(shown, len(found))}"


def _doing(s: Snapshot, job: JobInfo) -> str:
    where = f", queue {job.queue}" if job.queue != s.job.queue else ""
    if job.state != "taken":
        return f"{job.id} ({job.state}{where})"
    on = f" on {quoted(job.worker)}" if job.worker else ""
    return f"{job.id} (running {rough(max(0, s.now - (job.taken_at or s.now)) / 1000)}{on}{where})"
