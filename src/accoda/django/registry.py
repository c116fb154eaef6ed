"""The tasks of a project, by their dotted path.

A job in the store names its task by that path. It is looked up here and never imported: what is in a store runs only
what the project's own code declares.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from accoda.django.compat import Task

_found: dict[str, Task[..., Any]] = {}
_discovered: set[tuple[str, ...]] = set()
_lock = threading.RLock()


def note(task: Task[..., Any]) -> None:
    """A task was declared. The copies that `using` makes are not it; a module that is loaded anew declares it anew."""
    known = _found.get(task.module_path)
    if known is None or known.func is not task.func:
        _found[task.module_path] = task


def declared(task: Task[..., Any]) -> Task[..., Any] | None:
    """The task that a copy was made of."""
    return _found.get(task.module_path)


def find(path: str) -> Task[..., Any] | None:
    """The task of a dotted path; None: the project declares no such task."""
    return _found.get(path) or discover().get(path)


def discover() -> dict[str, Task[..., Any]]:
    """All tasks: those that were declared so far, and those in the `tasks` modules of the installed apps."""
    installed = tuple(config.name for config in apps.get_app_configs())
    with _lock:
        if installed not in _discovered:
            autodiscover_modules("tasks")
            homes = tuple(f"{name}.tasks" for name in installed)
            for name, module in list(sys.modules.items()):
                if name in homes or name.startswith(tuple(f"{home}." for home in homes)):
                    for value in list(vars(module).values()):
                        if isinstance(value, Task):
                            note(value)
            _discovered.add(installed)
        return dict(_found)
