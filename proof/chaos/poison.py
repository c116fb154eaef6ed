"""A job that kills its process whenever it runs, among 100 good ones, in front of a pool of two worker processes.

It must run exactly as often as its queue allows, then be buried; every neighbour must be done; the pool must live on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from accoda import ById, NewJob, Store, open_storage
from accoda.payload import encode
from proof.chaos.faults import open_target
from proof.chaos.fleet import python_path
from proof.chaos.settings import LEASE, POISON, POISON_CRASHES, Settings
from proof.checker import FileSink, Recorder, check, final_state, load, record
from proof.servers.process import ServerMissing

NEIGHBOURS = 100
PATIENCE = 60.0
POOL = ("-m", "accoda", "worker", "proof.chaos.app:app", "-q", "poison", "--processes", "2")


class Outcome(msgspec.Struct, frozen=True):
    """What became of the poison, its neighbours and the pool."""

    storage: str
    allowed: int
    ran: int
    buried: bool
    neighbours_done: int
    neighbours_ran_again: int
    processes_killed: int
    pool_survived: bool
    seconds: float
    violations: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        good = self.ran == self.allowed and self.buried and self.neighbours_done == NEIGHBOURS
        return good and self.pool_survived and not self.violations


async def run(storage: str, concurrency: int = 2, lease: float = LEASE) -> Outcome:
    """The scenario on one storage."""
    folder = Path(tempfile.mkdtemp(prefix="accoda-poison-"))
    recorder = Recorder("harness", FileSink(folder / "harness.history"))
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        target = await stack.enter_async_context(open_target(storage, recorder.note))
        bare = await open_storage(target.url)
        store = await stack.enter_async_context(record(bare, recorder))
        payloads = [*range(NEIGHBOURS // 2), POISON, *range(NEIGHBOURS // 2, NEIGHBOURS)]
        made = await store.enqueue([NewJob("poison", encode(payload)) for payload in payloads])
        poison = made[NEIGHBOURS // 2].id
        began = time.monotonic()
        settings = Settings(client="pool", log=str(folder / "pool.history"), lease=lease, pool=True)
        pool = await _start_pool(target.url, folder, settings, concurrency)
        try:
            await _until_finished(bare)
            seconds = time.monotonic() - began
            survived = pool.returncode is None and await _leaves(pool)
        finally:
            if pool.returncode is None:
                pool.kill()
            await pool.wait()
        final = await final_state(bare)
        history = await asyncio.to_thread(lambda: load(sorted(folder.glob("*.history"))))
        runs = Counter(note.fields["id"] for note in history.notes if note.kind == "start")
        dead = (await bare.look(ById(poison))).job
        return Outcome(
            storage=storage,
            allowed=POISON_CRASHES,
            ran=runs[poison],
            buried=dead is not None and dead.state == "dead" and "poison" in (dead.reason or ""),
            neighbours_done=final.queues["poison"].done,
            neighbours_ran_again=sum(count > 1 for id, count in runs.items() if id != poison),
            processes_killed=sum(note.kind == "kill" for note in history.notes),
            pool_survived=survived,
            seconds=round(seconds, 1),
            violations=tuple(map(str, check(history, final).violations)),
        )


async def _start_pool(url: str, folder: Path, settings: Settings, concurrency: int) -> asyncio.subprocess.Process:
    environment = {**os.environ, **settings.environment(), "ACCODA_URL": url, "PYTHONPATH": python_path()}
    with (folder / "pool.err").open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *POOL,
            "-c",
            str(concurrency),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=errors,
            cwd=folder,
            env=environment,
        )


async def _until_finished(store: Store) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        queue = (await store.stats()).queues["poison"]
        if not (queue.ready or queue.delayed or queue.taken):
            return
        await asyncio.sleep(0.05)


async def _leaves(pool: asyncio.subprocess.Process) -> bool:
    """Whether it ends as it should when it is asked to."""
    pool.send_signal(signal.SIGTERM)
    try:
        return await asyncio.wait_for(pool.wait(), 30) == 0
    except TimeoutError:
        return False


def show(found: Sequence[Outcome]) -> str:
    """The table, in 80 columns."""
    lines = [
        f"A poison job among {NEIGHBOURS} good ones; two worker processes; at most {POISON_CRASHES} crashes.",
        "",
        "                 poison         neighbours      processes  pool",
        "storage          ran    buried  done   again    killed     survived  seconds",
    ]
    lines += [
        f"{one.storage:<16} {f'{one.ran} of {one.allowed}':<6} {_word(one.buried):<7} {one.neighbours_done:<6} "
        f"{one.neighbours_ran_again:<8} {one.processes_killed:<10} {_word(one.pool_survived):<9} {one.seconds:.1f}"
        for one in found
    ]
    lines += [violation for one in found for violation in one.violations]
    return "\n".join(lines)


def main(storages: Sequence[str], concurrency: int, tell: Callable[[str], None]) -> bool:
    """Run it on each storage that is there, print the figures; True: all is well."""
    found: list[Outcome] = []
    missing: list[str] = []
    for storage in storages:
        tell(f"poison on {storage}")
        try:
            found.append(asyncio.run(run(storage, concurrency)))
        except ServerMissing as reason:
            missing.append(f"{storage} is skipped: {reason}")
    tell("")
    print("\n".join([show(found), *missing]), flush=True)
    return all(one.ok for one in found)


def _word(true: bool) -> str:
    return "yes" if true else "NO"
