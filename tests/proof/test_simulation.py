"""The simulation itself: the same seed gives the same run, and what is broken on purpose is found."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from proof.simulation import BREAKS, FAULTS, Plan, Result, simulate
from proof.simulation.__main__ import main, replay
from proof.simulation.scheduler import START, Scheduler, TooLong

from accoda.errors import InvalidInput

SMALL = Plan(jobs=300)
NEAR = {
    "heartbeat-sleeps": 1,
    "lease-lasts-too-long": 2,
    "follow-ups-of-a-refused-bury": 37,
    "inbox-forgotten": 3,
    "late-done": 2,
    "follow-ups-of-a-refused-done": 3,
    "waiter-forgotten": 3,
    "pause-ignored": 7,
    "attach-begins-again": 5,
    "place-lost-at-a-lease-end": 5,
}
"""Where the search begins, to save time: near the seeds that found these when this was written."""


def told(result: Result) -> str:
    return "\n".join([f"seed {result.seed}, trace {result.digest}", *result.violations])


class TestManySeeds:
    def test_hold_every_promise(self) -> None:
        operations, joins, seed = 0, 0, 0
        began = time.process_time()
        while time.process_time() - began < 3 or seed < 3:  # a share of the machine's time, not a number of seeds
            result = simulate(seed)
            assert result.ok, told(result)
            operations += result.operations
            joins += result.joins
            seed += 1
        assert operations > 10_000
        assert joins > 50

    def test_hold_with_each_fault_alone(self) -> None:
        for fault in FAULTS:
            result = simulate(1000, Plan(jobs=300, faults=(fault,)))
            assert result.ok, told(result)

    def test_meet_every_fault(self) -> None:
        results = [simulate(seed, SMALL) for seed in range(12)]
        assert {fault for result in results for fault in result.faults} == set(FAULTS)
        assert sum(result.kills for result in results) > 20
        assert sum(result.pauses for result in results) > 20
        assert sum(result.lost_requests for result in results) > 0
        assert sum(result.lost_answers for result in results) > 0


class TestASeed:
    def test_gives_the_same_run_twice(self) -> None:
        first, second = io.StringIO(), io.StringIO()
        assert simulate(7, SMALL, first) == simulate(7, SMALL, second)
        assert first.getvalue() == second.getvalue()
        assert first.getvalue().count("\n") > 1_000

    def test_gives_the_same_run_with_and_without_a_trace(self) -> None:
        assert simulate(8, SMALL) == simulate(8, SMALL, io.StringIO())

    def test_differs_from_another(self) -> None:
        assert len({simulate(seed, SMALL).digest for seed in range(5)}) == 5

    def test_does_not_depend_on_the_hash_seed(self) -> None:
        program = (
            "from proof.simulation import Plan, simulate\n"
            "print([simulate(seed, Plan(jobs=300)).digest for seed in (0, 4, 6)])"
        )
        digests = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONASYNCIODEBUG": debug},
                capture_output=True,
                check=True,
                text=True,
            ).stdout
            for salt, debug in (("1", ""), ("2", "1"))
        }
        assert len(digests) == 1

    def test_leaves_the_process_as_it_was(self) -> None:
        import accoda.runtime.worker as worker
        from accoda.runtime import lease_heartbeat, processor

        before = (
            worker.LeaseHeartbeat,
            worker.os,
            worker.time,
            lease_heartbeat.time,
            processor.time,
            gc.isenabled(),
            random.getstate(),
        )
        simulate(3, SMALL)
        after = (
            worker.LeaseHeartbeat,
            worker.os,
            worker.time,
            lease_heartbeat.time,
            processor.time,
            gc.isenabled(),
            random.getstate(),
        )
        assert before == after
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()


class TestAPromiseThatIsBroken:
    @pytest.mark.parametrize("name", BREAKS)
    def test_is_found_and_its_seed_fails_again_in_the_same_way(self, name: str) -> None:
        plan = Plan(jobs=1_200, broken=name)
        first = NEAR.get(name, 0)
        for seed in range(first, first + 60):
            result = simulate(seed, plan)
            if not result.ok:
                assert simulate(seed, plan) == result
                return
        pytest.fail(f"{name} ({BREAKS[name].what}) was not found in 60 seeds")

    def test_must_be_one_that_exists(self) -> None:
        with pytest.raises(InvalidInput, match="there is no break 'gravity'; there are double-lease"):
            simulate(0, Plan(broken="gravity"))


class TestTheCommand:
    def test_runs_seeds_and_tells_the_rate(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--seeds", "0-1", "--jobs", "200"]) == 0
        assert "of 2 seeds" in capsys.readouterr().out

    def test_stops_after_the_operations_that_were_asked_for(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--operations", "1000", "--jobs", "200"]) == 0
        assert "0 violations" in capsys.readouterr().out

    def test_prints_a_failure_and_how_to_run_it_again(
        self, capsys: pytest.CaptureFixture[str], tmp_path: object
    ) -> None:
        arguments = ["--jobs", "1200", "--break", "expiry-forgets"]
        assert main(["--seeds", "0-40", *arguments]) == 1
        out = capsys.readouterr().out
        command = next(line for line in out.splitlines() if line.startswith("  python -m"))
        again = [*command.split()[3:-1], f"{tmp_path}/trace.txt"]
        assert main(again) == 1
        failed = [line for line in out.splitlines() if "FAILED" in line]
        assert failed[0] in capsys.readouterr().out

    def test_writes_down_every_step(self, tmp_path: object) -> None:
        assert main(["--seed", "5", "--jobs", "200", "--trace", f"{tmp_path}/trace.txt"]) == 0

    @pytest.mark.parametrize("wrong", [["--seeds", "a-b"], ["--faults", "flood"], ["--break", "gravity"]])
    def test_refuses_what_it_does_not_know(self, wrong: list[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == 2

    def test_names_all_that_makes_the_run(self) -> None:
        plan = Plan(jobs=7, faults=("kill", "lost"), broken="late-done")
        assert replay(3, plan).endswith("--seed 3 --jobs 7 --faults kill,lost --break late-done")
        assert replay(3, Plan(faults=())).endswith("--seed 3 --faults none")


class TestTheLoop:
    def test_jumps_to_the_next_timer(self) -> None:
        scheduler = Scheduler(0)
        loop = scheduler.loop("a")
        scheduler.run(loop.spawn(asyncio.sleep(86_400)), 90_000, 100)
        assert 86_400 <= scheduler.now - START < 86_401
        scheduler.close()

    def test_keeps_the_order_of_one_lane_and_mixes_lanes(self) -> None:
        orders = set()
        for seed in range(20):
            scheduler, order = Scheduler(seed), list[str]()
            loops = [scheduler.loop("a"), scheduler.loop("b")]
            for number in range(3):
                for loop in loops:
                    loop.call_soon(order.append, f"{loop.name}{number}")
            scheduler.run(loops[0].spawn(asyncio.sleep(0.001)), 1, 1000)
            assert [one for one in order if one[0] == "a"] == ["a0", "a1", "a2"]
            assert [one for one in order if one[0] == "b"] == ["b0", "b1", "b2"]
            orders.add(tuple(order))
            scheduler.close()
        assert len(orders) > 5

    def test_runs_nothing_of_a_lane_that_is_stopped_until_it_goes_on(self) -> None:
        scheduler = Scheduler(0)
        loop, other = scheduler.loop("a"), scheduler.loop("b")
        woken = list[float]()

        async def work() -> None:
            await asyncio.sleep(1)
            woken.append(scheduler.now - START)

        task = loop.spawn(work())
        other.call_later(0.5, loop.stop)
        other.call_later(10, loop.go_on)
        scheduler.run(task, 100, 1000)
        assert woken[0] == pytest.approx(10, abs=0.01)
        scheduler.close()

    def test_runs_nothing_of_a_dead_lane_not_even_what_cleans_up(self) -> None:
        scheduler = Scheduler(0)
        loop, other = scheduler.loop("a"), scheduler.loop("b")
        seen = list[str]()

        async def work() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                seen.append("over" if scheduler.over else "cleaned up")

        loop.spawn(work())
        other.call_later(0.5, loop.die)
        scheduler.run(other.spawn(asyncio.sleep(5)), 100, 1000)
        gc.collect()
        assert seen == []
        scheduler.close()

    def test_does_not_go_on_for_ever(self) -> None:
        scheduler = Scheduler(0)
        loop = scheduler.loop("a")

        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        with pytest.raises(TooLong, match="round in circles"):
            scheduler.run(loop.spawn(spin()), 1e9, 5_000)
        scheduler.close()
        idle = Scheduler(0)
        with pytest.raises(TooLong, match="nothing is left to do"):
            idle.run(idle.loop("a").create_future(), 10, 100)
        idle.close()

    def test_tells_of_errors_that_were_not_caught(self) -> None:
        scheduler = Scheduler(0)
        loop = scheduler.loop("a")
        loop.call_soon(int, "no number")
        scheduler.run(loop.spawn(asyncio.sleep(1)), 10, 100)
        assert "invalid literal" in scheduler.problems[0]
        scheduler.close()


class TestThePage:
    PAGE = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()

    def test_has_an_example_that_runs(self) -> None:
        (code,) = re.findall(r"```python\n(.*?)```", self.PAGE, re.DOTALL)
        exec(compile(code, "simulation.md", "exec"), {})

    def test_names_every_fault(self) -> None:
        assert [fault for fault in FAULTS if f"| `{fault}` |" not in self.PAGE] == []
