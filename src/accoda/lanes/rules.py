"""Which rules hold for the lanes of a queue: those that its handler declares, with what people changed laid over them.

Both are in one document, `lanes/{queue}`. What people changed is kept field by field and lane by lane, so a deployment
with other rules in its code leaves it in place. The rules that follow from the document are given to the store, which
applies them.

The write and `set_lanes` are two steps, and somebody else may write between them. So whoever has called `set_lanes`
reads the document again, and repeats all of it if the version has moved. Then two that write at once leave the newest
rules in force. Consider the last call of `set_lanes`: the read after it finds the version whose rules it set, or the
repetition finds that they are the same. Whatever is written after that read is followed by a look at the rules in
force, which sees them, and by another `set_lanes` if they differ. Only a process that ends between its two steps can
leave other rules in force, until the next call about the queue, such as that of a worker that starts.

A store may refuse a `shared` (on a Redis Cluster only queues of one family can share limits), and then nothing of the
change may stay. So rules with a `shared` are given to the store before they are written, too. That is one more call of
`set_lanes`, which the same look follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import InvalidInput, VersionConflict
from accoda.model import Lanes, check_lane, check_queue
from accoda.payload import read_json
from accoda.storage.checks import check_write
from accoda.storage.protocol import Storage, Store

PREFIX = "lanes/"
"""The document of a queue's rules is `lanes/{queue}`."""
_FIELDS = Lanes.__struct_fields__
_BY_LANE = ("limits", "weights")

log = logging.getLogger("accoda.lanes")


class QueueRules(Struct, frozen=True, omit_defaults=True):
    """The document: what the handler declares (None: nothing), and the fields that people changed."""

    declared: Lanes | None = None
    changed: dict[str, Any] = {}

    def __post_init__(self) -> None:
        check_changes(self.changed)

    def in_force(self) -> Lanes | None:
        """The rules that follow."""
        if self.declared is None and not self.changed:
            return None
        declared = self.declared or Lanes()
        by_lane = {field: {**getattr(declared, field), **self.changed.get(field, {})} for field in _BY_LANE}
        return replace(declared, **{**self.changed, **by_lane})

    @property
    def shared(self) -> str | None:
        """With which queues the limits that follow are shared."""
        rules = self.in_force()
        return None if rules is None else rules.shared

    def with_changes(self, changes: Mapping[str, Any]) -> QueueRules:
        """The same, with more changes."""
        changed = {**self.changed, **changes}
        for field in _BY_LANE:
            if field in changes:
                changed[field] = {**self.changed.get(field, {}), **changes[field]}
        return replace(self, changed={field: value for field, value in changed.items() if value != {}})

    def without_changes(self, lane: str | None) -> QueueRules:
        """As declared; with a lane, only for that one."""
        if lane is None:
            return replace(self, changed={})
        changed = dict(self.changed)
        for field in changed.keys() & set(_BY_LANE):
            changed[field] = {name: value for name, value in changed[field].items() if name != lane}
        return replace(self, changed={field: value for field, value in changed.items() if value != {}})


async def declare(store: Store, queue: str, rules: Lanes | None) -> None:
    """Say what the code declares for a queue, as a worker that starts does. What people changed stays."""
    if rules is None and await store.read(PREFIX + queue) is None:
        return  # who writes it from now on applies it, too
    await _edit(store, queue, lambda found: replace(found, declared=rules))


async def declare_all(store: Store, declared: Mapping[str, Lanes | None]) -> None:
    """`declare` for the queues of a worker. One look tells which of those without rules in the code have a document."""
    known = {document.name for document in await store.documents(PREFIX)}
    for queue, rules in declared.items():
        if rules is not None or PREFIX + queue in known:
            await declare(store, queue, rules)


async def change(store: Store, queue: str, changes: Mapping[str, object]) -> Lanes | None:
    """Change rules of a queue, and give those in force: `change(store, "reports", {"limit": 3, "limits": {"a": 0}})`.

    `limits` and `weights` change the lanes that they name and no others. A change holds until `reset`, whatever the
    code declares. All of the changes or, where one cannot be used, none (`InvalidInput`).
    """
    check_changes(changes)
    return await _edit(store, queue, lambda found: found.with_changes(changes))


async def reset(store: Store, queue: str, lane: str | None = None) -> Lanes | None:
    """Forget what was changed, so that the rules are as declared, and give them. With `lane`, only for that lane."""
    if lane is not None:
        check_lane(lane)
    return await _edit(store, queue, lambda found: found.without_changes(lane))


async def queues_with_rules(store: Storage) -> dict[str, Lanes]:
    """The queues for which rules were declared or changed, by name, and the rules that follow."""
    documents = await store.documents(PREFIX)
    found = {document.name.removeprefix(PREFIX): read_json(document.value, QueueRules) for document in documents}
    in_force = {queue: None if each is None else each.in_force() for queue, each in found.items()}
    return {queue: rules for queue, rules in in_force.items() if rules is not None}


async def group_of(store: Storage, queue: str, shared: str) -> dict[str, Lanes]:
    """The other queues whose rules have this `shared`, by name, and their rules."""
    known = await queues_with_rules(store)
    return {name: rules for name, rules in known.items() if name != queue and rules.shared == shared}


def lowest_limit(group: Iterable[Lanes], lane: str) -> int | None:
    """The limit of a lane in queues that share their limits; None: it has none."""
    limits = (rules.limit_of(lane) for rules in group)
    return min((limit for limit in limits if limit is not None), default=None)


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse changes that make no rules."""
    if not isinstance(changes, Mapping):
        raise InvalidInput("changes", f"must be a mapping such as {{'limit': 2}}, not {type(changes).__name__}")
    for field in changes:
        if field not in _FIELDS:
            raise InvalidInput(str(field)[:80], f"there is no such rule for lanes; use {', '.join(_FIELDS)}")
    Lanes(**changes)


async def _edit(store: Store, queue: str, edit: Callable[[QueueRules], QueueRules]) -> Lanes | None:
    """Write what `edit` makes of the document, and apply the rules that follow."""
    check_queue(queue)
    while True:
        found, version = await _read(store, queue)
        wanted = edit(found)
        if wanted == found:
            break
        value = msgspec.json.encode(wanted)
        if wanted.shared is not None:
            check_write(PREFIX + queue, value, version, None)  # what cannot be written must not be in force either
            await store.set_lanes(queue, wanted.in_force())
        try:
            await store.write(PREFIX + queue, value, version=version)
            break
        except VersionConflict:  # somebody else wrote it meanwhile: edit that
            continue
    return await _apply(store, queue)


async def _apply(store: Store, queue: str) -> Lanes | None:
    """Give the store the rules of the document, until the document is the one that they are from."""
    while True:
        found, version = await _read(store, queue)
        rules = (await store.lanes(queue, limit=0)).rules
        if version and rules != found.in_force():
            rules = found.in_force()
            await store.set_lanes(queue, rules)
        # After `set_lanes`: who has written meanwhile may have called it before us, and we undid that. See above.
        if (await _read(store, queue))[1] == version:
            return rules


async def _read(store: Store, queue: str) -> tuple[QueueRules, int]:
    document = await store.read(PREFIX + queue)
    if document is None:
        return QueueRules(), 0
    found = read_json(document.value, QueueRules)
    if found is None:
        log.warning("the document %s%s cannot be read, and counts as empty", PREFIX, queue)
    return found or QueueRules(), document.version
