"""What is recorded of a store's calls, and how it is read back."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from proof.checker import (
    RULES,
    CallLog,
    FileSink,
    MemorySink,
    Recorded,
    RecordedConnections,
    Recorder,
    check,
    final_state,
    load,
    record,
)
from proof.checker.__main__ import main
from proof.checker.final import FinalState
from proof.checker.flow_logs import FinalFlow
from proof.checker.flow_mutants import FLOW_MUTANTS
from proof.checker.ledger import gather
from proof.checker.mutants import MUTANTS
from proof.checker.records import Asked, End, Enqueue, Note, Start

from accoda import (
    App,
    Bury,
    Done,
    InvalidInput,
    ManualClock,
    NewJob,
    Outcome,
    Refused,
    Retry,
    StorageClosed,
    StorageUnavailable,
    VersionConflict,
    open_storage,
)
from accoda.flows.model import LOG
from accoda.model import ById, ByKey, Lanes, Remove, Rerank, Revive, StartNow
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import VERBS, Store

PAGE = Path(__file__).parent.parent.parent / "docs" / "checker.md"


def verbs(log: CallLog) -> list[str]:
    return [call.verb for call in log.calls]


async def use_all(store: Store) -> None:
    """One call of every verb."""
    await store.enqueue([NewJob("q", key="k", on_duplicate="attach", waiter=b"w"), NewJob("q", b"two", delay=9)])
    (job,) = await store.take("q", 5, lease=30)
    await store.extend([job.lease], 30)
    await store.look(ById(job.id), waiters_after=0, ahead=True)
    await store.look(ByKey("q", "k"))
    await store.settle([Bury(job.lease, "no")])
    await store.wait(["q"], 0)
    await store.stats()
    await store.write("name", b"value")
    await store.read("name")
    await store.documents("na")
    await store.browse("q", "dead", order="id")
    changes = [Remove(job.id, waiters=0), Rerank(job.id + 1, 2.0, queue="q"), Revive(job.id), StartNow(job.id)]
    await store.change(changes)
    await store.set_lanes("q", Lanes(limits={"é": None, "c": 0}, fair=True, weights={"c": 0.1}, total=3))
    await store.set_lanes("q", None)
    await store.lanes("q")
    await store.pause("q", None)
    await store.purge("q", "dead", limit=1)
    await store.close()


async def test_every_verb_is_recorded_and_comes_back_from_a_file_as_it_was(tmp_path: Path) -> None:
    memory = MemorySink()
    with FileSink(tmp_path / "calls") as file:

        class Both:
            def put(self, record: Any) -> None:
                memory.put(record)
                file.put(record)

        await use_all(record(MemoryStorage(), Recorder("c", Both())))
    log = load(tmp_path / "calls")
    assert set(verbs(log)) == set(VERBS)
    assert all(call.ok for call in log.calls)
    assert [(c.start, c.end) for c in log.calls] == [(c.start, c.end) for c in CallLog.of(memory).calls]
    assert check(log).ok


async def test_payloads_and_waiters_are_not_written_down(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    with FileSink(path) as sink:
        store = record(MemoryStorage(), Recorder("c", sink))
        await store.enqueue([NewJob("q", b"secret", key="k", on_duplicate="attach", waiter=b"secret waiter")])
        (job,) = await store.take("q", 1)
        await store.look(ById(job.id), waiters_after=0)
        await store.settle([Done(job.lease, [NewJob("q", b"secret")], result=b"secret result")])
        await store.browse("q", "ready")
    assert b"secret" not in path.read_bytes()


async def test_an_error_that_changed_nothing_is_refused_and_any_other_is_unknown() -> None:
    class Broken(MemoryStorage):
        async def stats(self) -> Any:
            raise StorageUnavailable("no answer")

        async def take(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.Event().wait()

    sink = MemorySink()
    store = record(Broken(), Recorder("c", sink))
    with pytest.raises(InvalidInput):
        await store.enqueue(["no job"])  # type: ignore[list-item]
    with pytest.raises(VersionConflict):
        await store.write("name", b"", version=7)
    with pytest.raises(StorageUnavailable):
        await store.stats()
    taking = asyncio.create_task(store.take("q", 1))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    await store.close()
    with pytest.raises(StorageClosed):
        await store.look(ById(1))
    states = {call.verb: "refused" if call.refused else "unknown" for call in CallLog.of(sink).calls if not call.ok}
    assert states == {
        "enqueue": "refused",
        "write": "refused",
        "stats": "unknown",
        "take": "unknown",
        "look": "refused",
    }


async def test_bad_input_is_refused_as_ever_and_harms_no_file(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    rubbish: Any
    with FileSink(path) as sink:
        store = record(MemoryStorage(), Recorder("c", sink))
        for rubbish in (object(), "x", -1, 2**70, None, 1.5, [object()], "\ud800"):
            for call in (
                store.enqueue(rubbish),
                store.enqueue([rubbish]),
                store.take(rubbish, rubbish),
                store.take("q", 1, lease=rubbish),
                store.settle([rubbish]),
                store.extend(rubbish, 1),
                store.change([rubbish]),
                store.change([Remove(rubbish)]),
                store.change([Remove(1, waiters=rubbish, queue=rubbish)]),
                store.pause(rubbish, rubbish),
                store.set_lanes(rubbish, rubbish),
                store.set_lanes(rubbish, Lanes()),
                store.purge(rubbish, rubbish),
                store.look(rubbish),
                store.look(ByKey("q", rubbish), waiters_after=rubbish),
                store.browse("q", "ready", after=rubbish),
            ):
                with suppress(InvalidInput):
                    await call
        await store.enqueue([NewJob("q")])
    log = load(path)
    assert log.torn == 0
    assert log.calls[-1].ok
    assert check(log).ok


async def test_a_call_that_the_store_was_closed_under_is_unknown() -> None:
    class Closing(MemoryStorage):
        async def enqueue(self, jobs: Any) -> Any:
            raise StorageClosed("closed while the call was on its way")

    sink = MemorySink()
    with pytest.raises(StorageClosed):
        await record(Closing(), Recorder("c", sink)).enqueue([NewJob("q")])
    assert CallLog.of(sink).calls[0].unknown


async def write_some(path: Path) -> list[str]:
    with FileSink(path) as sink:
        async with record(MemoryStorage(), Recorder("c", sink)) as store:
            for _ in range(3):
                await store.enqueue([NewJob("q")])
            await store.take("q", 3)
    return ["enqueue", "enqueue", "enqueue", "take", "close"]


async def test_a_torn_tail_is_left_out_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    whole = await write_some(path)
    data = path.read_bytes()
    for cut in range(1, 120):
        path.write_bytes(data[:-cut])
        log = load(path)
        assert verbs(log) == whole[: len(log.calls)]
        assert log.torn <= 1
        assert check(log).ok


async def test_a_file_goes_on_after_a_torn_record(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    whole = await write_some(path)
    path.write_bytes(path.read_bytes()[:-5])
    await write_some(path)
    log = load(path)
    assert log.torn == 1
    assert verbs(log) == whole * 2
    assert [call.verb for call in log.calls if call.unknown] == ["close"]


async def test_rubbish_between_records_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    whole = await write_some(path)
    path.write_bytes(b"rubbish" + path.read_bytes())
    assert (load(path).torn, verbs(load(path))) == (1, whole)


CHILD = """
import asyncio, sys
from accoda import NewJob, open_storage
from proof.checker import FileSink, Recorder, record
async def main():
    store = record(await open_storage("memory://"), Recorder("child", FileSink(sys.argv[1])))
    for n in range(10**9):
        await store.enqueue([NewJob("q", b"x" * 1000) for _ in range(50)])
        if n == 50:
            print("go", flush=True)
