"""What a changed contract means for jobs that are already stored, and for workers that still run the old code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import IntEnum
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from accoda.contract.model import Contract, Field, Queue
from accoda.contract.wire import Wire, shape_of
from accoda.envelope import payload_of, type_of
from accoda.model import Cursor, State
from accoda.storage.protocol import Store


class Verdict(IntEnum):
    """How dangerous a change is (`docs/contracts.md`); the number is the exit code."""

    SAFE = 0
    WORKERS_FIRST = 1
    BREAKS = 2

    def __str__(self) -> str:
        return ("safe", "safe after deploy of workers", "breaks stored jobs")[self]


class Change(Struct, frozen=True):
    """One difference. `stored` is how many stored jobs its queue's changes would break, if that was counted.

    `silent`: stored jobs may be read as something else without an error, so all of them count as broken.
    """

    queue: str
    verdict: Verdict
    text: str
    silent: bool = False
    stored: int | None = None

    def __str__(self) -> str:
        count = "" if self.stored is None else f" ({self.stored:,} stored now)"
        return f"{self.verdict}: {self.queue}: {self.text}{count}"


def compare(old: Contract, new: Contract) -> list[Change]:
    """Every difference, the most dangerous first."""
    renamed = dict(_renamed_queues(old, new))
    changes = [change for queue in old.queues for change in _queue(queue, new, renamed.get(queue.name))]
    known = {queue.name for queue in old.queues}.union(renamed.values())
    changes += [Change(queue.name, Verdict.SAFE, "the queue is new") for queue in new.queues if queue.name not in known]
    return sorted(changes, key=lambda change: -change.verdict)


def _renamed_queues(old: Contract, new: Contract) -> Iterator[tuple[str, str]]:
    """Old name and new name of queues that kept their id."""
    by_id = {queue.id: queue.name for queue in new.queues}
    for queue in old.queues:
        name = by_id.get(queue.id)
        if name is not None and new.queue(queue.name) is None and old.queue(name) is None:
            yield queue.name, name


def _queue(old: Queue, after: Contract, renamed: str | None) -> Iterator[Change]:
    new = after.queue(old.name)
    if new is None:
        if renamed is not None:
            text = f"the queue was renamed to {renamed}; jobs under the old name have no handler any more"
        else:
            text = "the queue was removed; its jobs have no handler any more"
        yield Change(old.name, Verdict.BREAKS, text)
        return
    if (new.queue_name, new.type_name) != (old.queue_name, old.type_name):
        words = [_place(queue) for queue in (new, old)]
        yield Change(old.name, Verdict.BREAKS, f"its jobs are in {words[0]} now, were in {words[1]}", silent=True)
    if new.id != old.id:
        text = f"its id is {new.id} now, was {old.id}: settings and metrics use it"
        yield Change(old.name, Verdict.WORKERS_FIRST, text)
    for change in _fields(old, new):
        yield Change(old.name, *change)
    earlier, later = old.settings.written(), new.settings.written()
    for name in dict.fromkeys((*earlier, *later)):
        if earlier.get(name) != later.get(name):
            words = [_written(values.get(name)) for values in (later, earlier)]
            order = _order(earlier.get(name), later.get(name)) if name == "policy" else ""
            yield Change(old.name, Verdict.SAFE, f"{name} is {words[0]} now, was {words[1]}{order}")


def _written(value: object) -> str:
    return "the default" if value is None else value if isinstance(value, str) else json.dumps(value)


def _place(queue: Queue) -> str:
    typed = "" if queue.type_name is None else f" with the type {queue.type_name}"
    return f"the queue {queue.queue_name}{typed}"


def _order(was: str | None, now: str | None) -> str:
    """Ranks are stored: those of `aging` are moments in milliseconds, those of `strict` small numbers."""
    if (was == "aging") == (now == "aging"):
        return ""
    return f"; stored jobs keep their ranks, and run {'after' if was == 'aging' else 'before'} all new ones"


def _fields(old: Queue, new: Queue) -> Iterator[tuple[Verdict, str] | tuple[Verdict, str, bool]]:
    """Place by place, because on the wire fields have places, not names."""
    old_names, new_names = ({field.name for field in queue.fields} for queue in (old, new))
    for number, (was, now) in enumerate(zip_longest(old.fields, new.fields), 1):
        if was is None:
            yield _added(now)
        elif now is None:
            gone = f"field {was.name} at the end was removed; stored jobs that have it are read without it"
            yield Verdict.SAFE if was.has_default else Verdict.WORKERS_FIRST, gone
        elif was.name == now.name:
            yield from _field(was, now)
        elif was.name in new_names or now.name in old_names:
            yield Verdict.BREAKS, f"place {number} is {now.name} now, was {was.name}: add fields at the end only", True
        else:
            yield from _renamed(was, now)


def _added(now: Field) -> tuple[Verdict, str]:
    if now.has_default:
        return Verdict.WORKERS_FIRST, f"field {now.name} is new, at the end; stored jobs get its default"
    return Verdict.BREAKS, f"field {now.name} is new and has no default; give it one, or make it optional"


def _renamed(was: Field, now: Field) -> Iterator[tuple[Verdict, str]]:
    changes = list(_field(was, now))
    if max((verdict for verdict, _ in changes), default=Verdict.SAFE) is Verdict.BREAKS:
        words = f"field {was.name} ({was.type.word}) was replaced by {now.name} ({now.type.word})"
        yield Verdict.BREAKS, f"{words}; add it at the end instead"
        return
    yield Verdict.SAFE, f"field {was.name} was renamed to {now.name}; on the wire it has no name"
    yield from changes


def _field(was: Field, now: Field) -> Iterator[tuple[Verdict, str]]:
    name = now.name
    if was.type.python != now.type.python:
        if (was.type.word, now.type.word) in _WIDER:
            text = f"field {name} is {now.type.word} now, which reads every {was.type.word} too (rounded beyond 2^53)"
            yield Verdict.WORKERS_FIRST, text
        else:
            yield Verdict.BREAKS, f"field {name} is {now.type.word} now, was {was.type.word}; add a new field instead"
    if now.optional and not was.optional:
        yield Verdict.WORKERS_FIRST, f"field {name} is optional now"
    if was.optional and not now.optional:
        yield Verdict.BREAKS, f"field {name} is not optional any more; stored jobs may have None there"
    if was.has_default and not now.has_default:
        yield Verdict.BREAKS, f"field {name} has no default any more; stored jobs may end before it"
    elif was.has_default and now.has_default and was.given_default != now.given_default:
        yield Verdict.SAFE, f"field {name} has another default; stored jobs that end before it get the new one"


_WIDER = {("int", "float"), ("int64", "float")}
_STATES: tuple[State, ...] = ("ready", "held", "delayed", "taken", "dead")


async def count_broken(changes: list[Change], old: Contract, new: Contract, store: Store) -> list[Change]:
    """The changes, with the number of stored jobs that each breaks. Reads every job of their queues."""
    counted: dict[str, int] = {}
    silent = {change.queue for change in changes if change.silent}
    for change in changes:
        name = change.queue
        if change.verdict is Verdict.BREAKS and name not in counted:
            counted[name] = await _broken_in(old.queue(name), None if name in silent else new.queue(name), store)
    return [replace(each, stored=counted[each.queue]) if each.verdict is Verdict.BREAKS else each for each in changes]


async def _broken_in(old: Queue | None, queue: Queue | None, store: Store) -> int:
    """How many stored jobs of `old` cannot be read by `queue`; None: none of them can be read."""
    if old is None:  # only what was there can break
        return 0
    decode = None if queue is None else Wire(old.name, shape_of(queue)).decode
    broken = 0
    for state in _STATES:
        after: Cursor | None = None
        while jobs := await store.browse(old.queue_name, state, order="id", after=after, limit=1000):
            after = jobs[-1].cursor("id")
            for job in jobs:
                if type_of(job.data) != old.type_name:
                    continue
                if decode is None:
                    broken += 1
                    continue
                try:
                    decode(payload_of(job.data))
                except Exception:  # of whatever kind: the new worker could not read it
                    broken += 1
    return broken
