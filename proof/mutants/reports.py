"""Storages that forget reports, make too many, or make them wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import force_setattr, replace

from accoda.model import Bury, Done, NewJob, Outcome, Refused, Report, ReportKind, State
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import MemoryQueue, Record
from proof.mutants.mutant import BrokenQueue, mutant

_TAKEN_BACK = "TestReports::test_a_job_that_is_taken_back_is_reported"


def report_in(job: NewJob) -> Report:
    assert job.waiter is not None
    return Report.read(job.waiter)


class Forgetful(MemoryStorage):
    """Forgets the reports of one kind."""

    kind: ClassVar[ReportKind]

    def _take_reports(self) -> list[NewJob]:
        return [job for job in super()._take_reports() if report_in(job).kind != self.kind]


@mutant("the end of a done job is not reported", "TestReports::test_a_done_job_is_reported_with_its_result")
class ReportOfDoneForgotten(Forgetful):
    kind = "done"


@mutant("the end of a dead job is not reported", "TestReports::test_a_dead_job_is_reported_with_the_reason")
class ReportOfBuryForgotten(Forgetful):
    kind = "dead"


@mutant("the end of a cancelled job is not reported", _TAKEN_BACK)
class ReportOfCancelForgotten(Forgetful):
    kind = "cancelled"


@mutant("a revival is not reported", "TestReports::test_a_revived_job_is_reported_and_reports_again")
class ReportOfReviveForgotten(Forgetful):
    kind = "revived"


class KnowsPurge(MemoryStorage):
    purges = False

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        self.purges = True
        try:
            return await super().purge(queue, state, before=before, limit=limit)
        finally:
            self.purges = False


@mutant("the end of a purged job is not reported", "TestReports::test_purged_jobs_are_reported")
class ReportOfPurgeForgotten(KnowsPurge):
    def _take_reports(self) -> list[NewJob]:
        reports = super()._take_reports()
        return [] if self.purges else reports


@mutant("the end of a removed job is not reported", _TAKEN_BACK)
class ReportOfRemoveForgotten(KnowsPurge):
    def _take_reports(self) -> list[NewJob]:
        return [job for job in super()._take_reports() if self.purges or report_in(job).kind != "removed"]


@mutant("a refused outcome is reported", "TestReports::test_a_refused_outcome_reports_nothing")
class ReportOfARefusedOutcome(MemoryStorage):
    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        refused = super()._settle(outcome, now)
        record = self._jobs.get(outcome.lease.id)
        if refused and record is not None and isinstance(outcome, (Done, Bury)):
            kind: ReportKind = "done" if isinstance(outcome, Done) else "dead"
            self._report(record, kind, now)
        return refused


@mutant(
    "a kept job whose end was reported is reported again when it is purged",
    "TestReports::test_an_end_is_reported_once_though_the_job_was_kept",
)
class SecondReportOfAKeptJob(MemoryStorage):
    def _remove(self, record: Record, now: int) -> None:
        if record.state in ("done", "cancelled"):
            self._report(record, "removed", now)
        super()._remove(record, now)


@mutant("a report comes before follow-ups", "TestReportsOfMany::test_follow_ups_come_before_the_report")
class ReportsBeforeFollowUps(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle([replace(outcome, then=()) for outcome in outcomes])
        lost = {each.lease for each in refused}
        await self.enqueue([job for outcome in outcomes if outcome.lease not in lost for job in outcome.then])
        return refused


@mutant(
    "reports are not in the order of the outcomes",
    "TestReportsOfMany::test_each_flow_hears_of_its_own_jobs_in_the_order_of_the_outcomes",
)
class ReportsBackwards(MemoryStorage):
    def _take_reports(self) -> list[NewJob]:
        return super()._take_reports()[::-1]


@mutant("a large result is in the report", "TestReports::test_a_large_result_is_not_in_the_report")
class LargeResultInTheReport(MemoryStorage):
    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        refused = super()._settle(outcome, now)
        if refused is None and isinstance(outcome, Done) and outcome.result and self._reports:
            job = self._reports[-1]
            report = report_in(job)
            if report.id == outcome.lease.id:
                force_setattr(job, "waiter", replace(report, body=outcome.result).wire())
        return refused


@mutant("a replaced job reports no more", "TestReports::test_a_replaced_job_still_reports")
class ReplacedJobReportsNoMore(BrokenQueue):
    class Queue(MemoryQueue):
        def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
            super().replace(record, job, start_time, now)
            record.reports_to = job.reports_to


@mutant(
    "reports of a purge wake no wait",
    "TestReportsOfMany::test_a_report_wakes_who_waits_for_it",
    by_machine=False,  # nothing sleeps there
)
class PurgeWakesNothing(KnowsPurge):
    def _take_reports(self) -> list[NewJob]:
        reports = super()._take_reports()
        if not self.purges:
            return reports
        for report in reports:
            self._add(report, self._now())
        return []