asyncio.run(main())
"""


def test_what_a_killed_process_did_is_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"go\n"
        child.send_signal(signal.SIGKILL)
    log = load(path)
    assert log.torn <= 1
    assert len(log.calls) > 50
    assert all(call.ok for call in log.calls[:-1])
    assert check(log).ok


def test_threads_may_share_a_recorder(tmp_path: Path) -> None:
    path = tmp_path / "calls"

    def use(recorder: Recorder) -> None:
        async def enqueue() -> None:
            store = record(await open_storage("memory://"), recorder)
            for _ in range(200):
                await store.enqueue([NewJob("q")])

        asyncio.run(enqueue())

    with FileSink(path) as sink:
        recorder = Recorder("c", sink)
        threads = [threading.Thread(target=use, args=[recorder]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = load(path).calls
    assert len({call.start.number for call in calls}) == len(calls) == 800
    assert all(call.ok for call in calls)


def test_a_forked_child_numbers_its_calls_apart() -> None:
    recorder = Recorder("c", MemorySink())
    assert recorder.number() == 1
    pid = os.fork()
    if pid == 0:
        os._exit(0 if recorder.number() > 1 << 32 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert recorder.number() == 2


async def test_an_app_with_recorded_connections_is_recorded_whole() -> None:
    sink = MemorySink()
    app = App("memory://")
    recorder = Recorder("app", sink)
    app.connections = RecordedConnections("memory://", recorder)

    @app.handler("greetings")
    async def greet(name: str) -> None:
        recorder.note("greeted", name=name)

    await app.enqueue("greetings", "Ada")
    await app.run_until_idle()
    store = await app.connections.open()
    assert store is await app.connections.open()
    verdict = check(CallLog.of(sink), await final_state(store))
    await app.close()
    assert verdict.ok, str(verdict)
    assert (verdict.counts["enqueued"], verdict.counts["done"]) == (1, 1)
    assert [note.fields for note in CallLog.of(sink).notes] == [{"name": "Ada"}]


async def test_every_store_of_a_file_is_recorded(tmp_path: Path) -> None:
    sink = MemorySink()
    connections = RecordedConnections(f"sqlite:///{tmp_path}/q.db", Recorder("c", sink))
    async with await connections.open() as one, await connections.open() as two:
        assert one is not two
        await one.enqueue([NewJob("q")])
        assert len(await two.take("q", 1)) == 1
    assert verbs(CallLog.of(sink)) == ["enqueue", "take", "close", "close"]


async def test_the_final_state_has_every_job_in_every_state() -> None:
    async with await open_storage("memory://", clock=ManualClock()) as store:
        await store.enqueue([NewJob("q", b"%d" % n, rank=float(n), keep_for=60) for n in range(4)])
        await store.enqueue([NewJob("q", delay=9), NewJob("other")] + [NewJob("many")] * 2500)
        jobs = await store.take("q", 3, lease=60)
        await store.settle([Done(jobs[0].lease), Bury(jobs[1].lease, "")])
        final = await final_state(store)
    assert len(final.jobs) == 2506
    states = {job.state for job in final.jobs.values() if job.queue == "q"}
    assert states == {"ready", "delayed", "taken", "dead", "done"}
    assert final.queues["many"].ready == 2500


async def test_the_command_prints_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "calls"
    await write_some(path)
    assert main([str(path)]) == 0
    assert "no violation" in capsys.readouterr().out
    with FileSink(path) as sink:
        Recorder("liar", sink).note("start", id=1, attempts=0)
    assert main([str(path)]) == 1
    assert "runs: job 1: ran with attempts 0 by liar" in capsys.readouterr().out
    assert main([]) == 2
    assert main([str(tmp_path / "nothing")]) == 2


def test_a_rule_that_there_is_not_is_named() -> None:
    with pytest.raises(InvalidInput, match="no rule is called 'luck'; there are: lost"):
        check(CallLog(), rules=["luck"])


class Forgetful(MemoryStorage):
    """Its `settle` may accept a Done that did not see every waiter, or lose the last of the follow-ups."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([self._spoil(each) if isinstance(each, Done) else each for each in outcomes])

    def _spoil(self, done: Done) -> Done:
        if self.fault == "accepts a Done that saw too few":
            return replace(done, waiters=None)
        if self.fault == "forgets a waiter of a follow-up":
            return replace(done, then=[replace(each, waiter=None) for each in done.then])
        return replace(done, then=done.then[:-1]) if self.fault == "loses a delivery" else done


