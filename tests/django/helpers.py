"""What the tests of this folder share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection
from django.test import override_settings

from accoda.django.project import Project, project_of

ROOT = Path(__file__).parents[2]


def tasks_setting(url: str, **options: Any) -> dict[str, Any]:
    """`TASKS` with one backend on this store."""
    return {"default": {"BACKEND": "accoda.django.AccodaBackend", "OPTIONS": {"url": url, **options}}}


@contextmanager
def project(url: str = "memory://", **options: Any) -> Iterator[Project]:
    """The project with another store for a while, with its handlers."""
    with override_settings(TASKS=tasks_setting(url, **options)):
        found = project_of()
        found.with_handlers()
        yield found


def run(project: Project) -> int:
    """Run what is ready; how many runs."""
    return project.app.sync.run_until_idle()


def environment(url: str, **options: Any) -> dict[str, str]:
    """What a process of the project needs to know: the same database as here, and this store."""
    names = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "CONN_MAX_AGE")
    settings = {name: connection.settings_dict[name] for name in names}
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "tests.django.project.settings",
        "DJANGO_DATABASE": json.dumps(settings),
        "DJANGO_TASKS": json.dumps(tasks_setting(url, **options)),
    }


def manage(
    environment: dict[str, str], *words: str, folder: Path = ROOT, output: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """A process of `manage.py`. Nothing reads what a worker prints: a pipe would fill, and hold it up."""
    return subprocess.Popen(
        [sys.executable, "-m", "django", *words],
        env=environment,
        cwd=folder,
        text=True,
        stdout=output,
        stderr=subprocess.STDOUT if output == subprocess.PIPE else None,
    )


def managed(environment: dict[str, str], *words: str, code: int = 0) -> str:
    """What `manage.py` prints, which has to end with this code."""
    process = manage(environment, *words, output=subprocess.PIPE)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == code, text
    return text
