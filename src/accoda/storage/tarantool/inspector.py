"""What people, demand and flows call, and the documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw
from msgspec.msgpack import Decoder

from accoda.errors import VersionConflict
from accoda.model import (
    ById,
    ByKey,
    Cancel,
    Change,
    Cursor,
    Document,
    JobInfo,
    Lanes,
    LanesInfo,
    Look,
    NotCrashed,
    Order,
    Remove,
    Rerank,
    Revive,
    StartNow,
    State,
    Stats,
    Target,
    check_document_name,
)
from accoda.storage import checks
from accoda.storage.tarantool import records
from accoda.storage.tarantool.client import Client
from accoda.storage.tarantool.records import STATE_NUMBERS

_PURGE_AT_ONCE = 1000
_PAGE = 1000  # jobs of one answer to browse
_KINDS: dict[type, int] = {Remove: 0, Revive: 1, StartNow: 2, Rerank: 3, NotCrashed: 4, Cancel: 5}

_FLAG: Decoder[Any] = Decoder(tuple[bool])
_COUNT: Decoder[Any] = Decoder(tuple[int])
_LEFT: Decoder[Any] = Decoder(tuple[Raw])
_PURGED: Decoder[Any] = Decoder(tuple[tuple[int, int, int]])
_WRITTEN: Decoder[Any] = Decoder(tuple[tuple[bool, int]])
_an_int = Decoder(int)
_a_name = Decoder(str)
_a_place: Decoder[int | None] = Decoder(int | None)


class TarantoolInspector:
    """Each verb is one call of one stored function, or a call for each page of it."""

    _client: Client

    async def stats(self) -> Stats:
        return Stats(await self._call("stats", (), records.STATS))

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        found = records.documents_of(await self._call("read", (name,), records.ROWS))
        return found[0] if found else None

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        checks.check_write(name, value, version, ttl)
        args = (name, value, version, None if ttl is None else round(ttl * 1000))
        written, found = await self._once("write", args, _WRITTEN)
        if not written:
            assert version is not None
            raise VersionConflict(name, version, found)
        return int(found)

    async def documents(self, prefix: str) -> list[Document]:
        checks.check_prefix(prefix)
        return records.documents_of(await self._call("documents", (prefix,), records.ROWS))

    async def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        checks.check_look(target, waiters_after)
        id = target.id if isinstance(target, ById) else None
        queue = None if isinstance(target, ById) else target.queue
        key = target.key if isinstance(target, ByKey) else None
        found: list[Raw] = await self._call("look", (id, queue, key, waiters_after, ahead), records.ROWS)
        at = _an_int.decode(found[0])
        if len(found) == 1:
            return Look(at)
        job = records.info_of(_a_name.decode(found[2]), found[1])
        return Look(
            at, job, records.waiters_of(job.id, found[3]), _a_place.decode(found[4]), _an_int.decode(found[5])
        )  # fmt: skip

    async def change(self, changes: Sequence[Change]) -> int:
        checks.check_changes(changes)
        rows = [
            (_KINDS[type(each)], each.id, each.waiters, each.queue, float(each.rank) if type(each) is Rerank else None)
            for each in changes
        ]
        applied: int = await self._once("change", (rows,), _COUNT)
        return applied

    async def browse(
        self, queue: str, state: State, *, order: Order = "line", after: Cursor | None = None, limit: int = 100
    ) -> list[JobInfo]:
        checks.check_browse(queue, state, order, after, limit)
        page: list[JobInfo] = []
        while len(page) < limit:
            place = None if after is None else (after.sort, after.id)
            most = min(_PAGE, limit - len(page))
            args = (queue, STATE_NUMBERS[state], order == "id", place, most)
            rows: list[Raw] = await self._call("browse", args, records.ROWS)
            page += [records.info_of(queue, row) for row in rows]
            if len(rows) < most:
                break
            after = page[-1].cursor(order)
        return page

    async def pause(self, queue: str, until: int | None) -> None:
        checks.check_pause(queue, until)
        await self._call("pause", (queue, until), _FLAG)

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        checks.check_set_lanes(queue, rules)
        args = (None, None, None) if rules is None else (records.encode_rules(rules), rules.total, rules.shared)
        left = None
        while left is None or bytes(left) != records.NIL:
            # In pieces: each is one transaction, and between them others have their turn.
            left = await self._once("set_lanes", (queue, *args, left), _LEFT)

    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        checks.check_lanes(queue, limit)
        return records.lanes_info_of(*await self._call("lanes", (queue, limit), records.LANES))

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        checks.check_purge(queue, state, before, limit)
        purged = 0
        while limit is None or purged < limit:
            # In pieces: each is one transaction, and between them others have their turn.
            most = None if limit is None else min(_PURGE_AT_ONCE, limit - purged)
            count, left, now = await self._once("purge", (queue, STATE_NUMBERS[state], before, most), _PURGED)
            purged += count
            if most is not None and count < most:
                break
            limit = purged + left if limit is None else limit
            before = now + 1 if before is None else before  # not what is added while this goes on
        return purged

    async def _call(self, verb: str, args: Sequence[Any], decoder: Decoder[Any]) -> Any:
        return await self._client.home.run(self._client.call(verb, args, decoder))

    async def _once(self, verb: str, args: Sequence[Any], decoder: Decoder[Any]) -> Any:
        return await self._client.home.run(self._client.once(verb, args, decoder))