@pytest.mark.parametrize(
    ("fault", "broken"),
    [("none", set()), ("accepts a Done that saw too few", {"waiters"}), ("loses a delivery", {"lost"})],
)
async def test_a_waiter_whose_delivery_is_a_follow_up_is_not_forgotten(fault: str, broken: set[str]) -> None:
    """One fetch for all, a delivery for each, enqueued by the Done of the fetch; the last joins while it is settled."""
    sink = MemorySink()

    async def ask(name: bytes) -> None:
        await store.enqueue([NewJob("deals", key="k", on_duplicate="attach", waiter=name)])

    async with record(Forgetful(fault), Recorder("c", sink)) as store:
        for name in (b"ada", b"bob"):
            await ask(name)
        (fetch,) = await store.take("deals", 1)
        late = [b"cyd"]
        while True:
            seen = (await store.look(ById(fetch.id), waiters_after=0)).waiters
            if late:
                await ask(late.pop())
            then = [NewJob("deals.deliver", name) for name in seen]
            if not await store.settle([Done(fetch.lease, then, waiters=len(seen))]):
                break
        jobs = await store.take("deals.deliver", 9)
        await store.settle([Done(job.lease) for job in jobs])
        verdict = check(CallLog.of(sink), await final_state(store), rules=["lost", "waiters", "from nowhere"])
    assert {each.rule for each in verdict.violations} == broken, str(verdict)


