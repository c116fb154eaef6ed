"""The tree of commands: a table, so that nothing is imported before it is asked for."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import NoArgsIsHelpError

from accoda.cli import codes
from accoda.cli.groups import Suggesting
from accoda.errors import AccodaError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


SECTIONS: dict[str, dict[str, str]] = {
    "Jobs": {
        "enqueue": "Add jobs to a queue.",
        "jobs": "List jobs, by queue, state or priority.",
        "job": "Show, cancel, retry, delete or follow one job.",
        "why": "Why a job is not running, and when it will.",
        "dead": "Dead letters: list, group, replay, delete.",
        "flows": "Jobs that depend on each other: list, retry, cancel.",
        "flow": "The graph of one flow, and how far it is.",
    },
    "Queues": {
        "queues": "List queues; pause, resume or purge one.",
        "lanes": "Limits and turns of customers; who waits.",
        "budgets": "What the budgets have left; the log of one.",
        "demands": "Results that many want: who waits, join, leave.",
        "schedules": "Jobs that come by cron or at intervals.",
        "webhooks": "Calls on done and dead: log, secret.",
    },
    "Run": {
        "worker": "Run the handlers of an app.",
        "serve": "Run the HTTP service.",
    },
    "Look after": {
        "top": "The store as it is now, with keys to act.",
        "workers": "Running workers; drain one.",
        "doctor": "Check a deployment, and say what to change.",
        "migrate": "Create or upgrade a store.",
        "settings": "Every setting, with its source.",
        "tokens": "Tokens of the HTTP service.",
        "completion": "Print a script for completion in a shell.",
    },
    "Contracts": {
        "generate": "Typed Python for the queues of a contract.",
        "contract": "Check, compare and export contracts.",
    },
}

COMMANDS: dict[str, str] = {name: line for section in SECTIONS.values() for name, line in section.items()}
"""Every command, with its line of help. It is in the module of its name."""
MODULES = {"generate": "contract"}


class Lazy(Suggesting):
    """The commands of the table. One is imported when it is run, or when its own help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(import_module(f"accoda.cli.{MODULES.get(name, name)}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), line) for name, line in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=COMMANDS[name]) for name in COMMANDS if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def make_context(self, *args: Any, **given: Any) -> click.Context:
        with plain_errors():
            return super().make_context(*args, **given)

    def invoke(self, ctx: click.Context) -> object:
        with plain_errors():
            return super().invoke(ctx)


class Trouble(click.ClickException):
    """A message on standard error, wrapped, and an exit code."""

    @staticmethod
    def of(text: str, code: int) -> Trouble:
        """The kind that has this code. It is wrapped here: `show` is called after the context is gone."""
        from accoda.cli.draw import fitted

        text = fitted(f"Error: {text}", "stderr").removeprefix("Error: ")
        return {codes.WRONG_USE: WrongUse, codes.NO_STORE: NoStore}.get(code, Trouble)(text)

    def show(self, file: object = None) -> None:
        from accoda.cli.draw import echo

        echo(f"Error: {self.message}", err=True)


class WrongUse(Trouble):
    exit_code = codes.WRONG_USE


class NoStore(Trouble):
    exit_code = codes.NO_STORE


@contextmanager
def plain_errors() -> Iterator[None]:
    """An expected error is a message for a person and a code for a program, never a traceback."""
    try:
        yield
    except AccodaError as error:
        raise Trouble.of(str(error), codes.exit_code(error)) from error
    except (NoArgsIsHelpError, Trouble):
        raise
    except click.UsageError as error:
        raise Trouble.of(_in_a_line(error), error.exit_code) from error
    except click.ClickException as error:
        raise Trouble.of(error.format_message(), error.exit_code) from error
    except (KeyboardInterrupt, click.Abort):
        from accoda.cli.draw import echo

        echo("Stopped.", err=True)
        raise click.exceptions.Exit(codes.STOPPED) from None
    except BrokenPipeError:
        _leave_output()  # the reader (`| head`) has enough
        raise click.exceptions.Exit(codes.UNREAD) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _leave_output()
        raise Trouble.of("the output cannot be written: no space is left where it goes", codes.NO) from error


def _leave_output() -> None:
    """Send standard output to nowhere: the buffer cannot be written, and Python would complain about it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_a_line(error: click.UsageError) -> str:
    """What is wrong, and where to read more unless it says what to do."""
    text = " ".join(error.format_message().split())
    for jargon, plain in _PLAIN.items():
        text = text.replace(jargon, plain)
    if error.ctx is None or text.endswith("?") or "--help" in text or "--yes" in text:
        return text
    return f"{text.rstrip('.')}. See {error.ctx.command_path} --help"


_PLAIN = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}
"""What click says of a value, and what a person says."""


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version  # not at the top: it costs more than all of click

        from accoda.cli.draw import echo

        echo(f"accoda, version {version('accoda')}")
        ctx.exit()


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show it.")
def accoda(**given: Any) -> None:
    """A job queue that knows who waits for a job, what it costs and when it is due.

    Most commands take --url URL (or ACCODA_URL) and --json.
    """
