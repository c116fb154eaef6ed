"""End to end: a worker among thousands of damaged payloads does the good ones, buries the bad ones, and lives."""

from pathlib import Path
from random import Random

import msgspec
from proof.fuzz.bytes import Source

from accoda import App, NewJob, Worker, WorkerOptions
from accoda.payload import Codec, UnreadablePayload

JOBS = 10_000


class Email(msgspec.Struct, forbid_unknown_fields=True):
    to: str
    user_id: int
    tags: list[str] = []


def is_readable(data: bytes) -> bool:
    try:
        Codec(Email).decode(data)
    except UnreadablePayload:
        return False
    return True


async def test_the_good_are_done_and_the_unreadable_are_buried_one_by_one(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db?durability=fast")
    seen: list[int] = []

    @app.handler("emails", batch=100)
    async def send(email: Email) -> None:
        seen.append(email.user_id)

    source, random = Source(7), Random(7)
    good = [msgspec.msgpack.encode(Email(f"user{n}@example.com", n, ["a", "b"])) for n in range(JOBS // 2)]
    jobs = [NewJob("emails", data) for data in good]
    jobs += [NewJob("emails", source.next(good, [b"\xa7user_id", b"\xa2to", b"\xc0"])[:200_000]) for _ in good]
    random.shuffle(jobs)
    readable = sum(is_readable(job.data) for job in jobs)
    assert JOBS // 2 <= readable < JOBS * 0.8
    async with app:
        ids = [enqueued.id for enqueued in await app.storage.enqueue(jobs)]
        worker = Worker(app, WorkerOptions(burst=True))
        await worker.run()
        counts = (await app.storage.stats()).queues["emails"]
        assert (counts.done, counts.dead, counts.total) == (readable, JOBS - readable, JOBS - readable)
        assert len(seen) == readable
        assert set(range(JOBS // 2)) <= set(seen)
        reasons: list[str] = []
        for id, job in zip(ids, jobs, strict=True):
            if not is_readable(job.data) and len(reasons) < 2000:
                info = await app.find(id)
                assert info is not None
                assert (info.state, info.data, info.attempts) == ("dead", job.data, 0)
                reasons.append(info.reason or "")
    assert all(reason.startswith("UnreadablePayload: the payload is no Email: ") for reason in reasons)
    assert sum("user_id must be an integer" in reason for reason in reasons) > 10
    assert any("to is missing" in reason for reason in reasons)
