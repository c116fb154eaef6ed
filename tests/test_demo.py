"""The demo: step by step on a manual clock, drawn to a fixed console, and as a whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from examples.demo.__main__ import seconds_to_run
from examples.demo.event_log import Event, EventLog
from examples.demo.failures import MAX_DEAD, Crasher, Reviver
from examples.demo.jobs import FULL, QUEUE, Producer, Work, new_job, read_work
from examples.demo.snapshot import Sampler, Snapshot
from examples.demo.summary import summary
from examples.demo.totals import Totals, read_totals
from examples.demo.view import board, outcome_text, progress_line, sparkline
from examples.demo.work import BATCH, Worker, decide
from rich.console import Console, RenderableType

from accoda import Bury, InvalidInput, ManualClock, NewJob, Priority, QueueStats, Retry, Store, open_storage


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log() -> EventLog:
    return EventLog()


@pytest.fixture
async def storage(clock: ManualClock) -> AsyncIterator[Store]:
    async with await open_storage("memory://", clock=clock) as store:
        yield store


@pytest.fixture
def worker(storage: Store, clock: ManualClock, log: EventLog) -> Worker:
    async def pause(seconds: float) -> None:
        clock.advance(seconds)

    return Worker("ada", storage, clock, log, pause)


async def put(storage: Store, log: EventLog, fails: int = 0, priority: Priority = Priority.NORMAL) -> int:
    data = msgspec.msgpack.encode(Work("invoice", fails))
    (answer,) = await storage.enqueue([NewJob(QUEUE, data, rank=float(priority))])
    log.enqueued += 1
    return answer.id


async def counts(storage: Store) -> QueueStats:
    return (await storage.stats()).queues[QUEUE]


def drawn(picture: RenderableType, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, height=24, color_system=None, legacy_windows=False)
    console.print(picture)
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue()


# The steps


async def test_the_producer_enqueues_every_priority_and_some_delayed(
    storage: Store, clock: ManualClock, log: EventLog
) -> None:
    producer = Producer(storage, clock, log)
    created = [await producer.run_once() for _ in range(40)]
    stats = await counts(storage)
    assert log.enqueued == sum(created) == stats.total > 0
    assert stats.delayed > 0
    ready = await storage.browse(QUEUE, "ready", limit=1000)
    assert {int(info.rank) for info in ready} == set(Priority)


async def test_the_producer_pauses_while_the_queue_is_full(storage: Store, clock: ManualClock, log: EventLog) -> None:
    for _ in range(FULL):
        await put(storage, log)
    producer = Producer(storage, clock, log)
    assert sum([await producer.run_once() for _ in range(20)]) == 0


async def test_a_worker_takes_the_most_urgent_job_first(storage: Store, worker: Worker, log: EventLog) -> None:
    for priority in reversed(Priority):
        await put(storage, log, priority=priority)
    while await worker.run_once():
        pass
    assert [event.priority for event in log.last] == list(Priority)
    assert (await counts(storage)).done == log.counts["done"] == 4
    waits = log.mean_waits()
    assert waits[Priority.CRITICAL] == 0.0 < waits[Priority.LOW]


async def test_a_failing_job_is_retried_with_a_growing_delay(
    storage: Store, clock: ManualClock, worker: Worker, log: EventLog
) -> None:
    await put(storage, log, fails=2)
    delays = []
    for _ in range(3):
        (job,) = await storage.take(QUEUE, 1)
        outcome = decide(job)
        await storage.settle([outcome])
        delays.append(outcome.delay if isinstance(outcome, Retry) else None)
        clock.advance(10)
    assert delays == [0.5, 1.0, None]
    assert (await counts(storage)).done == 1


async def test_a_hopeless_job_is_buried_then_revived_and_done(
    storage: Store, clock: ManualClock, worker: Worker, log: EventLog
) -> None:
    await put(storage, log, fails=4)
    for _ in range(4):
        assert await worker.run_once() == 1
        clock.advance(10)
    assert (await counts(storage)).dead == log.counts["buried"] == 1
    await Reviver(storage, log).run_once()
    assert await worker.run_once() == 1
    assert log.last[-1].what == "done"
    assert [event.what for event in log.notable] == ["buried", "revived"]
    assert (await read_totals(storage, log)).problems() == []


@pytest.mark.parametrize(("dead", "removed"), [(1, 0), (MAX_DEAD - 2, 0), (MAX_DEAD + 1, 0), (MAX_DEAD + 5, 4)])
async def test_dead_jobs_are_removed_only_when_there_are_too_many(
    dead: int, removed: int, storage: Store, log: EventLog
) -> None:
    for _ in range(dead):
        await put(storage, log)
    for job in await storage.take(QUEUE, dead):
        await storage.settle([Bury(job.lease, "no hope")])
        log.counts["buried"] += 1
    await Reviver(storage, log).run_once()
    assert (await counts(storage)).dead == dead - 1 - removed
    assert (log.counts["revived"], log.counts["removed"]) == (1, removed)
    assert (await read_totals(storage, log)).problems() == []


async def test_a_crashed_workers_job_comes_back_and_its_late_report_is_refused(
    storage: Store, clock: ManualClock, worker: Worker, log: EventLog
) -> None:
    id = await put(storage, log)
    crasher = Crasher("carl", storage, clock, log)
    await crasher.crash()
    await crasher.report_late()
    assert (await counts(storage)).taken == crasher.pending == 1

    clock.advance(2)
    assert await worker.run_once() == 1
    await crasher.report_late()

    assert crasher.pending == 0
    assert [(event.what, event.id) for event in log.notable] == [("crashed", id), ("refused", id)]
    assert outcome_text(log.notable[-1]) == "refused: lost"
    assert (log.last[-1].what, log.last[-1].attempts) == ("done", 1)
    stats = await counts(storage)
    assert (stats.expired, stats.done) == (1, 1)
    assert (await read_totals(storage, log)).problems() == []


async def test_a_worker_that_was_too_slow_is_refused(storage: Store, clock: ManualClock, log: EventLog) -> None:
    async def stall(seconds: float) -> None:
        clock.advance(60)

    await put(storage, log)
    await Worker("ada", storage, clock, log, stall).run_once()
    assert [event.what for event in log.notable] == ["refused"]
    assert (await read_totals(storage, log)).problems() == []


async def test_a_snapshot_counts_ready_jobs_by_priority_and_jobs_done_each_second(
    storage: Store, clock: ManualClock, worker: Worker, log: EventLog
) -> None:
    sampler = Sampler(storage, clock, log)
    assert (await sampler.run_once()).stats == QueueStats()
    for priority in (*[Priority.LOW] * 3, *[Priority.HIGH] * BATCH):
        await put(storage, log, priority=priority)
    await worker.run_once()
    clock.advance(1.6)
    snapshot = await sampler.run_once("draining")
    assert snapshot.ready == {Priority.CRITICAL: 0, Priority.HIGH: 0, Priority.NORMAL: 0, Priority.LOW: 3}
    assert (snapshot.rates, snapshot.depths) == ((BATCH / 2,), (3,))
    assert (snapshot.elapsed, snapshot.phase, snapshot.enqueued) == (2.0, "draining", 3 + BATCH)


def test_the_first_jobs_show_every_case() -> None:
    jobs = [new_job(number, Random(number), 0) for number in range(40)]
    assert {read_work(job.data).fails for job in jobs} == {0, 1, 2, 4}
    assert any(job.delay for job in jobs)


# The view


def snapshot(**changes: object) -> Snapshot:
    base = Snapshot(
        phase="running",
        elapsed=75.4,
        stats=QueueStats(total=21, ready=12, delayed=5, taken=3, dead=1, done=1234, retried=20, buried=2, expired=4),
        enqueued=1255,
        refused=4,
        ready={Priority.CRITICAL: 0, Priority.HIGH: 1, Priority.NORMAL: 3, Priority.LOW: 8},
        mean_waits={Priority.CRITICAL: 0.04, Priority.LOW: 3.5},
        rates=(1.0, 4.0, 2.0),
        depths=(3, 9, 12),
        last=(
            Event("done", 101, "invoice", 2.0, 0, "ada"),
            Event("retried", 102, "payment", 1.0, 1, "bruno", "in 1 s: no answer"),
        ),
        notable=(Event("refused", 77, "newsletter", 3.0, 0, "carl", "lost"),),
    )
    return msgspec.structs.replace(base, **changes)


@pytest.mark.parametrize("width", [80, 120])
def test_the_board_fills_the_screen_and_never_overflows(width: int) -> None:
    lines = drawn(board(snapshot(), width, 24), width).splitlines()
    assert len(lines) == 24
    assert {len(line) for line in lines} == {width}


@pytest.mark.parametrize("width", [80, 120])
def test_the_board_shows_the_counts_of_the_snapshot(width: int) -> None:
    text = drawn(board(snapshot(), width, 24), width)
    assert "running 1:15" in text
    names, values = (re.findall(r"[a-z0-9]+", line) for line in text.splitlines()[2:4])
    assert dict(zip(names, map(int, values), strict=True)) == {
        "ready": 12, "delayed": 5, "taken": 3, "dead": 1,
        "enqueued": 1255, "done": 1234, "retried": 20, "buried": 2, "expired": 4, "refused": 4,
    }  # fmt: skip
    assert re.search(r"LOW +8 █{8} +3\.50 s", text)
    assert re.search(r"CRITICAL +0 +0\.04 s", text)


def test_the_board_shows_the_last_jobs_newest_first() -> None:
    text = drawn(board(snapshot(), 80, 24))
    assert re.search(r"102 payment +HIGH +1 +1 bruno +retried in 1 s: no answer", text)
    assert re.search(r"77 newsletter +LOW +3 +0 carl +refused: lost", text)
    assert text.index("102 payment") < text.index("101 invoice")


@pytest.mark.parametrize(("width", "height"), [(40, 10), (20, 5), (200, 60)])
def test_the_board_fits_any_size(width: int, height: int) -> None:
    assert max(len(line) for line in drawn(board(snapshot(), width, height), width).splitlines()) <= width


def test_an_empty_board_is_drawn_too() -> None:
    empty = Snapshot(phase="running", elapsed=0.0, stats=QueueStats())
    assert len(drawn(board(empty, 80, 24)).splitlines()) == 24


def test_a_sparkline_is_no_wider_than_asked() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([0, 0], 10) == "▁▁"
    assert sparkline(range(100), 8)[-1] == "█"
    assert len(sparkline(range(100), 8)) == 8


def test_a_progress_line_fits_eighty_columns() -> None:
    line = progress_line(snapshot())
    assert line == "  75 s  ready 12  delayed 5  taken 3  dead 1  done 1234  retried 20  expired 4"


# The sum


def totals(**changes: object) -> Totals:
    base = Totals(
        stats=QueueStats(total=10, ready=2, delayed=4, taken=1, dead=3, done=89, retried=9, buried=5, expired=2),
        enqueued=100,
        done=89,
        buried=5,
        revived=1,
        removed=1,
        refused=2,
        crashed=2,
        mean_waits={Priority.HIGH: 0.25},
    )
    return msgspec.structs.replace(base, **changes)


def test_the_summary_states_the_conservation() -> None:
    text = drawn(summary(totals(), 20.3, where="SQLite"))
    assert "100 enqueued = 89 done + 3 dead + 2 ready + 4 delayed + 1 taken + 1 removed" in text
    assert "It adds up" in text
    assert "DOES NOT" not in text
    assert "make test" in text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"enqueued": 101}, "101 jobs were enqueued, but 100 can be accounted for"),
        ({"done": 88}, "88 jobs were settled as done, but the storage counted 89"),
        ({"buried": 6}, "4 jobs should be dead, but the storage counted 3"),
    ],
)
def test_the_summary_says_what_does_not_add_up(changes: dict[str, object], problem: str) -> None:
    wrong = totals(**changes)
    assert wrong.problems() == [problem]
    text = drawn(summary(wrong, 20.3, where="SQLite"))
    assert f"IT DOES NOT ADD UP: {problem}" in text
    assert "It adds up" not in text


def test_changes_by_people_are_no_loss() -> None:
    text = drawn(summary(totals(enqueued=101), 20.3, where="SQLite", changes=2))
    assert "You changed something 2 times yourself" in text
    assert "ADD UP" not in text
    assert "It adds up" in drawn(summary(totals(), 20.3, where="SQLite", changes=2))


# The whole


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "86401"])
def test_a_bad_length_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="DEMO_SECONDS"):
        seconds_to_run({"DEMO_SECONDS": text}, terminal=True)


def test_on_a_terminal_it_runs_until_interrupted() -> None:
    assert seconds_to_run({}, terminal=True) is None
    assert seconds_to_run({"DEMO_SECONDS": " "}, terminal=False) == 20.0
    assert seconds_to_run({"DEMO_SECONDS": "1.5"}, terminal=True) == 1.5


def command(tmp_path: Path, seconds: str) -> tuple[list[str], dict[str, str]]:
    chosen = {"DEMO_SECONDS": seconds, "TMPDIR": str(tmp_path), "COLUMNS": "100", "LINES": "24", "TERM": "xterm"}
    environment = os.environ | chosen
    return [sys.executable, "-m", "examples.demo"], environment


def check_the_end(code: int, output: str, errors: str, tmp_path: Path) -> None:
    assert (code, errors) == (0, "")
    sums = re.search(r"^(\d+) enqueued = (.+ removed)$", output, re.MULTILINE)
    assert sums is not None, output
    assert int(sums[1]) == sum(int(term) for term in re.findall(r"\d+", sums[2])) > 0
    assert "It adds up" in output
    assert list(tmp_path.iterdir()) == []


def test_the_whole_demo_runs_without_a_terminal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments, environment = command(tmp_path, "2")
    end = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)
    check_the_end(end.returncode, end.stdout, end.stderr, tmp_path)


def test_the_api_runs_beside_the_demo(tmp_path: Path) -> None:
    arguments, environment = command(tmp_path, "30")
    process = subprocess.Popen(
        [arguments[0], "-u", *arguments[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        while not (found := re.search(r"http://[0-9.:]+", process.stdout.readline())):
            pass
        address = found[0]
        job = call(f"{address}/api/v1/jobs", {"queue": "hello", "payload": "Anna"})
        result = call(f"{address}/api/v1/jobs/{job['id']}/result?wait=20")
        while "done" not in process.stdout.readline():
            pass
        queues = [queue["name"] for queue in call(f"{address}/api/v1/queues")["items"]]
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert result["result"] == "hello, Anna"
    assert {"demo", "hello"} <= set(queues)
    check_the_end(process.returncode, output, errors, tmp_path)


def call(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("wish", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_with_its_summary(tmp_path: Path, wish: signal.Signals) -> None:
    arguments, environment = command(tmp_path, "4")
    # `-u`: a progress line is the sign that it is under way.
    process = subprocess.Popen(
        [arguments[0], "-u", *arguments[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            pass
        process.send_signal(wish)
        output, errors = process.communicate(timeout=30)
    check_the_end(process.returncode, output, errors, tmp_path)


def test_on_a_terminal_it_draws_the_board_until_it_is_interrupted(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    arguments, environment = command(tmp_path, "")
    ours, theirs = pty.openpty()
    with subprocess.Popen(arguments, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        output = read_terminal(ours, until=b"Worth a look")
        process.send_signal(signal.SIGINT)
        output += read_terminal(ours, until=None)
    os.close(ours)
    # A signal may cut a write to a terminal short, in the middle of a character: that frame is gone anyway.
    screen, end = output.decode(errors="replace").split("\x1b[?1049l")  # back from the alternate screen
    assert "Ready by priority" in screen
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", end).replace("\r", "")
    check_the_end(process.returncode, plain, "", tmp_path)


def read_terminal(terminal: int, until: bytes | None) -> bytes:
    """What is written to the terminal, up to the text `until` or to its end."""
    output = b""
    while until is None or until not in output:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # how Linux reports that the other side is closed
            part = b""
        if not part:
            return output
        output += part
    return output


def test_a_bad_length_ends_with_one_clear_line(tmp_path: Path) -> None:
    arguments, environment = command(tmp_path, "soon")
    end = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)
    assert (end.returncode, end.stdout) == (2, "")
    assert end.stderr == (
        "examples.demo: DEMO_SECONDS: must be a number of seconds above 0 and up to 86400, not 'soon'\n"
    )
