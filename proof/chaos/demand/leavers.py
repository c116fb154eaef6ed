"""People join and leave at random, from several processes, while fetches run.

A waiter that was told "left" or "cancelled" is never served; every other one is served once; nothing waits for
ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from proof.chaos.demand.settings import Line
from proof.chaos.demand.stage import Stage
from proof.checker import check, final_state, load

OUT = ("left", "cancelled")
IN = ("created", "attached", "cached", "stale")
NEVER_MANY = 10_000_000


class Leavers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it, and what was broken, in words."""

    joined: int
    answers: dict[str, int]
    calls: int
    served: int
    finished: bool
    broken: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.finished and not self.broken


async def run(stage: Stage, seconds: float, *, processes: int = 3, seed: int = 0) -> Leavers:
    """For that many seconds; two workers serve all the while."""
    await asyncio.gather(stage.worker(), stage.worker())
    each = NEVER_MANY
    people = await asyncio.gather(
        *(
            stage.people(one, first=one * each, count=each, seconds=seconds, seed=seed * 100 + one)
            for one in range(processes)
        )
    )
    await stage.send(people)
    finished = await stage.until_served(60)
    lines = stage.lines()
    broken = what_is_wrong(lines)
    for queue in (await stage.store.stats()).queues:
        broken += [f"job {job.id} of {queue} is dead: {job.reason}" for job in await stage.store.browse(queue, "dead")]
    if stage.settings.recorded:
        broken += await against_promises(stage)
    told = Counter(line.what for line in lines)
    return Leavers(
        joined=sum(told[what] for what in IN),
        answers={what: told[what] for what in (*IN, *OUT, "absent")},
        calls=told["fetch"],
        served=told["deliver"],
        finished=finished,
        broken=tuple(broken),
    )


def what_is_wrong(lines: list[Line]) -> list[str]:
    """Every waiter that was not served as it was told, with all that is known of it. Pure."""
    known: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.subject.startswith("w"):
            known[line.subject].append(line)
    found = []
    for waiter, events in known.items():
        told = {event.what for event in events}
        served = sum(event.what == "deliver" for event in events)
        wanted = 0 if told & set(OUT) else 1
        if served != wanted and told & set(IN):
            words = ", ".join(f"{event.what} {event.job or ''}".strip() for event in events)
            found.append(f"{waiter} was served {served} times, not {wanted}: {words}")
    return found


async def against_promises(stage: Stage) -> list[str]:
    """What the histories of all processes say of the store's promises."""
    await stage.end()  # else its system jobs would move while they are counted
    final = await final_state(stage.store)

    def judge() -> list[str]:
        files = sorted(Path(stage.settings.folder).glob("*.history"))
        verdict = check(load(files), final, rules=("waiters", "lost", "done twice", "double lease", "counters"))
        return [str(violation) for violation in verdict.violations]

    return await asyncio.to_thread(judge)
