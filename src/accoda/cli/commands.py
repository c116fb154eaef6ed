"""The tree of commands: a table, so that nothing is imported before it is asked for."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.exceptions import NoArgsIsHelpError

from accoda.cli import codes
from accoda.cli.groups import Suggesting
from accoda.errors import AccodaError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """Where a command is, and what it does in a line."""

    module: str
    attribute: str
    help: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Jobs": {
        "enqueue": Entry("enqueue", "enqueue", "Add jobs to a queue."),
        "jobs": Entry("jobs", "jobs", "List jobs, by queue, state or priority."),
        "job": Entry("job", "job", "Show, cancel, retry, delete or follow one job."),
        "why": Entry("why", "why", "Why a job is not running, and when it will."),
        "dead": Entry("dead", "dead", "Dead letters: list, group, replay, delete."),
    },
    "Queues": {
        "queues": Entry("queues", "queues", "List queues; pause, resume or purge one."),
        "budgets": Entry("budgets", "budgets", "What the budgets have left."),
        "schedules": Entry("schedules", "schedules", "Jobs that come by cron or at intervals."),
        "webhooks": Entry("webhooks", "webhooks", "Calls on done and dead: log, secret."),
    },
    "Run": {
        "worker": Entry("worker", "worker", "Run the handlers of an app."),
        "serve": Entry("serve", "serve", "Run the HTTP service."),
        "demo": Entry("demo", "demo", "See a queue at work, on SQLite."),
    },
    "Look after": {
        "top": Entry("top", "top", "The store as it is now, with keys to act."),
        "workers": Entry("workers", "workers", "Who works on this store."),
        "doctor": Entry("doctor", "doctor", "Check a deployment, and say what to change."),
        "migrate": Entry("migrate", "migrate", "Create or upgrade a store."),
        "settings": Entry("settings", "settings", "Every setting, with its source."),
        "tokens": Entry("tokens", "tokens", "Who may use the HTTP service."),
        "bench": Entry("bench", "bench", "How many jobs a second a store takes."),
        "completion": Entry("completion", "completion", "Print a script that completes words in a shell."),
    },
    "Contracts": {
        "generate": Entry("contract", "generate", "Typed Python for the queues of a contract."),
        "contract": Entry("contract", "contract", "Check, compare and export contracts."),
    },
}

COMMANDS: dict[str, Entry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Lazy(Suggesting):
    """The commands of the table. One is imported when it is run, or when its own help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        command = getattr(import_module(f"accoda.cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), entry.help) for name, entry in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=COMMANDS[name].help) for name in COMMANDS if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def make_context(self, *args: Any, **given: Any) -> click.Context:
        with plain_errors():
            return super().make_context(*args, **given)

    def invoke(self, ctx: click.Context) -> object:
        with plain_errors():
            return super().invoke(ctx)


class Trouble(click.ClickException):
    """A few words on standard error, in lines that fit, and an exit code."""

    @staticmethod
    def of(text: str, code: int) -> Trouble:
        """The kind that has this code. It is folded here: `show` comes when the context, which knows more, is gone."""
        from accoda.cli.draw import fitted

        text = fitted(f"Error: {text}", "stderr").removeprefix("Error: ")
        return {codes.WRONG_USE: WrongUse, codes.NO_STORE: NoStore}.get(code, Trouble)(text)


class WrongUse(Trouble):
    exit_code = codes.WRONG_USE


class NoStore(Trouble):
    exit_code = codes.NO_STORE


@contextmanager
def plain_errors() -> Iterator[None]:
    """Trouble that is raised on purpose is words for a person and a code for a program, never a traceback."""
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
        click.echo("Stopped.", err=True)
        raise click.exceptions.Exit(codes.STOPPED) from None
    except BrokenPipeError:
        _leave_output()  # whoever read (`| head`) has enough
        raise click.exceptions.Exit(codes.UNREAD) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _leave_output()
        raise Trouble.of("the output cannot be written: no space is left where it goes", codes.NO) from error


def _leave_output() -> None:
    """What is still in the buffer has nowhere to go, and Python would complain about that when it ends: so that it does
    not, standard output leads nowhere from here on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_a_line(error: click.UsageError) -> str:
    """What is wrong, and where to read more if it does not say what to do."""
    text = " ".join(error.format_message().split())
    if error.ctx is None or text.endswith("?") or "--help" in text or "--yes" in text:
        return text
    return f"{text.rstrip('.')}. See {error.ctx.command_path} --help"


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version  # not at the top: it costs more than all of click

        click.echo(f"accoda, version {version('accoda')}")
        ctx.exit()


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show it.")
def accoda(**given: Any) -> None:
    """A job queue that knows who waits, what it costs and by when it is wanted.

    Most commands take --url URL (or ACCODA_URL) and --json.
    """
