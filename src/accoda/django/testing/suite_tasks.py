"""The tasks of the conformance suite. Import it only where the backend under test is the default one."""

from __future__ import annotations

import sys
from typing import Any

from accoda.django.compat import TaskContext, plain_task


class Unshowable(Exception):
    """Cannot be made without an argument, shown or copied."""

    def __init__(self, needed: object) -> None:
        super().__init__(lambda: needed)

    def __str__(self) -> str:
        raise RuntimeError("this error has no text")


ran: list[Any] = []
"""What `note` was called with, in order, where the tasks run in this process."""


@plain_task
def add(first: int, second: int) -> int:
    return first + second


@plain_task
def echo(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs}


@plain_task
def nothing() -> None:
    return None


@plain_task
def note(value: Any) -> None:
    ran.append(value)


@plain_task
async def add_async(first: int, second: int) -> int:
    return first + second


@plain_task
def fail(text: str = "this task fails") -> None:
    raise ValueError(text)


@plain_task
async def fail_async() -> None:
    raise ValueError("this task fails, too")


@plain_task
def fail_unshowably() -> None:
    raise Unshowable(1)


@plain_task
def fail_with_cause() -> None:
    try:
        raise KeyError("the cause")
    except KeyError as error:
        raise RuntimeError("the effect") from error


@plain_task
def exit_process() -> None:
    sys.exit(3)


@plain_task
def interrupt() -> None:
    raise KeyboardInterrupt


@plain_task
def return_object() -> Any:
    return object()


@plain_task
def return_bytes_and_tuple() -> Any:
    return {"bytes": b"as text", "tuple": (1, 2)}


@plain_task(takes_context=True)
def look_around(context: TaskContext[Any, Any], value: Any) -> dict[str, Any]:
    result = context.task_result
    return {
        "attempt": context.attempt,
        "attempts": result.attempts,
        "id": result.id,
        "status": str(result.status),
        "args": result.args,
        "value": value,
        "started": result.started_at is not None,
        "finished": result.finished_at is not None,
    }


@plain_task(takes_context=True)
async def look_around_async(context: TaskContext[Any, Any], *, value: Any) -> list[Any]:
    return [context.attempt, context.task_result.id, value]


@plain_task
def enqueue_another(value: Any) -> str:
    return note.enqueue(value).id


@plain_task
async def enqueue_another_async(value: Any) -> str:
    return (await note.aenqueue(value)).id


def no_task() -> None:
    """A plain function."""
