"""From a snapshot to the explanation. Pure, except for `why`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from accoda.envelope import unwrap
from accoda.model import ENDED
from accoda.operations.host import Host
from accoda.operations.moments import rfc3339
from accoda.operations.redaction import reason_of
from accoda.operations.why.estimate import start_of
from accoda.operations.why.gates import gates_of
from accoda.operations.why.records import Estimate, Explanation, Fact, Gate, Start, is_moment
from accoda.operations.why.snapshot import Snapshot, gather
from accoda.operations.why.sooner import sooner_of
from accoda.operations.words import length, rough


async def why(host: Host, id: int) -> Explanation:
    """Why a job is not running, without the secrets of its payload. Raises JobNotFound."""
    snapshot = await gather(host, id)
    return explain(replace(snapshot, reason=reason_of(host, snapshot.job)))


def explain(snapshot: Snapshot) -> Explanation:
    """Why the job is not running (or that it is), when it will, and what would make it start sooner."""
    job, gates = snapshot.job, gates_of(snapshot)
    start = None if snapshot.is_record else start_of(snapshot)
    when = "" if start is None else about(start, at_least=snapshot.ahead_is_more)
    line = _line(gates, start, when, snapshot.now)
    place = unwrap(job.data)[0].flow
    return Explanation(
        id=job.id,
        queue=job.queue,
        state=job.state,
        at=rfc3339(snapshot.now),
        line=line,
        gates=tuple(replace(gate, text=_text(gate, line), facts=_facts(gate.facts)) for gate in gates),
        position=snapshot.ahead + 1 if job.state == "ready" else None,
        ahead_is_more=snapshot.ahead_is_more,
        start=None if start is None else _start(start, when, snapshot.now),
        sooner=sooner_of(snapshot, gates),
        flow=None if place is None else place.id,
        node=None if place is None else place.node,
    )


_ANSWERS = ("delayed", "line", "taken", *ENDED)
"""Gates that tell what a job does if none is shut; the last of them does."""


def _line(gates: Sequence[Gate], start: Estimate | None, when: str, now: int) -> str:
    """One sentence: the first gate that is shut or, if none is, what the job does; and when it is likely to start,
    unless that is the moment at which the gate opens, which the sentence says already."""
    shut = next((gate for gate in gates if gate.verdict == "shut"), None)
    said = shut or next(gate for gate in reversed(gates) if gate.name in _ANSWERS)
    opens = (int(said.facts.get("until", 0)) - now) / 1000
    if start is None or (opens > 0 and start.high <= opens * 1.02 + 1):
        return said.text
    return f"{said.text}; starts {when}"


def _text(gate: Gate, line: str) -> str:
    """What the gate says beside the line: where that has told the error, not the error again."""
    said = gate.name == "dead" and gate.text == line
    return gate.text.partition(": ")[0] if said else gate.text


def _start(start: Estimate, text: str, now: int) -> Start:
    seconds = [round(span, 3) for span in (start.low, start.likely, start.high)]
    moments = [rfc3339(now + round(span * 1000)) for span in (start.low, start.likely, start.high)]
    return Start(
        text=text,
        low=seconds[0],
        likely=seconds[1],
        high=seconds[2],
        low_at=moments[0],
        likely_at=moments[1],
        high_at=moments[2],
    )


def _facts(facts: dict[str, Fact]) -> dict[str, Fact]:
    return {
        _camel(name): rfc3339(value) if is_moment(name) and isinstance(value, int) else value
        for name, value in facts.items()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def about(start: Estimate, *, at_least: bool = False) -> str:
    """An estimate in words.

    >>> about(Estimate(20, 40, 80)), about(Estimate(0, 0, 0.2)), about(Estimate(20, 40, 80), at_least=True)
    ('in about 40 s (20 s to 1 min 20 s)', 'within a second', 'in at least 20 s')
    """
    if at_least:
        return f"in at least {length(start.low)}"
    if start.high <= 1 and start.likely < 0.5:
        return "within a second"
    low, likely, high = (length(round(span, 1)) for span in (start.low, start.likely, start.high))
    if rough(start.low) == rough(start.high):  # a closer range would pretend to be exact
        return f"in about {likely}"
    return f"in about {likely} ({low} to {high})"
