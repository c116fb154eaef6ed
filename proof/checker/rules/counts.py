"""Whether the store's own figures fit what its clients were told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import inf

from msgspec import Struct, field

from accoda.model import REPORTS, QueueStats
from proof.checker.ledger import Ledger, Life
from proof.checker.rules.attempts import expiries
from proof.checker.rules.base import Broken, Options
from proof.checker.rules.hidden import Hidden

_COUNTERS = (
    ("done", "done"), ("retry", "retried"), ("bury", "buried"), ("expired", "expired"), ("cancelled", "cancelled"),
)  # fmt: skip


class _Sum(Struct):
    """What the calls for one queue come to: `sure` at least, and `maybe` as much more."""

    sure: Counter[str] = field(default_factory=Counter)
    maybe: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    unseen: bool = False  # some jobs are gone, and with how many attempts is not known


def counters_conserve(ledger: Ledger, options: Options) -> Iterable[Broken]:
    if ledger.final is None:
        return
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for life in ledger.lives.values():
        _add_life(sums[life.queue], life, ledger)
    _add_queues(sums, ledger, options)
    for queue, stats in ledger.final.queues.items():
        yield from _compare(queue, stats, sums[queue])
        yield from _conserved(queue, stats, sums[queue])


def _add_life(total: _Sum, life: Life, ledger: Ledger) -> None:
    for outcome in life.outcomes:
        (total.sure if outcome.sure else total.maybe)[outcome.kind] += 1
    if life.leases or life.final is not None:
        least, most = expiries(life, ledger)
        total.sure["expired"] += least
        total.maybe["expired"] += most - least
    if life.id in ledger.damaged:
        total.maybe["bury"] += 1  # a client that cannot read a record buries it
    if life.final is not None:
        total.states[life.final.state] += 1
        # Its lease may have ended between the look at the job and the look at the counters.
        total.maybe["expired"] += life.final.state == "taken"
    elif not any(outcome.sure and outcome.kind == "done" for outcome in life.outcomes):
        total.unseen = True
    if life.born is not None:
        total.sure["created"] += 1
    removals = [each for each in life.removals if each.change.kind == "remove"]
    cancels = [each for each in life.removals if each.change.kind == "cancel"]
    if cancels:
        (total.sure if any(each.sure for each in cancels) else total.maybe)["cancelled"] += 1
    if removals and not cancels and not any(outcome.kind == "done" for outcome in life.outcomes):
        certain = any(each.sure for each in removals)
        (total.sure if certain else total.maybe)["removed"] += 1
    elif removals:
        total.maybe["removed"] += 1  # what was kept was removed, or the removal came before an unknown Done or Cancel


def _add_queues(sums: dict[str, _Sum], ledger: Ledger, options: Options) -> None:
    for _, asked in ledger.maybe_asked:
        sums[asked.queue].maybe["created"] += 1
    for _, asked, sure in ledger.follow_ups:
        total = sums[asked.queue]
        (total.sure if sure and asked.key is None else total.maybe)["created"] += 1
    if ledger.reporting:
        sums[REPORTS].maybe["created"] += 1 << 60  # a report makes the job that it is for
    hidden = Hidden(ledger, options)
    for queue, total in sums.items():
        total.maybe["expired"] += hidden.most_expired(queue, of_answered=False)
        # Of a job that is seen later, its attempts tell of every lease. Others may be gone before they were seen.
        if total.unseen or queue in ledger.purges:
            total.maybe["expired"] += hidden.most_expired(queue, of_answered=True)
    for queue, calls in ledger.purges.items():
        for call in calls:
            sums[queue].maybe["removed"] += call.end.count if call.ok else 1 << 60


def _compare(queue: str, stats: QueueStats, total: _Sum) -> Iterator[Broken]:
    waiting = stats.ready + stats.held + stats.delayed + stats.taken
    found = sum(total.states[state] for state in ("ready", "held", "delayed", "taken"))
    if waiting != found:  # one by one they may differ: time moves jobs between the looks
        text = f"stats say ready + held + delayed + taken = {waiting}, but there are {found} such jobs"
        yield Broken(None, f"{queue}: {text}")
    if stats.dead != total.states["dead"]:
        yield Broken(None, f"{queue}: stats say {stats.dead} dead, but there are {total.states['dead']}")
    if stats.total != waiting + stats.dead:
        yield Broken(
            None, f"{queue}: stats say {stats.total} in total, but the states add up to {waiting + stats.dead}"
        )
    for kind, name in _COUNTERS:
        told, least = getattr(stats, name), total.sure[kind]
        most = least + total.maybe[kind]
        if not least <= told <= most:
            text = f"{least}" if least == most else f"{least} to {most}"
            yield Broken(None, f"{queue}: the counter {name} says {told}, but by the calls it is {text}")


def _conserved(queue: str, stats: QueueStats, total: _Sum) -> Iterator[Broken]:
    """Every job that was enqueued is ready, held, delayed, taken, done, dead, cancelled or removed."""
    here = stats.ready + stats.held + stats.delayed + stats.taken
    here += stats.dead + stats.done + stats.cancelled + total.sure["removed"]
    room = total.maybe["removed"] if total.maybe["removed"] < 1 << 60 else inf
    created, maybe = total.sure["created"], total.maybe["created"]
    if here > created + maybe or here + room < created:
        asked = f"{created}" if not maybe else f"{created} to {created + maybe}"
        states = "ready + held + delayed + taken + done + dead + cancelled + removed"
        text = f"{queue}: {asked} were enqueued, but {states} = {here}"
        yield Broken(None, text + (f" to {here + room:g}" if room else ""))
