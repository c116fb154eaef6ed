"""A store, files and an app in which every text that another may write is hostile to a terminal."""

import asyncio
from pathlib import Path

import msgspec

from accoda import App, Bury, Done
from accoda.budget.ledger import Ledger
from accoda.budget.model import Account, Claim, Hold
from accoda.budget.usage import Usage, line_of
from accoda.clock import SystemClock
from accoda.demand.records import FetchPayload, write
from accoda.demand.waiters import JOINS, Entry, write_entry
from accoda.envelope import Hook, JobMetadata, wrap
from accoda.flows.coordinator import Coordinator
from accoda.flows.graph import NodeSpec
from accoda.flows.log import Summary, new_record
from accoda.http.security.tokens import Token
from accoda.model import NewJob
from accoda.operations import queues
from accoda.runtime.attempts import Attempt
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode
from accoda.runtime.results import Progress
from accoda.schedules import Schedule, create
from accoda.webhooks.call import Call, Delivered, Subject

SEEN = "PWN"
"""What is seen of a hostile text wherever it is shown."""
HOSTILE = (
    f"{SEEN}\x1b]0;title\x07\x1b[38;5;201m\x1b[6n\x1b[3J\x1bP+q\x1b\\\x9b31m\x9d0;c1\x9c\x85\x90"
    "\u202egnp\u2066\u200f\u061c\ufeff\u2028\r\b\x7f\x0e\x0c\t"
)
"""OSC, CSI and DCS in seven and in eight bits, directions, line ends, and what moves the cursor."""

MODULE = f"""
from accoda import App

HOSTILE = {HOSTILE!r}
app = App()

@app.handler("fails", max_attempts=1, keep_for=60)
async def fails(payload: dict) -> None:
    raise ValueError(HOSTILE)

@app.handler("odd", keep_for=60)
async def odd(payload: dict[str, complex]) -> None: ...
"""
FILES = {
    "hostile_app.py": MODULE,
    "hostile_import.py": f"raise ValueError({HOSTILE!r})\n",
    "settings.toml": f'[app.worker.queue]\n"{SEEN}\\u001b[6n\\u009b\\u202e" = 7\n'
    f'emails.max_processors = "\\u001b[6n{SEEN}"\n',
    "schedules.toml": f'[schedules."{SEEN}\\u001b[6n"]\nevery = "6h\\u001b]0;x\\u0007"\n',
    "good.yaml": "queues:\n  - {id: 1, name: emails, fields: [{name: to, type: string}]}\n",
    "bad.yaml": f'queues:\n  - {{id: 1, name: "{SEEN}\\e[6n\\x9b", '
    f'fields: [{{name: "{SEEN}\\e]0;x\\a", type: string}}]}}\n',
    "lines.jsonl": '{"a": 1}\n' * 20,
    "bad.jsonl": f'{{"a": 1}}\n{{{HOSTILE}}}\n',
}


