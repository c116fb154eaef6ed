"""Batches for tests of what runs them, without a store."""

from collections.abc import Callable, Sequence
from typing import Any

from accoda.app import App
from accoda.handler_options import JobTarget
from accoda.model import Job, Lease
from accoda.payload import Codec
from accoda.retry import Limits
from accoda.runtime.batch import BatchRun, Runner

app = App("memory://")


class Owner:
    """Stands for the service of a batch's handler, and for that of its queue."""

    def __init__(self, runner: Any = None, lease: float = 60.0, limits: Limits | None = None) -> None:
        self.queue = "q"
        self.number: int | None = None
        self.type: str | None = None
        self.takes_batch = False
        self.explicit = False
        self.renew = True
        self.alone = False
        self.open_bare: Callable[[bytes], Any] | None = None
        self.runner: Runner = runner
        self.codec = Codec[Any]()
        self.secret: tuple[str, ...] = ()
        self.on_dead: JobTarget | None = None
        self.lease = lease
        self.timeout: float | None = None
        self.limits = limits or Limits()
        self.new_job = app.new_job

    @property
    def untyped(self) -> "Owner":
        return self

    def owner_of(self, type: str | None) -> "Owner":
        return self


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
