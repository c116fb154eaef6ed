"""Celery at mixed work: its pool of threads, one a slot. It has no `async def` tasks."""

from __future__ import annotations

from typing import Any

from celery import Celery
from timed import Jobs, Order, main


def task_of(order: Order, jobs: Jobs | None) -> Any:
    def mixed(payload: dict[str, Any]) -> None:
        assert jobs is not None
        jobs.run(payload)

    app = Celery("bench", broker=order.url)
    app.conf.update(task_ignore_result=True, worker_enable_remote_control=False)
    return app.task(mixed, name="mixed")


def fill(order: Order) -> None:
    task = task_of(order, None)
    with task.app.producer_pool.acquire(block=True) as producer:
        for payload in order.payloads():
            task.apply_async((payload,), producer=producer)


def work(order: Order, jobs: Jobs) -> None:
    quiet = ["--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    pool = ["--pool=threads", f"--concurrency={order.slots}"]
    task_of(order, jobs).app.worker_main(["worker", *quiet, *pool])


if __name__ == "__main__":
    main(fill, work)