async def fill(folder: Path) -> dict[str, int]:
    """Make the store and the files; the ids of jobs by what they are."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    async with App(f"sqlite:///{folder}/accoda.db") as app:
        ids = await _jobs(app)
        await _demand(app)
        await _documents(app, ids)
        ids |= await _calls(app)
        await app.storage.enqueue([NewJob("accoda.schedules", b"\xc1broken", key=HOSTILE, delay=3600)])
        payload = {HOSTILE: [HOSTILE]}
        plan = Schedule(name="daily", queue="emails", every=3600, payload=payload, job_name=HOSTILE)
        await create(app.storage, plan, app=app)
        await queues.pause(app, "paused", None, HOSTILE, HOSTILE)
        await _flow(app)
    return ids


async def _jobs(app: App) -> dict[str, int]:
    payload = msgspec.msgpack.encode({HOSTILE: HOSTILE, "list": [HOSTILE], "bytes": HOSTILE.encode()})
    metadata = JobMetadata(name=HOSTILE, hook=Hook(f"https://{HOSTILE}"), schedule=HOSTILE)
    data, ids = wrap(payload, metadata), {}
    for number, what in enumerate(("dead", "done", "taken", "ready", "delayed")):
        delay = 3600.0 if what == "delayed" else None
        job = NewJob("emails", data, key=f"{HOSTILE}{number}", keep_for=3600.0, delay=delay)
        [made] = await app.storage.enqueue([job])
        ids[what] = made.id
        if what in ("dead", "done", "taken"):
            [taken] = await app.storage.take("emails", 1, lease=3600.0, worker=HOSTILE)
            if what == "dead":
                await app.storage.settle([Bury(taken.lease, f"{HOSTILE}\n{HOSTILE}")])
            elif what == "done":
                await app.storage.settle([Done(taken.lease, result=payload)])
    [paused, *_] = await app.storage.enqueue([NewJob("paused", data), NewJob("fails", payload), NewJob("odd", payload)])
    [one] = await app.storage.enqueue([NewJob("calls", data)])
    [taken] = await app.storage.take("calls", 1, worker=HOSTILE)
    await app.storage.settle([Bury(taken.lease, HOSTILE)])
    return {**ids, "call": one.id, "paused": paused.id}


async def _flow(app: App) -> None:
    """A record that no builder has checked: a dead node, and one that is skipped for it."""
    data = wrap(b"\xc0", JobMetadata(type=HOSTILE))
    nodes = [NodeSpec(HOSTILE, "nodes", data), NodeSpec("next", "nodes", data, after=(0,))]
    await app.storage.enqueue(new_record("hostile", Summary(HOSTILE, HOSTILE), nodes))
    await Coordinator().run_once(app.storage)
    [taken] = await app.storage.take("nodes", 1)
    await app.storage.settle([Bury(taken.lease, f"{HOSTILE}\n{HOSTILE}")])
    await Coordinator().run_once(app.storage)


async def _demand(app: App) -> None:
    waiter = write_entry(Entry(JOINS, HOSTILE, HOSTILE))
    fetch = NewJob("deals", write(FetchPayload(HOSTILE)), key="books", on_duplicate="attach", waiter=waiter)
    usage = Usage(at=SystemClock().now(), operation="deals", job=1, key=HOSTILE, costs={"keepa": 5})
    await app.storage.enqueue([fetch, line_of(usage)])
    await app.storage.write("demand/deals/counts", b"{}")


async def _documents(app: App, ids: dict[str, int]) -> None:
    store, now = app.storage, SystemClock().now()
    for id in ids.values():
        await store.write(f"progress/{id}", msgspec.json.encode(Progress(0.5, HOSTILE)))
        attempts = [Attempt(0, HOSTILE, now, now, "bury", HOSTILE, HOSTILE)]
        await store.write(f"runs/{id}", msgspec.json.encode(attempts))
    busy = ProcessorState(HOSTILE, 1, 10, now)
    for id, problem in (("w1", HOSTILE), ("w2", "")):
        beat = Heartbeat(id, HOSTILE, HOSTILE, 7, now, now, (HOSTILE, "emails"), 2, (busy,), problem=problem)
        await store.write(f"worker/{id}", encode(beat), ttl=3600.0)
    token = Token(id="0123456789", name=HOSTILE, scopes=(HOSTILE,), hash=bytes(32), created_at=now)
    await store.write("tokens/0123456789", msgspec.msgpack.encode(token))
    account = Account(
        capacity=10, refill=1, per=60, left=5, at=now,
        holds={"h": Hold(1, now, now + 3_600_000, HOSTILE)},
        claims={HOSTILE: Claim(2, now, now + 3_600_000)},
    )  # fmt: skip
    await store.write("budgets", msgspec.json.encode(Ledger(accounts={HOSTILE: account, "keepa": account})))


async def _calls(app: App) -> dict[str, int]:
    subject = Subject(id=1, queue=HOSTILE, attempts=0, created_at=0, name=HOSTILE, reason=HOSTILE)
    call = Call(url=f"https://{HOSTILE}", event="job.dead", message=HOSTILE, subject=subject)
    jobs = [NewJob("accoda.webhooks", msgspec.msgpack.encode(call), keep_for=3600.0) for _ in range(2)]
    first, second = [made.id for made in await app.storage.enqueue(jobs)]
    one, two = await app.storage.take("accoda.webhooks", 2)
    answer = msgspec.msgpack.encode(Delivered(200, 7, 0, HOSTILE))
    await app.storage.settle([Bury(one.lease, HOSTILE), Done(two.lease, result=answer)])
    return {"buried call": first, "made call": second}


if __name__ == "__main__":
    import sys

    sys.stdout.write(repr(asyncio.run(fill(Path(sys.argv[1])))))
