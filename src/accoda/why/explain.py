"""From a snapshot to the answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.why.estimate import start_of
from accoda.why.gates import gates_of
from accoda.why.model import Estimate, Gate, Why
from accoda.why.snapshot import Snapshot
from accoda.why.sooner import sooner_of
from accoda.why.words import about


def explain(snapshot: Snapshot) -> Why:
    """Why the job is not running (or that it is), when it will, and what would make it start sooner."""
    job = snapshot.job
    gates = gates_of(snapshot)
    start = start_of(snapshot)
    return Why(
        id=job.id,
        queue=job.queue,
        state=job.state,
        line=line_of(gates, start, snapshot.now),
        gates=gates,
        position=snapshot.place.ahead + 1 if job.state == "ready" else None,
        start=start,
        sooner=sooner_of(snapshot, gates),
    )


def line_of(gates: Sequence[Gate], start: Estimate | None, now: int) -> str:
    """One sentence: the first gate that is shut or, if none is, what the job does; and when it is likely to start,
    unless that is the moment at which the gate opens, which has been said."""
    shut = next((gate for gate in gates if gate.verdict == "shut"), None)
    said = shut or next(gate for gate in reversed(gates) if gate.name in ("line", "taken", "dead", "done"))
    opens = (int(said.facts.get("until", 0)) - now) / 1000
    if start is None or (opens > 0 and start.high <= opens * 1.02 + 1):
        return said.text
    return f"{said.text}; starts {about(start)}"
