"""The delivery log: what was sent where, how often, and what came back. It is the queue of calls itself.

Calls that wait, run or are dead stay in it; delivered ones are kept for a week.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import ENDED, STATES, ById, Cursor, JobInfo, NewJob, Revive, State, check_state
from accoda.storage.protocol import Store
from accoda.times import rfc3339
from accoda.webhooks.call import KEEP_FOR, QUEUE, Delivered, body, read_call
from accoda.webhooks.decide import status_of

PAGE = 50
MOST = 1000


class Delivery(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call for people to look at. Moments are RFC 3339 texts; `tries` counts those that ended.

    `status` is that of the last answer, None if there was none; `next_at` is when a failed call is tried again.
    """

    id: int
    state: State
    url: str
    event: str
    message: str
    job: int | None
    queue: str | None
    tries: int
    status: int | None = None
    ms: int | None = None
    answer: str | None = None
    reason: str | None = None
    created_at: str
    next_at: str | None = None
    ended_at: str | None = None


async def deliveries(
    store: Store, *, state: State | None = None, before: int | None = None, limit: int = PAGE
) -> list[Delivery]:
    """A page of the log, newest first. The next page begins before the id of the last call of this one."""
    if state is not None:
        check_state(state)
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise InvalidInput("limit", f"must be an integer from 1 to {MOST}, not {limit!r:.60}")
    found: dict[int, JobInfo] = {}
    for each in STATES if state is None else (state,):
        found.update((info.id, info) for info in await _newest(store, each, before, limit))
    return [delivery(found[id]) for id in sorted(found, reverse=True)[:limit]]


async def find(store: Store, id: int) -> tuple[Delivery, bytes | None]:
    """One call and the message that it sends; None if the call cannot be read."""
    info = await _find(store, id)
    call = read_call(info.data)
    return delivery(info), None if call is None else body(call, info.created_at)


async def redeliver(store: Store, id: int) -> int:
    """Send a call again now, with the same message id; the id of the call that does it.

    A dead call is revived, and one that waits for its next try is sent now; a delivered one stays in the log, and a
    copy of it is sent. Each has all its tries again.
    """
    info = await _find(store, id)
    call = read_call(info.data)
    if call is None:
        raise _not_sent(id, "it cannot be read; it was written by a newer Accoda, or damaged")
    match info.state:
        case "taken" | "ready":
            raise _not_sent(id, "it is being sent, or about to be")
        case "dead":
            if not await store.change([Revive(id, queue=QUEUE)]):
                raise _not_sent(id, "it changed just now, or the same message is on its way already")
            return id
    # The message says when the job ended, and that must not change with the call that carries it.
    ended_at = info.created_at if call.subject.ended_at is None else call.subject.ended_at
    data = msgspec.msgpack.encode(replace(call, subject=replace(call.subject, ended_at=ended_at)))
    # The copy has the same key, so it replaces a call that waits in one step: the message cannot be sent twice.
    copy = NewJob(QUEUE, data, key=call.message, on_duplicate="replace", keep_for=KEEP_FOR)
    [answer] = await store.enqueue([copy])
    return answer.id


def delivery(info: JobInfo) -> Delivery:
    """What the log says of a call."""
    call = read_call(info.data)
    done = _delivered(info.result)
    ended = info.state in ENDED
    return Delivery(
        id=info.id,
        state=info.state,
        url=call.url if call else "?",
        event=call.event if call else "?",
        message=call.message if call else "?",
        job=call.subject.id if call else None,
        queue=call.subject.queue if call else None,
        tries=info.tries + (1 if ended else 0),
        status=done.status if done else status_of(info.reason),
        ms=done.ms if done else None,
        answer=done.answer if done else None,
        reason=None if done else info.reason,
        created_at=rfc3339(info.created_at),
        next_at=rfc3339(info.start_time) if info.state == "delayed" else None,
        ended_at=rfc3339(info.ended_at),
    )


async def _newest(store: Store, state: State, before: int | None, limit: int) -> list[JobInfo]:
    """The last `limit` calls in a state before an id. Pages by id go upwards, so the start is found by bisection."""

    async def page(after: int) -> list[JobInfo]:
        found = await store.browse(QUEUE, state, order="id", after=Cursor(0.0, after), limit=limit)
        return [info for info in found if before is None or info.id < before]

    best = await page(0)
    if len(best) < limit:
        return best
    low, high = best[0].id - 1, best[-1].id  # after `low` there is a full page; is there one after `high`?
    while len(found := await page(high)) == limit:
        best, low, high = found, found[0].id - 1, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        found = await page(middle)
        if len(found) == limit:
            best, low = found, max(middle, found[0].id - 1)
        else:
            high = middle
    return best


async def _find(store: Store, id: int) -> JobInfo:
    info = (await store.look(ById(id))).job
    if info is None or info.queue != QUEUE:
        other = "" if info is None else f"; job {id} is one of {info.queue}"
        raise NotFound("webhook call", str(id), f"delivered ones are remembered for a week{other}")
    return info


def _not_sent(id: int, problem: str) -> Conflict:
    return Conflict(f"call {id} is not sent again: {problem}")


def _delivered(result: bytes | None) -> Delivered | None:
    if result is None:
        return None
    try:
        return _decoder.decode(result)
    except ValueError:
        return None


_decoder = msgspec.msgpack.Decoder(Delivered)
