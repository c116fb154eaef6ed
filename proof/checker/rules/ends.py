"""How a job comes into the store, and how it leaves it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from accoda.model import REPORTS
from proof.checker.ledger import Ledger, Life, Outcome, Touch
from proof.checker.records import Asked
from proof.checker.rules.base import Broken, Options

Content = tuple[str, int, int]
_REPORTED: Content = (REPORTS, 0, 0)


def lost(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A job that was acknowledged or seen is there in the end, or done, removed or cancelled (perhaps by an unknown
    call)."""
    purged: dict[str, list[Life]] = defaultdict(list)
    for life in ledger.lives.values():
        if life.final is not None or not life.there or life.removals:
            continue
        if any(outcome.kind == "done" for outcome in life.outcomes):
            continue
        if life.queue in ledger.purges:
            purged[life.queue].append(life)
        else:
            yield _lost(life)
    for queue, lives in purged.items():
        # A purge tells how many, not which: as many may be missing.
        calls = ledger.purges[queue]
        if all(call.ok for call in calls):
            room = sum(call.end.count for call in calls)
            yield from map(_lost, lives[room:])
    yield from _lost_follow_ups(ledger)


def _lost(life: Life) -> Broken:
    buried = any(outcome.kind == "bury" for outcome in life.outcomes)
    calls = [life.born.call] if life.born is not None else []
    calls += [lease.call for lease in life.leases] + [outcome.call for outcome in life.outcomes]
    where = "among the dead letters" if buried else "in the store, nor done"
    return Broken(
        life.id, f"acknowledged or seen, but in the end it is not {where}, and no call removed it", tuple(calls)
    )


def _lost_follow_ups(ledger: Ledger) -> Iterator[Broken]:
    """The id of a follow-up is not told. There must be as many jobs of unknown origin with its content."""
    wanted: Counter[Content] = Counter()
    for _, asked, sure in ledger.follow_ups:
        if sure and asked.key is None and asked.queue not in ledger.purges:
            wanted[asked.content] += 1
    if not wanted:
        return
    found = Counter(content for content, lives in _unborn(ledger).items() for _ in lives)
    for content, count in wanted.items():
        if found[content] < count:
            calls = {call.number: call for call, asked, _ in ledger.follow_ups if asked.content == content}
            text = f"{count} follow-ups for {content[0]} ({content[1]} bytes), but {found[content]} such jobs were seen"
            yield Broken(None, text, tuple(calls.values())[:10])


def _unborn(ledger: Ledger) -> dict[Content, list[Life]]:
    """Jobs that were seen but that no answered enqueue told of, by content."""
    unborn: dict[Content, list[Life]] = defaultdict(list)
    for life in ledger.lives.values():
        if life.born is None and life.there:
            content = life.content()
            if content is not None:
                unborn[content].append(life)
    return unborn


