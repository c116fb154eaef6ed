"""What commands share: options for the store, opening it, loading an app, JSON, questions.

A command imports its operations lazily, asks an app, and presents the answer as JSON or drawn for a person:
`present(store, store.ask(lambda app: operations.list(app)), _draw)`. Exit codes are in `accoda.cli.codes`.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from accoda.cli.codes import NO
from accoda.cli.draw import ask, echo, is_terminal, json_text, say, surroundings
from accoda.cli.groups import near
from accoda.errors import InvalidInput, NotFound, StorageUnavailable

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.operations.views import QueueView

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that a store has to answer the first call."""
APP = "ACCODA_APP"
"""The variable that names the app where a command line does not."""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class _LazyModule:
    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)


def lazily(module: str) -> Any:
    """A module that is imported by its first use: the help of a command must not wait for a store's driver."""
    return _LazyModule(module)


class StoreOptions(NamedTuple):
    """What `--url`, `--app` and `--json` said."""

    url: str | None = None
    app: str | None = None
    as_json: bool = False

    def ask(self, question: Callable[[App], Awaitable[T]], *, create: bool = False) -> T:
        """The answer of an app on the store; see `open_app`."""
        import asyncio

        async def asked() -> T:
            async with open_app(self.url, self.app, create=create) as app:
                return await question(app)

        return asyncio.run(asked())


_OPTIONS = (
    click.option("--url", metavar="URL", help="Where the jobs are. Or ACCODA_URL."),
    click.option("--app", metavar="MODULE:APP", envvar=APP, help="Whose handlers to know: policies, secrets."),
    click.option("--json", "as_json", is_flag=True, help="For a program to read."),
)

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
json_option = _OPTIONS[2]


