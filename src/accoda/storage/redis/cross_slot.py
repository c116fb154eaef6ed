"""Cluster only: a settle whose leases or follow-ups belong to several shards, cut into steps that one script can do.

Each shard with leases gets one step. Follow-ups of the same shard are stored by it, so that a job which follows itself
under its own key holds the key at every moment, whatever dies. The others are posted in the shard's outbox by the same
step, and moved on when all steps are done: outcomes come before what follows, and what follows outcomes of several
shards into one comes in their order. For that, what stays is posted too where an earlier outcome of another shard sends
something to the same place.

Reports leave with what their outcome sends to the family of the flows' queue, in one run for all its partitions: only
the script knows what is reported, and to which flow. So what a job left for its flow is there before its report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec import Struct, field, structs

from accoda.errors import StorageError
from accoda.model import NewJob, Outcome, Refused, Why
from accoda.storage.redis.keys import Shard
from accoda.storage.redis.outbox import FLOWS, Outbox, Run, seal


class Post(Struct):
    """Follow-ups of one outcome, by its place in the step, that leave with one run for the shard with this tag."""

    place: int
    run: Run
    tag: str
    jobs: list[NewJob] = field(default_factory=list)

    @property
    def takes_reports(self) -> bool:
        return _way_to(self.tag) == FLOWS

    def sealed(self) -> bytes:
        return seal(self.tag, self.jobs)


class Step(Struct):
    """Outcomes of one shard, with the follow-ups that stay in it, their places in the call, and what leaves it."""

    shard: Shard
    outcomes: list[Outcome] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)


Runs = list[tuple[Run, Shard]]  # with the shard in whose outbox each is
Places = list[tuple[int, Why]]  # refused outcomes of a call, by their places in it
Settled = tuple[Places, list[str]]  # and the runs with reports, by name, that are in the shard's outbox
Settle = Callable[[Shard, Sequence[Outcome], Sequence[Post]], Awaitable[Settled]]


def _way_to(tag: str) -> str:
    """What shares a run if it leaves the same shard: all for one shard, or for any partition of the flows' family."""
    return FLOWS if tag.partition("/")[0] == FLOWS else tag


def cut(
    outcomes: Sequence[Outcome], sources: Sequence[Shard], tags: Sequence[Sequence[str]], new_name: Callable[[], str]
) -> tuple[list[Step], Runs]:
    """The steps, and the runs in the order in which they are to be delivered.

    `sources` are the shards of the leases, `tags` those of each outcome's follow-ups. The runs have no jobs yet: only
    those of outcomes that are accepted will leave.

    What goes from one shard to one other is one run, so it arrives in its order whichever client moves it on. Only
    where something from a third shard comes in between is it two.
    """
    steps: dict[str, Step] = {}
    runs: Runs = []
    last: dict[str, tuple[Run, Shard]] = {}  # by their way
    sent_to: set[str] = set()
    for place, (outcome, source, ways) in enumerate(zip(outcomes, sources, tags, strict=True)):
        step = steps.setdefault(source.root, Step(source))
        home, stay = source.tag, []
        posts: dict[str, Post] = {}
        for job, tag in zip(outcome.then, ways, strict=True):
            if tag == home and tag not in sent_to:
                stay.append(job)
                continue
            sent_to.add(tag)
            way = _way_to(tag)
            if way not in last or last[way][1].root != source.root:
                last[way] = (Run(new_name()), source)
                runs.append(last[way])
            if tag not in posts:
                posts[tag] = Post(len(step.places), last[way][0], tag)
            posts[tag].jobs.append(job)
        step.posts += posts.values()
        step.outcomes.append(structs.replace(outcome, then=stay) if ways else outcome)
        step.places.append(place)
    return list(steps.values()), runs


async def settle_across(steps: Sequence[Step], runs: Runs, settle: Settle, outbox: Outbox) -> list[Refused]:
    """Carry out the steps, each by `settle`, then deliver the runs of accepted outcomes."""
    refused: dict[int, Refused] = {}
    reported: dict[str, Shard] = {}
    for step in steps:
        places, names = await settle(step.shard, step.outcomes, step.posts)
        not_applied = dict(places)
        reported |= dict.fromkeys(names, step.shard)
        for at, why in not_applied.items():
            refused[step.places[at]] = Refused(step.outcomes[at].lease, why)
        for post in step.posts:
            if post.place not in not_applied:
                post.run.add(post.tag, post.jobs)
    # After all steps: a node that is away must not keep the other outcomes waiting until their leases end.
    for run, source in runs:
        if run.name in reported:
            await outbox.move_on(reported.pop(run.name), [run.name])
            continue
        with suppress(StorageError):  # it is in the outbox, and will be moved on
            if run.jobs:
                await outbox.deliver(run)
                await outbox.clear(source, [run.name])
    for name, source in reported.items():
        await outbox.move_on(source, [name])
    return [refused[place] for place in sorted(refused)]
