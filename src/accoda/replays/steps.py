"""The steps of a replay: what is revived now, and what is planned for the next one."""

from __future__ import annotations

from msgspec.structs import replace

from accoda import errands
from accoda.errands import Errands
from accoda.replays.letters import Wanted, gather
from accoda.replays.places import Place
from accoda.replays.reviving import Revived, revive_all
from accoda.storage.protocol import Store

QUEUE = "accoda.replays"
PREFIX = "replays/"
AT_ONCE = 500
"""Jobs of one step where no rate is told."""
MOST_AT_ONCE = 1000
"""Jobs of one step, however high the rate: their ids are the step's data, and no store stands still for them."""
LOOKED_AT = 5000
"""Records that one step looks at for the next: a filter that matches little is gone through in many steps."""


class Step(errands.Step, frozen=True, kw_only=True):
    """The data of a replay's job: what is wanted, what is to be revived now, where to look on, what is done."""

    which: Wanted
    rate: float | None
    ids: tuple[int, ...] = ()
    at: Place | None = None
    looked: bool = False
    done: Revived = Revived()


async def advance(store: Store, step: Step, again: bool = False) -> Step:
    """Revive what is planned, and plan what comes next."""
    done = step.done.plus(await revive_all(store, step.ids, step.which.until, again=again))
    if step.looked and step.at is None:
        return replace(step, ids=(), done=done, status="finished")
    found = await gather(store, step.which, step.at, _share(step.rate), LOOKED_AT)
    ids = tuple(job.id for job in found.jobs)
    after = replace(step, ids=ids, at=found.next, looked=True, done=done)
    return after if ids or found.next is not None else replace(after, status="finished")


def _share(rate: float | None) -> int:
    """The jobs of one step: a second's worth, unless that is very many."""
    return AT_ONCE if rate is None else max(1, min(MOST_AT_ONCE, int(rate)))


def pause_after(step: Step) -> float:
    """Seconds from one step to the next, so that the rate is kept: a second, as a rule."""
    return 0.0 if step.rate is None or not step.ids else _share(step.rate) / step.rate


REPLAYS = Errands("replay", QUEUE, PREFIX, Step)
decode = REPLAYS.decode