def from_nowhere(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """An unknown enqueue, or a follow-up, can explain one job each. No call made what more is seen."""
    room = Counter(asked.content for asked in _unnamed(ledger))
    replacing = {placing.asked.content for placings in ledger.maybe_replaced.values() for placing in placings}
    for content, lives in _unborn(ledger).items():
        if content in replacing:
            continue  # an older job may have got this content
        if content == _REPORTED and ledger.reporting:
            continue  # a report makes the job that it is for
        # A job that was replaced before it was seen shows the new content. `_unexplained` looks at its key.
        lives = [life for life in lives if not _replaced_with(life, content)]
        for life in lives[room[content] :]:
            text = f"seen in {content[0]} ({content[1]} bytes), but no enqueue can have made it"
            yield Broken(life.id, text, tuple(lease.call for lease in life.leases[:1]))
    yield from _unexplained(ledger)


def _replaced_with(life: Life, content: Content) -> bool:
    return any(placing.what == "replaced" and placing.asked.content == content for placing in life.placings)


def _unnamed(ledger: Ledger) -> Iterator[Asked]:
    return chain((asked for _, asked in ledger.maybe_asked), (asked for _, asked, _ in ledger.follow_ups))


def _unexplained(ledger: Ledger) -> Iterator[Broken]:
    """Jobs that are named in answers though nothing else is known of them."""
    keys: set[tuple[str, str | None]] | None = None
    for life in ledger.lives.values():
        if any(placing.what == "created" for placing in life.placings):
            calls = [life.born.call] if life.born is not None else []
            text = "two enqueues were told that they created it"
            yield Broken(life.id, text, (*calls, *(each.call for each in life.placings if each.what == "created")))
        content = life.content() if life.born is None and life.placings else None
        if life.born is None and life.placings and (content is None or _replaced_with(life, content)):
            if keys is None:
                keys = {(asked.queue, asked.key) for asked in _unnamed(ledger)}
                keys |= {(REPORTS, flow) for flow in ledger.reporting}
            if (life.queue, life.placings[0].asked.key) not in keys:
                text = f"an enqueue was told {life.placings[0].what}, but no enqueue can have made the job"
                yield Broken(life.id, text, (life.placings[0].call,))
        known = {lease.attempts for lease in life.leases}
        for outcome in life.outcomes:
            # The holder of a lease was told of it by a take. If the end of a take is unknown, it may be that one.
            if outcome.sure and outcome.attempts not in known and not ledger.unknown_takes.get(life.queue):
                text = f"{outcome.kind} of attempts {outcome.attempts} was accepted, but no take was given that lease"
                yield Broken(life.id, text, (outcome.call,))


def done_twice(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        if len(life.outcomes) > 1:
            done = [outcome.call for outcome in life.outcomes if outcome.sure and outcome.kind == "done"]
            if len(done) > 1:
                yield Broken(life.id, f"Done was accepted {len(done)} times", tuple(done))


def resurrected(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        for outcome in life.outcomes:
            if outcome.sure and outcome.kind == "done":
                yield from _after_done(life, outcome)
            elif outcome.sure and outcome.kind == "bury":
                yield from _after_bury(life, outcome)
        for removal in life.removals:
            if removal.sure:
                yield from _after_removal(life, removal)


def _after_done(life: Life, done: Outcome) -> Iterator[Broken]:
    over = done.call.ended
    for lease in life.leases:
        # A higher lease means that this one had come back: it cannot have been done as well, whatever came first. That
        # the higher one was there before is the rule on stale tokens.
        if lease.call.started > over or (lease.attempts > done.attempts and lease.call.ended >= done.call.started):
            yield Broken(life.id, f"taken with attempts {lease.attempts} after it was done", (done.call, lease.call))
    for sight in life.sights:
        if sight.call.started > over and sight.seen.state != "done":
            yield Broken(life.id, f"seen as {sight.seen.state} after it was done", (done.call, sight.call))
    for placing in life.placings:
        if placing.call.started > over:
            yield Broken(life.id, f"an enqueue was told {placing.what} after it was done", (done.call, placing.call))
    if life.final is not None and life.final.state != "done":
        yield Broken(life.id, f"done, but {life.final.state} in the end", (done.call,))


def _after_bury(life: Life, bury: Outcome) -> Iterator[Broken]:
    """Only `revive` brings a dead job back, with attempts that are one higher."""
    for lease in life.leases:
        if lease.attempts > bury.attempts and not any(x.call.started <= lease.call.ended for x in life.revivals):
            text = f"taken with attempts {lease.attempts} though it was buried and not revived"
            yield Broken(life.id, text, (bury.call, lease.call))
    if life.final is not None and life.final.state != "dead" and not life.revivals:
        yield Broken(life.id, f"buried, but {life.final.state} in the end, though it was not revived", (bury.call,))


def _after_removal(life: Life, removal: Touch) -> Iterator[Broken]:
    """A job that was cancelled may be kept, and is then seen as cancelled."""
    did, stays = ("cancelled", "cancelled") if removal.change.kind == "cancel" else ("removed", None)
    named = [each.call for each in life.leases] + [each.call for each in life.placings]
    for later in named + [each.call for each in life.sights if each.seen.state != stays]:
        if later.started > removal.call.ended:
            yield Broken(life.id, f"named by a {later.verb} after it was {did}", (removal.call, later))
    if life.final is not None and life.final.state != stays:
        yield Broken(life.id, f"{did}, but {life.final.state} in the end", (removal.call,))


def told_cancelled(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        cancels = [each.call for each in life.removals if each.change.kind == "cancel"]
        for call in life.told_cancelled:
            if not any(cancel.started <= call.ended for cancel in cancels):
                yield Broken(life.id, "refused as cancelled, but no call had cancelled it", (call,))
