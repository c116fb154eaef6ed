"""Django's tasks framework: `django.tasks` from Django 6.0 on, the `django-tasks` backport before. Import it from here.

Type checkers see Django's own: the two have the same shape.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING or find_spec("django.tasks") is not None:
    from django.tasks import default_task_backend, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.base import task as plain_task
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import default_task_backend, task_backends
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise ModuleNotFoundError(
            "Django before 6.0 has no tasks framework; install the backport: pip install django-tasks",
            name="django_tasks",
        ) from error
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.base import task as plain_task
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

if TYPE_CHECKING:
    GenericTask = Task
else:

    class GenericTask(Task):
        """`Task[P, R]` as a base class: Django's own is generic for type checkers only."""

        __slots__ = ()

        def __class_getitem__(cls, item):
            return cls


__all__ = [
    "BaseTaskBackend",
    "GenericTask",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "default_task_backend",
    "normalize_json",
    "plain_task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
