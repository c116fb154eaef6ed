"""Batches for tests of what runs them, without a store."""

from collections.abc import Sequence
from typing import Any

from accoda.app import App
from accoda.model import Job, Lease
from accoda.payload import Codec
from accoda.retry import Limits
from accoda.runtime.batch import BatchRun, Runner

app = App("memory://")


class Owner:
    """Stands for the queue service of a batch."""

    def __init__(self, runner: Any = None, lease: float = 60.0, limits: Limits | None = None) -> None:
        self.queue = "q"
        self.runner: Runner = runner
        self.codec = Codec[Any]()
        self.secret: tuple[str, ...] = ()
        self.lease = lease
        self.timeout: float | None = None
        self.limits = limits or Limits()
        self.new_job = app.new_job


def batch_of(*payloads: Any, data: Sequence[bytes] = ()) -> BatchRun:
    """A batch of jobs with these payloads; their ids are 0, 1, …"""
    jobs = [
        Job(n, "q", data[n] if data else b"", 0.0, 0, None, 0, 0, 0, None, 0, Lease("q", n, 0, 0))
        for n in range(len(payloads))
    ]
    return BatchRun(Owner(), jobs, payloads)


async def run(runner: Runner, batch: BatchRun, timeout: float | None = None) -> None:
    """Let a runner run a batch."""
    batch.owner.runner, batch.timeout = runner, timeout
    await batch.run()
