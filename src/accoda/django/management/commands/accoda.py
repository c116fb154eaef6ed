"""`manage.py accoda …`: the command line of Accoda for the tasks of this project."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accoda.django.project import aliases

BACKEND = "--backend"
WATCH, RELOAD, NO_RELOAD = "--watch", "--reload", "--no-reload"


class Command(BaseCommand):
    """Runs a command of Accoda in this process, with the app of a backend."""

    help = (
        "Run a command of Accoda for the tasks of this project: worker, queues, jobs, job, dead, why, doctor, and all "
        "that `manage.py accoda -- --help` lists. In DEBUG, the worker restarts when code changes (--no-reload: it "
        "does not)."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django declares it so; the worker asks for all of them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(BACKEND, default="default", help="The alias in TASKS. Default: default.")
        parser.add_argument("words", nargs=REMAINDER, metavar="COMMAND …", help="The command of Accoda.")

    def handle(self, *args: Any, backend: str, words: list[str], **options: Any) -> None:
        """Ends by SystemExit, with the exit code of the command."""
        known = aliases()
        if backend not in known:
            raise CommandError(
                f"TASKS has no backend of Accoda named {backend!r}; it has {', '.join(known) or 'none'}."
                " Add 'BACKEND': 'accoda.django.AccodaBackend'."
            )
        words = words[1:] if words[:1] == ["--"] else words
        if any(word.partition("=")[0] == BACKEND for word in words):
            raise CommandError(f"{BACKEND} goes before the command: manage.py accoda {BACKEND} {known[0]} {words[0]}")
        if words[:1] == ["worker"]:
            self.check()
            words = _with_reload(words)
        os.environ["ACCODA_APP"] = f"accoda.django.cli:{backend}"
        # The processes of a supervisor import the project too, from wherever they are started.
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
        from accoda.cli import main

        sys.argv = ["accoda", *words]
        main()


def _with_reload(words: list[str]) -> list[str]:
    """A worker that restarts when code changes, in DEBUG as `runserver` does, or where it is asked for."""
    asked, refused = RELOAD in words, NO_RELOAD in words
    words = [word for word in words if word not in (RELOAD, NO_RELOAD)]
    wanted = settings.DEBUG and find_spec("watchfiles") is not None and "--burst" not in words
    return [*words, WATCH] if (asked or wanted) and not refused and WATCH not in words else words
