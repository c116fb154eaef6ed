"""Storages whose `start_now` goes wrong."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.storage.memory import MemoryStorage, moves
from accoda.storage.memory.line import Record
from accoda.testing.mutant import Mutant


class StartNowIsAReturn(MemoryStorage):
    def _start_now(self, id: int, now: int) -> Record | None:
        record = super()._start_now(id, now)
        if record is not None:
            record.attempts += 1
        return record


class StartNowKeepsTheStartTime(MemoryStorage):
    def _start_now(self, id: int, now: int) -> Record | None:
        start_time = self._jobs[id].start_time if id in self._jobs else 0
        record = super()._start_now(id, now)
        if record is not None:
            record.start_time = start_time
        return record


class StartNowRaisesTheDead(MemoryStorage):
    def _start_now(self, id: int, now: int) -> Record | None:
        record = self._jobs.get(id)
        if record is not None and record.state == "dead":
            record.start_time = now
            moves.start(record)
            return record
        return super()._start_now(id, now)


class StartNowAppliesNothing(MemoryStorage):
    def _start_now(self, id: int, now: int) -> Record | None:
        record = self._jobs.get(id)
        return record if record is not None and moves.start_now(record, now) else None


class StartNowWakesNobody(MemoryStorage):
    async def start_now(self, ids: Sequence[int]) -> int:
        with self._lock:
            now = self._now()
            return sum(self._start_now(id, now) is not None for id in ids)


class StartNowForgetsTheKey(MemoryStorage):
    def _start_now(self, id: int, now: int) -> Record | None:
        record = super()._start_now(id, now)
        if record is not None:
            record.line.release_key(record)
        return record


START: dict[str, Mutant] = {
    "start-now-is-a-return": Mutant(
        0,
        "a job that is started early has another token",
        "TestStartNow::test_ends_the_pause_of_a_retry_and_is_no_return",
        StartNowIsAReturn,
    ),
    "start-now-keeps-the-start-time": Mutant(
        0,
        "a job that is started early says that it starts later",
        "TestStartNow::test_makes_a_delayed_job_ready_from_now_on",
        StartNowKeepsTheStartTime,
    ),
    "start-now-raises-the-dead": Mutant(
        0,
        "start_now makes dead jobs ready too",
        "TestStartNow::test_leaves_a_job_in_any_other_state_alone",
        StartNowRaisesTheDead,
    ),
    "start-now-applies-nothing": Mutant(
        0,
        "a job whose time has come by itself is counted",
        "TestStartNow::test_a_job_whose_time_has_come_is_ready_by_itself",
        StartNowAppliesNothing,
        by_machine=False,  # it looks after every command
    ),
    "start-now-wakes-nobody": Mutant(
        0,
        "who waits sleeps on beside a job that was started early",
        "TestStartNow::test_wakes_who_waits",
        StartNowWakesNobody,
        by_machine=False,  # nobody sleeps there
    ),
    "start-now-forgets-the-key": Mutant(
        8,
        "a job that is started early holds its key no longer",
        "TestStartNow::test_keeps_the_key_and_those_who_wait",
        StartNowForgetsTheKey,
    ),
    "sqlite-start-now-keeps-the-start-time": Mutant(
        0,
        "a job that is started early says that it starts later",
        "TestStartNow::test_makes_a_delayed_job_ready_from_now_on",
        sqlite=("start_now", ", start_time = ?2", ""),
    ),
    "sqlite-start-now-goes-to-the-front": Mutant(
        4,
        "jobs that are started early come first, whatever their rank",
        "TestStartNow::test_started_jobs_go_by_rank_then_id_among_the_others",
        sqlite=("start_now", "sort = rank", "sort = -1000"),
    ),
}
