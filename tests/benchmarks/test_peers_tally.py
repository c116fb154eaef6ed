"""What workers tell the harness through the shared file: exact counts from threads, forks and processes; lateness."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers" / "adapters"))

import driving
import tally as adapter_side
from benchmarks.peers import shared as harness_side
from benchmarks.peers.environments import ADAPTERS
from benchmarks.peers.shared import Shared

JOB = {"user": 1}


def tally_of(shared: Shared, **more: Any) -> adapter_side.Tally:
    return adapter_side.Tally(adapter_side.Order("", 0, shared=str(shared.path), **more))


def test_both_sides_agree_on_what_stands_where() -> None:
    assert harness_side.TIMES == adapter_side.TIMES
    assert harness_side.THREAD == adapter_side.THREAD
    assert slice(adapter_side.FOREIGN, adapter_side.ARRIVED) == harness_side.FOREIGN


def test_no_run_is_lost_between_threads(tmp_path: Path) -> None:
    with Shared(tmp_path / "shared") as shared:
        tally = tally_of(shared)
        threads = [threading.Thread(target=lambda: [tally.ran(JOB) for _ in range(5000)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert shared.count() == 40_000


def test_a_forked_child_does_not_undo_the_counts_of_its_parent(tmp_path: Path) -> None:
    script = """
import os, sys
from tally import Order, Tally
tally = Tally(Order("", 0, shared=sys.argv[1]))
tally.ran({})
if os.fork() == 0:
    for _ in range(10):
        tally.ran({})
    os._exit(0)
for _ in range(100):
    tally.ran({})
os.wait()
"""
    with Shared(tmp_path / "shared") as shared:
        subprocess.run([sys.executable, "-c", script, str(shared.path)], check=True, cwd=ADAPTERS, timeout=30)
        assert shared.count() == 111


WORKER = """
import json, sys
from tally import Order, Tally
tally = Tally(Order(**json.loads(sys.argv[1])))
for _ in range(1000):
    tally.ran({})
"""


def test_two_workers_begin_together_and_are_counted_together(tmp_path: Path) -> None:
    with Shared(tmp_path / "shared") as shared:

        def start(number: int) -> subprocess.Popen[bytes]:
            order = {"url": "", "count": 0, "shared": str(shared.path), "number": number, "workers": 2}
            return subprocess.Popen([sys.executable, "-c", WORKER, json.dumps(order)], cwd=ADAPTERS)

        first = start(0)
        cells = memoryview(shared._map)[: harness_side.TIMES].cast("Q")  # the first says that it is there, and waits
        while cells[adapter_side.ARRIVED] < 2:
            time.sleep(0.001)
        assert shared.count() == 0
        cells.release()
        second = start(1)
        assert (first.wait(30), second.wait(30)) == (0, 0)
        assert shared.count() == 2000


def test_a_worker_does_not_wait_forever_for_one_that_gets_no_job(tmp_path: Path) -> None:
    with Shared(tmp_path / "shared") as shared:
        tallies = [tally_of(shared, number=number, workers=2) for number in range(2)]
        tallies[0].ran(JOB)
        assert shared.count() == 1


def test_lateness_is_noted_once_for_each_job_and_a_warm_up_is_only_counted(tmp_path: Path) -> None:
    with Shared(tmp_path / "shared", 3) as shared:
        tally = tally_of(shared, measure="delayed")
        tally.ran(JOB)
        tally.ran({"index": 2, "due": time.time() + 5})
        early = shared.late()
        tally.ran({"index": 2, "due": time.time() - 100})  # run again: the first run counts
        assert shared.late() == early
        assert -5 <= early[0] < -4
        assert shared.count() == 1
        tally.ran({"index": 0, "sent": time.time() - 1})
        assert 1 <= shared.late()[0] < 2


def test_many_at_once_are_counted_like_as_many_alone(tmp_path: Path) -> None:
    with Shared(tmp_path / "shared") as shared:
        tally = tally_of(shared)
        tally.ran_many(500)
        tally.ran_many(7)
        assert shared.count() == 507


PRODUCER = """
import json
from tally import main

class Producer:
    def __init__(self, order):
        self.path = order.url
    def one(self, payload):
        self.note([payload])
    def many(self, payloads):
        self.note(payloads)
    def note(self, payloads):
        with open(self.path, "a") as file:
            for payload in payloads:
                file.write(json.dumps(payload) + "\\n")
    {later}

main(None, None, Producer)
"""
ASYNC = PRODUCER.replace("    def one", "    async def one").replace("    def many", "    async def many")


def say(script: str, what: str, **order: Any) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", script.replace("{later}", ""), what, json.dumps(order)],
        check=True, cwd=ADAPTERS, input="go\n", capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("script", [PRODUCER, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize(("what", "warm"), [("enqueue", 100), ("callers", 100), ("bulk", 1000)])
def test_a_producer_warms_up_waits_for_the_word_and_reports(tmp_path: Path, script: str, what: str, warm: int) -> None:
    lines = say(script, what, url=str(tmp_path / "jobs"), count=1600)
    assert lines[0] == {"ready": True}
    assert lines[1]["count"] == 1600
    assert lines[1]["seconds"] > 0
    assert lines[1]["callers"] == {"enqueue": "", "bulk": ""}.get(
        what, "16 threads" if script is PRODUCER else "100 coroutines"
    )
    assert len((tmp_path / "jobs").read_text().splitlines()) == warm + 1600


def test_a_call_that_the_peer_does_not_have_is_none(tmp_path: Path) -> None:
    assert say(PRODUCER, "delayed", url=str(tmp_path / "jobs"), count=5) == [{"none": True}]


def test_a_latency_run_numbers_its_jobs_and_says_when_each_was_sent(tmp_path: Path) -> None:
    begun = time.time()
    say(ASYNC, "latency", url=str(tmp_path / "jobs"), count=3)
    jobs = [json.loads(line) for line in (tmp_path / "jobs").read_text().splitlines()]
    assert [job.get("index") for job in jobs] == [None] * 5 + [0, 1, 2]
    assert begun < jobs[5]["sent"] < jobs[6]["sent"] < jobs[7]["sent"] < time.time()


def test_delays_are_spread_and_the_same_for_everybody() -> None:
    found = list(driving.dues(60))
    assert found == list(driving.dues(60))
    assert (min(found), max(found)) == driving.DUE
    assert len(set(found)) == 60
    assert found != sorted(found)


def test_the_processor_time_of_another_process_is_exact() -> None:
    from benchmarks.peers.processes import memory, processor_seconds, session

    script = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\nsys.stdin.read()"
    busy = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )  # fmt: skip
    assert busy.stdout is not None
    busy.stdout.readline()
    used = processor_seconds(session(busy.pid))
    if used is not None:
        assert session(busy.pid) == [busy.pid]
        assert 0.2 <= used < 0.4
        assert (memory([busy.pid]) or 0) > 1_000_000
    busy.communicate()
    assert busy.returncode == os.EX_OK