def store_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--url`, `--app` and `--json` to a command, whose function gets them as `store`."""

    @functools.wraps(command)
    def call(*args: Any, url: str | None = None, app: str | None = None, as_json: bool = False, **given: Any) -> T:
        return command(*args, store=StoreOptions(url, app, as_json), **given)

    for option in reversed(_OPTIONS):
        call = option(call)
    return call


def log_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--log-format` and `--log-level` to a command."""
    formats = click.option(
        "--log-format", type=click.Choice(["human", "json"]), help="Default: human, or what the app has configured."
    )
    levels = click.Choice(LOG_LEVELS, case_sensitive=False)
    return formats(click.option("--log-level", type=levels, default="INFO", show_default=True)(command))


def load_app(target: str, url: str | None = None) -> App:
    """The App in a module; without a name, the only one in it. With `url`, on that store."""
    from accoda.app import App

    module_name, _, name = target.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise click.BadParameter(f"write module:app, such as shop.jobs:app, not {target!r}", param_hint="MODULE:APP")
    if "" not in sys.path:  # as with `python -m`, modules in this folder can be imported
        sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise click.ClickException(
                f"there is no module {error.name} here; run accoda in the folder where `import {module_name}` works"
            ) from error
        problem = f"it needs {error.name}, which is missing"
        raise click.ClickException(f"cannot import {module_name}: {problem}{_where_raised(error)}") from error
    except Exception as error:
        problem = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        raise click.ClickException(f"cannot import {module_name}: {problem}{_where_raised(error)}") from error
    apps = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    if name in apps or (not name and len(apps) == 1):
        return _on(apps[name] if name else next(iter(apps.values())), url)
    known = ", ".join(f"{module_name}:{key}" for key in apps) or "none; make one with app = App()"
    what = f"{name} is no App" if name and hasattr(module, name) else f"there is no {name or 'single App'}"
    raise click.ClickException(f"{target}: {what} in {module_name}. Apps in it: {known}")


def _where_raised(error: Exception) -> str:
    """The file and line of the user's code that an import failed in: the last that is no library's."""
    import sysconfig
    from traceback import extract_tb

    if isinstance(error, SyntaxError) and error.filename:
        return _place(error.filename, error.lineno, error.text)
    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(("<", ours))]
    if not frames:
        return ""
    at = next((frame for frame in reversed(frames) if not frame.filename.startswith(libraries)), frames[-1])
    return _place(at.filename, at.lineno, at.line)


def _place(file: str, line: int | None, text: str | None) -> str:
    shown = os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file
    return f"\n  {shown}, line {line}" + (f": {text.strip()}" if text and text.strip() else "")


@asynccontextmanager
async def open_app(url: str | None, app: str | None = None, *, create: bool = False) -> AsyncIterator[App]:
    """The App of `--app`, or one without handlers, on the store that `--url`, the app or ACCODA_URL name.

    Without any of these it is `accoda.db` in this folder, if it exists. A SQLite file that does not exist is an error,
    unless the command may `create` one; and so is `memory://`, of which nothing would be left afterwards.
    """
    from accoda.app import App

    made = App(url) if app is None else load_app(app, url)
    _check_url(url or (made.url if app is not None else os.environ.get("ACCODA_URL")), made.url, create)
    if (clock := surroundings().clock) is not None:
        made.connections.clock = clock
    await _connect(made)
    async with made:
        yield made


def _on(app: App, url: str | None) -> App:
    from accoda.connections import Connections

    if url is not None and url != app.url:
        app.url = url
        app.connections = Connections(url, app.connections.clock)
    return app


async def _connect(app: App) -> None:
    """Report what is wrong with the store before anything else. A worker waits for a server; a person does not.

    `wait_for` leaves it open: the loop ends with the command, and cancels what is still under way.
    """
    import asyncio

    try:
        await asyncio.wait_for(app.connections.get(), PATIENCE)
    except TimeoutError:
        raise StorageUnavailable(f"{shown_url(app.url)} did not answer within {PATIENCE:g} s; is it running?") from None


async def known(app: App, name: str) -> QueueView:
    """The queue of that name, or an error that says which one may be meant."""
    from accoda.operations import queues

    try:
        return await queues.get(app, name)
    except NotFound:
        names = [queue.name for queue in await queues.list(app)]
        raise NotFound("queue", name, near(name, names) or "accoda queues lists all of them") from None


def echo_json(value: object) -> None:
    """Print one JSON document: records with their names on the wire, pages as `items` and `next`."""
    import msgspec

    echo(json_text(msgspec.json.encode(value, enc_hook=str)))


def present(store: StoreOptions, value: T, draw: Callable[[T], None]) -> None:
    """Print an answer: as JSON, or drawn for a person."""
    if store.as_json:
        echo_json(value)
    else:
        draw(value)


def confirm(what: str, yes: bool) -> None:
    """Ask before something is destroyed: `confirm("Delete 12 dead jobs of emails", yes)`.

    Without a terminal it is wrong use without --yes; the answer no ends the command, with nothing changed.
    """
    if yes:
        return
    if not (is_terminal("stdin") and is_terminal("stderr")):
        raise click.UsageError(f"{what}? Add --yes: there is no terminal to ask.")
    if not ask(f"{what}?"):
        answer_is_no("Nothing was changed.")


def answer_is_no(why: str) -> NoReturn:
    """Say on standard error why the answer is no, and end with 1."""
    say(why, err=True)
    raise click.exceptions.Exit(NO)


def shown_url(url: str) -> str:
    """A store's URL without its passwords."""
    from accoda.storage.common.urls import shown_url as without_passwords

    return without_passwords(url)


def _check_url(chosen: str | None, url: str, create: bool) -> None:
    """Refuse a store that the command would find empty, or would make by mistake."""
    from accoda.storage.open import read_url

    parts = read_url(url)
    if parts.scheme == "memory":
        raise InvalidInput("url", "memory:// is gone when this command ends; give the URL of a store that stays")
    if parts.scheme != "sqlite":
        return
    from accoda.storage.sqlite.open import file_of

    file = file_of(parts)
    if not file.exists():
        if chosen is None:
            raise InvalidInput("url", "which store? Give --url or set ACCODA_URL, such as sqlite:///jobs.db")
        if not create:
            raise StorageUnavailable(f"there is no file {file}; to make a store there: accoda migrate {url}")
