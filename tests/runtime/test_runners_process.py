"""Handlers in processes of their own: what they say comes back, and when one dies only its job does."""

import asyncio
import gc
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio
from tests.runtime import batches
from tests.runtime.batches import run

from accoda.errors import (
    BuryJob,
    CannotStart,
    HandlerTimeout,
    InvalidInput,
    LeaseLost,
    ProcessDied,
    RemoteError,
    RetryLater,
    WorkerStopped,
)
from accoda.limits import as_told, set_limits
from accoda.model import Retry
from accoda.payload import decode, encode
from accoda.retry import Failed, Finished, describe
from accoda.runtime.batch import Batch, BatchRun
from accoda.runtime.middleware import Run
from accoda.runtime.runners.layers import LayeredRunner
from accoda.runtime.runners.process import ProcessRunner

MODULE = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from accoda.app import App
from accoda.errors import BuryJob, RetryLater
from accoda.runtime.batch import Batch

app = App("memory://")


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.lock = threading.Lock()


def act(order):
    match order:
        case ["pid"]:
            return os.getpid()
        case ["echo", value]:
            print("a handler may print")
            return value
        case ["raise", text]:
            raise ValueError(text)
        case ["odd"]:
            raise Odd(1, 2)
        case ["later", seconds]:
            raise RetryLater("busy", delay=seconds)
        case ["kill", number]:
            os.kill(os.getpid(), number)
        case ["leave", status]:
            os._exit(status)
        case ["exit", status]:
            sys.exit(status)
        case ["fork and die"]:
            if os.fork() == 0:
                time.sleep(3)
            os._exit(5)
        case ["wait for", path]:
            Path(path).with_suffix(".begun").touch()
            while not Path(path).exists():
                time.sleep(0.01)
        case ["until news", path]:
            Path(path).with_suffix(".begun").touch()
            while not app.current.batch.lost:
                time.sleep(0.01)
        case ["follow", text]:
            app.current.enqueue("next", text)
            app.current.enqueue("next", text, delay=5)
        case ["garble"]:
            import gc, multiprocessing.connection
            for thing in gc.get_objects():
                if isinstance(thing, multiprocessing.connection.Connection):
                    thing.send_bytes(bytes(20))
        case ["big"]:
            return "x" * 1_500_000
        case ["bury"]:
            app.current.batch.bury(app.current, "enough")


@app.handler(run_in="process")
def single(order: list):
    return act(order)


@app.handler(run_in="process")
async def asynchronous(order: list):
    await asyncio.sleep(0)
    return [act(order), id(asyncio.get_running_loop())] if order == ["pid"] else act(order)


@app.handler(run_in="process")
def whole(batch: Batch[list]) -> None:
    for job in batch:
        if job.payload == ["nothing"]:
            continue
        if job.payload == ["stopping?"]:
            while not batch.stopping:
                time.sleep(0.01)
        if job.payload == ["follow"]:
            job.enqueue("next", 1)
            batch.done(job)
            job.enqueue("next", 2)
        elif job.payload == ["follow silently"]:
            job.enqueue("next", 3)
        elif job.payload == ["loose"]:
            batch.enqueue("next", 4)
        elif job.payload == ["retry"]:
            batch.retry(job, delay=7)
        else:
            batch.done(job, act(job.payload))


@app.handler(run_in="process")
async def whole_async(batch: Batch[list]) -> None:
    await asyncio.sleep(0)
    batch.bury(batch[0], "enough")


def plain(order: list):
    return act(order)


registered = app.handler("plain", run_in="process")(plain)


def inside():
    @app.handler("inside", run_in="process")
    def hidden(order: list):
        return act(order)
    return hidden
