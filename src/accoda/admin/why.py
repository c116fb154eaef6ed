"""Why a job is not running, and when it will: for people."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from accoda.admin.moments import shown
from accoda.admin.views import reason_of
from accoda.model import State
from accoda.why import Estimate, Gate, Verdict, Why, explain, gather
from accoda.why.model import Fact, Name, is_moment

if TYPE_CHECKING:
    from accoda.app import App


class GateView(Struct, rename="camel", frozen=True, kw_only=True):
    """One thing that may keep a job from running: `shut` if it does, `open` if not, a `note` if it is good to know.
    What `facts` there are depends on the gate; moments among them are RFC 3339 text."""

    name: Name
    verdict: Verdict
    text: str
    facts: dict[str, Fact] = {}

    @classmethod
    def of(cls, gate: Gate) -> GateView:
        facts = {_camel(name): _fact(name, value) for name, value in gate.facts.items()}
        return cls(name=gate.name, verdict=gate.verdict, text=gate.text, facts=facts)


class StartView(Struct, rename="camel", frozen=True, kw_only=True):
    """When it is likely to start, and hardly outside which range: seconds from now, and as moments."""

    low: float
    likely: float
    high: float
    low_at: str
    likely_at: str
    high_at: str

    @classmethod
    def of(cls, start: Estimate, now: int) -> StartView:
        low, likely, high = (shown(now + round(span * 1000)) or "" for span in (start.low, start.likely, start.high))
        seconds = [round(span, 3) for span in (start.low, start.likely, start.high)]
        return cls(low=seconds[0], likely=seconds[1], high=seconds[2], low_at=low, likely_at=likely, high_at=high)


class WhyView(Struct, rename="camel", frozen=True, kw_only=True):
    """The answer `at` a moment: a `line`, the gates in their order, its `position` (1: the next; null: it is not in
    line), its `start` (null: it runs, has ended, or cannot start as things are), and what would help."""

    id: int
    queue: str
    state: State
    at: str
    line: str
    gates: builtins.list[GateView]
    position: int | None = None
    start: StartView | None = None
    sooner: builtins.list[str] = []

    @classmethod
    def of(cls, answer: Why, now: int) -> WhyView:
        return cls(
            id=answer.id,
            queue=answer.queue,
            state=answer.state,
            at=shown(now) or "",
            line=answer.line,
            gates=[GateView.of(gate) for gate in answer.gates],
            position=answer.position,
            start=None if answer.start is None else StartView.of(answer.start, now),
            sooner=[*answer.sooner],
        )


async def why(app: App, id: int) -> WhyView:
    """Why a job is not running, without what is secret of its payload."""
    snapshot = await gather(app, id)
    safe = replace(snapshot, reason=reason_of(app, snapshot.job))
    return WhyView.of(explain(safe), snapshot.now)


def _fact(name: str, value: Fact) -> Fact:
    return shown(value) or "" if is_moment(name) and isinstance(value, int) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
