"""One page for several processes: real ones."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from accoda.runtime.metrics import SharedMetrics, serve

CHILD = Path(__file__).with_name("metrics_child.py")
BOTH = '{queue="emails",queue_num="7"}'


class Child:
    """A process that reports what it is told, and answers when it has."""

    def __init__(self, shared: SharedMetrics) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            env={**os.environ, **shared.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def tell(self, *lines: str) -> None:
        assert self.process.stdin and self.process.stdout
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "ok\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        self.process.communicate("" if self.process.poll() is not None else "end\n", timeout=30)


@pytest.fixture
def shared() -> Iterator[SharedMetrics]:
    shared = SharedMetrics()
    yield shared
    shared.close()


@pytest.fixture
def pair(shared: SharedMetrics) -> Iterator[tuple[Child, Child]]:
    children = Child(shared), Child(shared)
    yield children
    for child in children:
        if child.process.poll() is None:
            child.end()


def sample(shared: SharedMetrics, name: str, labels: str = BOTH) -> float | None:
    found = re.findall(rf"^{re.escape(name + labels)} (\S+)$", shared.page().decode(), re.MULTILINE)
    assert len(found) <= 1, found
    return float(found[0]) if found else None


def outcome(shared: SharedMetrics, word: str) -> float | None:
    return sample(shared, "queue_job_outcomes_total", f'{{outcome="{word}",queue="emails",queue_num="7"}}')


def ready(shared: SharedMetrics) -> float | None:
    return sample(shared, "queue_jobs", '{queue="emails",queue_num="7",state="ready"}')


def test_what_processes_did_is_summed(shared: SharedMetrics, pair: tuple[Child, Child]) -> None:
    one, other = pair
    one.tell("processors 3", "batch emails 10 0.5", "begin emails 4", "handler")
    other.tell("processors 2", "batch emails 30 12", "begin emails 6", "handler")
    assert outcome(shared, "done") == 40
    assert sample(shared, "queue_job_processor_cycle_duration_seconds_count") == 2
    assert sample(shared, "queue_job_processor_cycle_duration_seconds_sum") == 12.5
    assert sample(shared, "queue_tasks_in_progress") == 10
    assert sample(shared, "queue_running_workers", "") == 2
    assert sample(shared, "queue_running_job_processors", "") == 5
    assert sample(shared, "queue_slow_cycles_total") == 1
    assert sample(shared, "mails_sent_total", "") == 2


def test_the_supervisor_serves_the_sum(shared: SharedMetrics, pair: tuple[Child, Child]) -> None:
    for child in pair:
        child.tell("processors 3")
    with serve(0, collect=shared.page) as server:
        with urlopen(f"{server.url}/metrics", timeout=10) as answer:
            assert b"\nqueue_running_job_processors 6.0\n" in answer.read()
        pair[0].kill()
        shared.ended(pair[0].pid)
        with urlopen(f"{server.url}/metrics", timeout=10) as answer:
            assert b"\nqueue_running_job_processors 3.0\n" in answer.read()


def test_what_they_say_of_the_same_store_is_not_summed(shared: SharedMetrics, pair: tuple[Child, Child]) -> None:
    one, other = pair
    one.tell("depth emails 100")
    assert ready(shared) == 100
    other.tell("depth emails 70")
    assert ready(shared) == 70
    one.tell("depth emails 40")
    assert ready(shared) == 40
    assert sample(shared, "queue_oldest_ready_job_age_seconds") == 3


def test_a_dead_child_keeps_its_counts_and_loses_its_gauges(shared: SharedMetrics, pair: tuple[Child, Child]) -> None:
    one, other = pair
    one.tell("processors 3", "batch emails 10 0.5", "begin emails 4")
    other.tell("processors 2", "batch emails 30 0.5", "begin emails 6")
    one.kill()
    shared.ended(one.pid)
    assert outcome(shared, "done") == 40
    assert sample(shared, "queue_job_processor_cycle_duration_seconds_count") == 2
    assert sample(shared, "queue_tasks_in_progress") == 6
    assert sample(shared, "queue_running_workers", "") == 1
    assert sample(shared, "queue_running_job_processors", "") == 2
    shared.ended(one.pid)
    assert outcome(shared, "done") == 40


def test_children_that_die_again_and_again_leave_no_pile_of_files(shared: SharedMetrics) -> None:
    folder = Path(shared.environment["PROMETHEUS_MULTIPROC_DIR"])
    left = []
    for n in range(1, 4):
        child = Child(shared)
        child.tell("batch emails 10 0.5", "depth emails 5")
        child.kill()
        shared.ended(child.pid)
        assert outcome(shared, "done") == 10 * n
        left.append(sorted(file.name for file in folder.iterdir()))
    assert left[0] == left[1] == left[2] == ["counter_dead.db", "histogram_dead.db"]
    assert ready(shared) is None  # none is left to tell


def test_a_process_killed_while_it_made_its_file_does_not_spoil_the_page(
    shared: SharedMetrics, pair: tuple[Child, Child]
) -> None:
    pair[0].tell("batch emails 10 0.5")
    folder = Path(shared.environment["PROMETHEUS_MULTIPROC_DIR"])
    (folder / "counter_999999.db").touch()
    assert outcome(shared, "done") == 10
    shared.ended(999999)
    assert not (folder / "counter_999999.db").exists()
    assert outcome(shared, "done") == 10


def test_a_reader_sees_each_count_once_while_dead_children_are_added_up(shared: SharedMetrics) -> None:
    child = Child(shared)
    child.tell("batch emails 10 0.5")
    child.kill()
    folder = Path(shared.environment["PROMETHEUS_MULTIPROC_DIR"])
    others = range(10_000_000, 10_000_150)  # beyond every real process id
    for pid in others:
        shutil.copy(folder / f"counter_{child.pid}.db", folder / f"counter_{pid}.db")
    seen: list[float | None] = []
    begun, stop = threading.Event(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.append(outcome(shared, "done"))
            begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(30)
    for pid in others:
        shared.ended(pid)
    stop.set()
    reader.join(30)
    seen.append(outcome(shared, "done"))
    assert set(seen) == {10.0 * (1 + len(others))}


def test_before_the_first_child_the_page_is_empty(shared: SharedMetrics) -> None:
    assert shared.page() == b""


def test_after_close_nothing_is_left_and_nothing_breaks(shared: SharedMetrics) -> None:
    folder = Path(shared.environment["PROMETHEUS_MULTIPROC_DIR"])
    assert folder.is_dir()
    shared.close()
    shared.close()
    shared.ended(1)
    assert not folder.exists()
    assert shared.page() == b""


def test_a_process_that_learns_of_the_folder_too_late_says_so(shared: SharedMetrics) -> None:
    code = f"""
import logging, os, prometheus_client
logging.basicConfig()
os.environ["PROMETHEUS_MULTIPROC_DIR"] = {shared.environment["PROMETHEUS_MULTIPROC_DIR"]!r}
from accoda.runtime.metrics import Metrics
Metrics()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "is not on the shared page" in run.stderr
