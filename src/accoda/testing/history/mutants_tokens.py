"""Toy queues that are wrong about how often a job came back, and why."""

from __future__ import annotations

from accoda.testing.reference import Reference


class ForgetsCrashes(Reference):
    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        for job in self.jobs.values():
            job.crashes = min(job.crashes, 1)


class StartsWithAnotherToken(Reference):
    def _start_one_now(self, id: int) -> bool:
        """A job that is started early counts as one that came back."""
        started = super()._start_one_now(id)
        if started:
            self.jobs[id].attempts += 1
        return started