@pytest.mark.parametrize(
    ("fault", "broken"),
    [("none", set()), ("forgets a waiter of a follow-up", {"waiters"}), ("looks too early", set())],
)
async def test_a_waiter_that_joins_the_next_fetch_by_a_follow_up_is_not_forgotten(fault: str, broken: set[str]) -> None:
    sink = MemorySink()
    async with record(Forgetful(fault), Recorder("c", sink)) as store:
        await store.enqueue([NewJob("deals", key="k", on_duplicate="attach", waiter=b"ada")])
        again = [NewJob("deals", key="k", on_duplicate="attach", waiter=b"bob")]  # wants a newer result
        while jobs := await store.take("deals", 1):
            seen = (await store.look(ById(jobs[0].id), waiters_after=0)).waiters
            blind = fault == "looks too early"  # then its waiters are not known for certain
            await store.settle([Done(jobs[0].lease, again, waiters=None if blind else len(seen))])
            again = []
        verdict = check(CallLog.of(sink), await final_state(store))
    assert {each.rule for each in verdict.violations} == broken, str(verdict)


async def test_a_retry_is_no_duplicate() -> None:
    sink = MemorySink()
    recorder = Recorder("c", sink)
    async with Recorded(MemoryStorage(), recorder) as store:
        await store.enqueue([NewJob("q")])
        for outcome in (Retry, Done):
            (job,) = await store.take("q", 1)
            recorder.note("start", id=job.id, attempts=job.attempts)
            await store.settle([outcome(job.lease)])
        verdict = check(CallLog.of(sink), await final_state(store))
    assert verdict.ok, str(verdict)
    assert verdict.counts["ran more than once"] == 1


async def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    scope: dict[str, Any] = {"__name__": "example"}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, "checker.md", "exec"), scope)
    await scope["test_two_workers_share_a_queue"](tmp_path)
    await scope["test_my_app_keeps_the_promises"]()


def test_every_rule_is_in_the_page_with_its_promise() -> None:
    text = PAGE.read_text()
    for rule in RULES.values():
        assert f"| `{rule.name}` | {rule.promise} |" in text, rule.name
    assert f"has {len(MUTANTS)} stores and workers" in text
    assert f"has {len(FLOW_MUTANTS)} coordinators and stores" in text


def test_a_call_while_the_store_is_put_back_is_unknown_in_both_lives() -> None:
    notes = [Note("harness", 10, "restoring", {}), Note("harness", 20, "restored", {})]
    calls = [(1, 5, 6), (2, 9, 11), (3, 12, 13), (4, 19, 21), (5, 25, 26)]  # number, begun, ended
    records = [record for n, begun, ended in calls for record in (Start("p", n, begun, "stats"), End("p", n, ended))]
    lives = CallLog.of(notes, records).lives()
    found = [[(call.start.number, call.ok) for call in life.calls] for life in lives]
    assert found == [[(1, True), (2, False), (3, False), (4, False)], [(2, False), (3, False), (4, False), (5, True)]]


def test_a_flow_that_was_begun_while_the_store_was_put_back_may_be_there_in_part() -> None:
    """The first server of a Cluster is empty before the second one is: what was stored in both meanwhile is in one."""
    notes = [Note("harness", 10, "restoring", {}), Note("harness", 20, "restored", {})]
    begun = [("meanwhile", 12), ("after", 25)]
    starts = [Enqueue("p", at, at, jobs=(Asked(LOG, 0, 0, key=id),)) for id, at in begun]
    log = CallLog.of(notes, starts)
    final = FinalState({}, {}, {id: FinalFlow(id, "running", {}, [], [], False) for id, _ in begun})
    assert list(gather(log.lives()[-1], final).flows) == ["after"]