"""

Make = Callable[..., ProcessRunner]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "process_work.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("process_work")
    sys.path.remove(str(folder))
    del sys.modules["process_work"]


@pytest.fixture(scope="module")
def shared(work: ModuleType) -> Iterator[dict[str, ProcessRunner]]:
    """A runner for each handler, so that not every test has to start a child."""
    runners: dict[str, ProcessRunner] = {}
    yield runners
    for runner in runners.values():
        asyncio.run(runner.close())
        assert not runner._children
    gc.collect()  # a child that was not waited for would warn here


@pytest.fixture
def make(work: ModuleType, shared: dict[str, ProcessRunner]) -> Make:
    def make(name: str = "single") -> ProcessRunner:
        if name not in shared:
            shared[name] = ProcessRunner(getattr(work, name))
        return shared[name]

    return make


@pytest_asyncio.fixture
async def make_new(work: ModuleType) -> AsyncIterator[Make]:
    runners = []

    def make(*args: Any, **options: Any) -> ProcessRunner:
        runner = ProcessRunner(work.single, *args, **options)
        runners.append(runner)
        return runner

    yield make
    for runner in runners:
        await runner.close()
        assert not runner._children


def batch_of(*orders: list[Any]) -> BatchRun:
    return batches.batch_of(*orders, data=[encode(order) for order in orders])


def error_of(batch: Batch[Any], index: int) -> BaseException:
    result = batch.results[index]
    assert isinstance(result, Failed)
    return result.error


def value_of(batch: Batch[Any], index: int) -> Any:
    result = batch.results[index]
    assert isinstance(result, Finished), result
    return None if result.result is None else decode(result.result)


async def until(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.005)


async def test_results_and_errors_come_back(make: Make) -> None:
    batch = batch_of(["echo", {"a": b"b"}], ["raise", "no"], ["later", 9], ["exit", 3], ["echo", None], ["bury"])
    await run(make(), batch)
    assert value_of(batch, 0) == {"a": b"b"}
    assert isinstance(error_of(batch, 1), ValueError)
    assert "in act" in str(error_of(batch, 1).__cause__), "the traceback of the child is kept"
    later = error_of(batch, 2)
    assert isinstance(later, RetryLater)
    assert later.delay == 9
    assert isinstance(error_of(batch, 3), SystemExit)
    assert batch.results[4] == Finished()
    assert isinstance(error_of(batch, 5), BuryJob)


async def test_an_error_of_the_users_own_comes_as_one_of_the_same_name(make: Make) -> None:
    batch = batch_of(["odd"])
    await run(make(), batch)
    error = error_of(batch, 0)
    assert describe(error) == "Odd: 1 and 2"
    assert isinstance(error, RemoteError)
    assert (error.kind, error.text) == ("process_work.Odd", "1 and 2")
    assert error.kinds[-1] == "BaseException"


async def test_a_child_that_talks_nonsense_is_ended_and_takes_only_its_job_with_it(make: Make) -> None:
    batch = batch_of(["pid"], ["garble"], ["pid"])
    await run(make(), batch)
    assert isinstance(error_of(batch, 1), ProcessDied)
    assert "the process was ended: what it said cannot be understood" in str(error_of(batch, 1))
    assert value_of(batch, 0) != value_of(batch, 2)


async def test_the_limits_of_the_worker_hold_in_its_children(make: Make) -> None:
    batch = batch_of(["echo", "x"], ["big"])
    await run(make(), batch)
    error = error_of(batch, 1)
    assert isinstance(error, BuryJob)
    assert "the handler returned a str, which has 1,500,005 bytes, and at most 1,048,576 are allowed" in str(error)


async def test_a_child_is_used_again_and_there_is_one_for_each_batch_that_runs(make: Make) -> None:
    runner = make()
    first, second = batch_of(["pid"], ["pid"]), batch_of(["pid"])
    await run(runner, first)
    await run(runner, second)
    pids = {value_of(first, 0), value_of(first, 1), value_of(second, 0)}
    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_batches_that_run_at_once_have_a_child_each_up_to_the_limit(make_new: Make, tmp_path: Path) -> None:
    runner = make_new(processes=2)
    gate = tmp_path / "gate"
    batches = [batch_of(["wait for", str(tmp_path / f"gate{n}")], ["pid"]) for n in range(3)]
    running = [asyncio.create_task(run(runner, batch)) for batch in batches]
    await until(tmp_path / "gate0.begun")
    await until(tmp_path / "gate1.begun")
    assert len(runner._children) == 2
    for n in range(3):
        gate.with_name(f"gate{n}").touch()
    await asyncio.gather(*running)
    assert len({value_of(batch, 1) for batch in batches}) == 2


async def test_an_async_handler_runs_on_one_loop_of_the_child(make: Make) -> None:
    runner = make("asynchronous")
    batch = batch_of(["pid"], ["exit", 2], ["pid"])
    await run(runner, batch)
    assert value_of(batch, 0) == value_of(batch, 2)
    assert isinstance(error_of(batch, 1), SystemExit)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (["kill", signal.SIGKILL], "the process died: signal 9 (SIGKILL), perhaps for want of memory"),
        (["kill", signal.SIGSEGV], "the process died: signal 11 (SIGSEGV)"),
        (["leave", 3], "the process died: it ended with status 3"),
        (["fork and die"], "the process died: it ended with status 5"),
    ],
)
async def test_a_child_that_dies_takes_only_the_job_with_it_that_it_ran(
    make: Make, order: list[Any], words: str
) -> None:
    batch = batch_of(["pid"], order, ["pid"], ["echo", 4])
    await run(make(), batch)
    assert isinstance(error_of(batch, 1), ProcessDied)
    assert str(error_of(batch, 1)) == words
    assert value_of(batch, 0) != value_of(batch, 2)
    assert value_of(batch, 3) == 4


async def test_a_child_that_died_while_it_was_idle_is_nobodys_fault(make: Make) -> None:
    runner = make()
    batch = batch_of(["pid"])
    await run(runner, batch)
    os.kill(value_of(batch, 0), signal.SIGKILL)
    again = batch_of(["pid"])
    await run(runner, again)
    assert value_of(again, 0) != value_of(batch, 0)


async def test_a_batch_handler_that_dies_fails_the_jobs_of_which_nothing_was_said(make: Make) -> None:
    batch = batch_of(["echo", 1], ["nothing"], ["retry"], ["leave", 3], ["echo", 2])
    await run(make("whole"), batch)
    assert value_of(batch, 0) == 1
    assert isinstance(error_of(batch, 2), RetryLater)
    for n in (1, 3, 4):
        assert isinstance(error_of(batch, n), ProcessDied)


async def test_a_batch_handler_speaks_and_enqueues_from_its_child(make: Make) -> None:
    batch = batch_of(["nothing"], ["follow"], ["follow silently"], ["loose"], ["retry"])
    await run(make("whole"), batch)
    results = [batch.result_of(job.id) for job in batch]
    assert results[0] == Finished()
    assert [decode(job.data) for job in results[1].then] == [1, 2]  # type: ignore[union-attr]
    assert [decode(job.data) for job in results[2].then] == [3]  # type: ignore[union-attr]
    assert [(job.queue, decode(job.data)) for job in batch.loose] == [("next", 4)]
    later = error_of(batch, 4)
    assert isinstance(later, RetryLater)
    assert later.delay == 7


async def test_a_batch_handler_that_raises_or_is_async_does_so_in_its_child(make: Make) -> None:
    batch = batch_of(["echo", 1], ["raise", "no"], ["echo", 2])
    await run(make("whole"), batch)
    assert value_of(batch, 0) == 1
    assert isinstance(error_of(batch, 1), ValueError)
    assert isinstance(error_of(batch, 2), ValueError)
    batch = batch_of(["echo", 1], ["echo", 2])
    await run(make("whole_async"), batch)
    assert isinstance(error_of(batch, 0), BuryJob)
    assert batch.results[1] == Finished()


async def test_follow_ups_of_single_jobs_travel_with_them(make: Make) -> None:
    batch = batch_of(["follow", "a"])
    await run(make(), batch)
    result = batch.result_of(batch[0].id)
    assert isinstance(result, Finished)
    assert [(job.queue, decode(job.data), job.delay) for job in result.then] == [
        ("next", "a", None),
        ("next", "a", 5.0),
    ]


async def test_middleware_stays_in_the_worker(make_new: Make) -> None:
    seen = []

    async def look(batch: Batch[Any], inner: Run) -> None:
        await inner(batch)
        seen.append(os.getpid())

    await run(LayeredRunner(make_new(), [look]), batch_of(["pid"]))
    assert seen == [os.getpid()]


async def test_a_job_over_its_time_is_killed_and_the_others_go_on(make: Make, tmp_path: Path) -> None:
    runner = make()
    await run(runner, batch_of(["pid"]))
    batch = batch_of(["pid"], ["wait for", str(tmp_path / "never")], ["pid"])
    await run(runner, batch, 0.5)
    assert isinstance(error_of(batch, 1), HandlerTimeout)
    assert value_of(batch, 0) != value_of(batch, 2)


async def test_a_batch_over_its_time_is_killed(make: Make, tmp_path: Path) -> None:
    batch = batch_of(["echo", 1], ["wait for", str(tmp_path / "never")], ["echo", 2])
    await run(make("whole"), batch, 0.5)
    assert value_of(batch, 0) == 1
    assert isinstance(error_of(batch, 1), HandlerTimeout)
    assert isinstance(error_of(batch, 2), HandlerTimeout)


async def test_a_job_that_is_stopped_before_it_began_is_skipped(make: Make, tmp_path: Path) -> None:
    runner, begun = make(), tmp_path / "b.begun"
    batch = batch_of(["until news", str(tmp_path / "a")], ["wait for", str(tmp_path / "b")], ["echo", 3])
    running = asyncio.create_task(run(runner, batch))
    await until(tmp_path / "a.begun")
    runner.stop(batch, [1], LeaseLost("gone"))
    await running
    assert value_of(batch, 0) is None
    assert isinstance(error_of(batch, 1), LeaseLost)
    assert value_of(batch, 2) == 3
    assert not begun.exists()


async def test_a_job_that_is_stopped_while_it_runs_is_killed_and_the_others_go_on(make: Make, tmp_path: Path) -> None:
    runner = make()
    batch = batch_of(["wait for", str(tmp_path / "a")], ["echo", 2])
    running = asyncio.create_task(run(runner, batch))
    await until(tmp_path / "a.begun")
    runner.stop(batch, [0], LeaseLost("gone"))
    await running
    assert isinstance(error_of(batch, 0), LeaseLost)
    assert value_of(batch, 1) == 2


async def test_a_stop_of_everything_kills_the_child_at_once(make_new: Make, tmp_path: Path) -> None:
    runner = make_new()
    batch = batch_of(["wait for", str(tmp_path / "a")], ["echo", 2])
    running = asyncio.create_task(run(runner, batch))
    await until(tmp_path / "a.begun")
    runner.stop(batch, [0, 1], WorkerStopped("bye"))
    await running
    assert str(error_of(batch, 0)) == "bye"
    assert str(error_of(batch, 1)) == "bye"
    assert not runner._children


async def test_a_run_that_is_cancelled_kills_its_child(make_new: Make, tmp_path: Path) -> None:
    runner = make_new()
    batch = batch_of(["wait for", str(tmp_path / "a")])
    running = asyncio.create_task(run(runner, batch))
    await until(tmp_path / "a.begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while runner._children:
        await asyncio.sleep(0.01)


async def test_a_child_learns_that_the_worker_stops(make: Make) -> None:
    batch = batch_of(["stopping?"])
    running = asyncio.create_task(run(make("whole"), batch))
    batch.stopping = True
    await running
    assert batch.results[0] == Finished()


async def test_signals_to_the_whole_group_do_not_end_a_child(make: Make, tmp_path: Path) -> None:
    runner = make()
    first = batch_of(["pid"])
    await run(runner, first)
    batch = batch_of(["wait for", str(tmp_path / "a")], ["pid"])
    running = asyncio.create_task(run(runner, batch))
    await until(tmp_path / "a.begun")
    os.kill(value_of(first, 0), signal.SIGINT)
    os.kill(value_of(first, 0), signal.SIGTERM)
    (tmp_path / "a").touch()
    await running
    assert value_of(batch, 1) == value_of(first, 0)


@pytest.fixture
def roomy() -> Iterator[None]:
    before = as_told()
    set_limits(payload=8 << 20, result=8 << 20)
    yield
    set_limits(**before)


async def test_large_payloads_and_results_do_not_block_the_loop(roomy: None, make_new: Make) -> None:
    runner = make_new()
    await run(runner, batch_of(["pid"]))
    batch = batch_of(*(["echo", bytes(4_000_000)] for _ in range(5)))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await run(runner, batch)
    ticking.cancel()
    assert len(value_of(batch, 4)) == 4_000_000
    assert ticks > 20


async def test_a_handler_that_was_registered_under_another_name_is_found(make: Make) -> None:
    batch = batch_of(["echo", 1])
    await run(make("registered"), batch)
    assert value_of(batch, 0) == 1


def test_a_handler_that_no_child_can_import_is_refused_at_once(work: ModuleType) -> None:
    with pytest.raises(InvalidInput, match="hidden is no name at the top of the module process_work"):
        ProcessRunner(work.inside())


def test_a_handler_in_the_main_script_is_refused_at_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from accoda.app import App
        from accoda.runtime.runners import make_runner

        app = App("memory://")

        @app.handler(run_in="process")
        def job(n: int) -> None: ...

        make_runner(job)
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert "the handler job is in the script that was started" in done.stderr
    assert "accoda worker module:app" in done.stderr


async def test_a_module_that_breaks_in_the_child_gives_the_jobs_back_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks.py").write_text(
        'import os\nfrom accoda.app import App\nif os.getpid() != int(os.environ["GOOD"]):\n    1 / 0\n'
        'app = App("memory://")\n@app.handler(run_in="process")\ndef job(n: list): ...\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("GOOD", str(os.getpid()))
    runner = ProcessRunner(importlib.import_module("breaks").job)
    batch = batch_of(["a"], ["b"])
    await run(runner, batch)
    assert "a child process cannot load the handler job from breaks: ZeroDivisionError" in str(error_of(batch, 0))
    assert all(isinstance(outcome, Retry) and not outcome.counts for outcome in batch.outcomes())
    assert runner.problem == str(error_of(batch, 1))
    with pytest.raises(CannotStart, match="ZeroDivisionError"):
        await runner.start()
    await runner.close()


PARENT = """
import asyncio, sys
from accoda.payload import encode
from tests.runtime.batches import batch_of, run
from accoda.runtime.runners.process import ProcessRunner
import process_work

orders = [["pid"], ["wait for", sys.argv[1]]]
batch = batch_of(*orders, data=[encode(order) for order in orders])

async def main():
    runner = ProcessRunner(process_work.single)
    running = asyncio.create_task(run(runner, batch))
    while 0 not in batch.results:
        await asyncio.sleep(0.01)
    print(int.from_bytes(batch.results[0].result[1:], "big"), flush=True)
    await running

asyncio.run(main())
"""


def test_a_child_ends_when_its_worker_is_killed(work: ModuleType, tmp_path: Path) -> None:
    folder = str(Path(str(work.__file__)).parent)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "never")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((folder, *sys.path))},
        text=True,
    )
    assert parent.stdout is not None
    with parent, parent.stdout:
        lines = iter(parent.stdout.readline, "")
        pid = int(next(line for line in lines if line.strip().isdigit()))
        assert _lives(pid)
        parent.kill()
        parent.wait()
        limit = time.monotonic() + 20
        while _lives(pid):
            assert time.monotonic() < limit
            time.sleep(0.01)


def _lives(pid: int) -> bool:
    """A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
