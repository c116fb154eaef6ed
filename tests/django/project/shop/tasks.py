"""The tasks of the project."""

from __future__ import annotations

import os
import time
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection
from tests.django.project.shop.models import Order

from accoda.django import task
from accoda.django.compat import TaskContext, plain_task


@plain_task
def count(number: int) -> int:
    """Leaves an order, and how often it ran."""
    Order.objects.create(number=number)
    return Order.objects.filter(number=number).count()


@plain_task
async def count_async(number: int) -> int:
    await Order.objects.acreate(number=number)
    return await Order.objects.filter(number=number).acount()


@plain_task
def backend_pid() -> int:
    """The server's process behind this run's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@plain_task
async def backend_pid_async() -> int:
    return await sync_to_async(backend_pid.func)()


@plain_task
def append(path: str, number: int) -> None:
    """Leave a line in a file: unlike a row, it stays also where the run is killed."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{number}\n".encode())
    finally:
        os.close(file)


@plain_task
def append_slowly(path: str, seconds: float) -> str:
    """Say that it runs, and take its time."""
    append.func(path, 1)
    time.sleep(seconds)
    return "slowly"


@task(takes_context=True, max_attempts=3, retry=0)
def fail_twice(context: TaskContext[Any, Any]) -> list[int]:
    if context.attempt < 3:
        raise LookupError(f"attempt {context.attempt}")
    return [context.attempt, len(context.task_result.errors)]


@task(max_attempts=2, retry=0)
def always_fails() -> None:
    raise LookupError("always")


@task(key="order-{number}", lane="{customer}")
def keyed(number: int, customer: str = "nobody") -> int:
    return number


@task(timeout=0.2)
def too_slow() -> None:
    time.sleep(0.01)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        time.sleep(0.01)


@task(keep_for=3600, secret=["kwargs.card"])
def charge(*, card: str) -> None:
    raise ValueError(f"the card {card} was refused")
