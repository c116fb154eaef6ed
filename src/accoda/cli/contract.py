"""`accoda generate` and `accoda contract`: from YAML to typed Python, and what a change would do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accoda.cli.common import APP, echo_json, json_option, load_app
from accoda.cli.draw import echo, say

if TYPE_CHECKING:
    from accoda.contract import Contract
    from accoda.contract.diff import Change

FILE = click.Path(dir_okay=False, path_type=Path)


class _NoVerdict(click.ClickException):
    """Contracts could not be compared: a code that is none of a verdict's."""

    exit_code = 3


@click.command()
@click.argument("file", type=FILE)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The package's folder.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the files are out of date.")
@click.option("--aliases", is_flag=True, help="Also write the names EmailsTask, TaskID, SerializeEmailsTask and so on.")
def generate(file: Path, out: Path, check: bool, aliases: bool) -> None:
    """Write typed Python for the queues of a contract FILE."""
    from accoda.contract import generate as write
    from accoda.contract import load

    files = write(load(file), file.name, aliases=aliases)
    stale = [name for name, text in files.items() if _content(out / name) != text]
    if check:
        for name in stale:
            say(f"{out / name} is out of date", err=True)
        if stale:
            say(f"Run: accoda generate {file} --out {out}{' --aliases' if aliases else ''}", err=True)
        sys.exit(1 if stale else 0)
    for name in stale:
        if not _is_ours(_content(out / name)):
            raise click.ClickException(f"{out / name} was not written by accoda generate; give a folder of its own")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in stale:
            _replace(out / name, files[name])
    except OSError as error:
        raise click.ClickException(f"{error.filename or out} cannot be written: {error.strerror or error}") from error
    written = ", ".join(stale) if stale else "nothing: all is up to date"
    say(f"{out}: wrote {written}")


@click.group()
def contract() -> None:
    """Check, compare and export queue contracts."""


@contract.command()
@click.argument("files", type=FILE, nargs=-1, required=True)
@json_option
def check(files: tuple[Path, ...], as_json: bool) -> None:
    """Report every mistake in contract FILES, with its line and column."""
    from accoda.contract import load
    from accoda.errors import ContractError

    problems: list[object] = []
    for file in files:
        try:
            queues = load(file).queues
        except ContractError as error:
            problems += error.problems
        else:
            if not as_json:
                say(f"{file}: {len(queues)} queue{'s' if len(queues) != 1 else ''}, no mistakes")
    if as_json:
        echo_json([_problem(problem) for problem in problems])
    else:
        for problem in problems:
            say(str(problem), err=True)
    sys.exit(1 if problems else 0)


@contract.command()
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@click.option("--url", help="Count the stored jobs that each change would break.")
@json_option
def diff(old: Path, new: Path, url: str | None, as_json: bool) -> None:
    """Say of each change from OLD to NEW whether it is safe.

    Exit code 0: deploy in any order; 1: deploy workers before producers; 2: stored jobs would break; 3: a contract or
    the store cannot be read. With --url, what would break jobs of which none are stored counts as 1.
    """
    from accoda.contract import load
    from accoda.contract.diff import Verdict, compare
    from accoda.errors import AccodaError

    try:
        before, after = load(old), load(new)
        changes = compare(before, after)
        if url is not None:
            changes = asyncio.run(_counted(changes, before, after, url))
    except AccodaError as error:
        raise _NoVerdict(str(error)) from error
    if as_json:
        echo_json([_change(change) for change in changes])
    else:
        for change in changes:
            say(str(change))
        if not changes:
            echo("nothing that matters has changed")
    worst = max((change.verdict for change in changes), default=Verdict.SAFE)
    if url is not None and worst is Verdict.BREAKS and not any(change.stored for change in changes):
        worst = Verdict.WORKERS_FIRST  # it would, but no such jobs are stored
    sys.exit(int(worst))


@contract.command()
@click.argument("app", metavar="MODULE:APP", envvar=APP)
def export(app: str) -> None:
    """Print the contract of the handlers of MODULE:APP."""
    from accoda.contract.export import export as export_handlers

    text, notes = export_handlers(load_app(app).handlers)
    for note in notes:
        say(f"Note: {note}", err=True)
    echo(text, nl=False)


@contract.command()
def schema() -> None:
    """Print the JSON Schema of the contract format, for editors."""
    from accoda.contract.schema import schema as contract_schema

    echo_json(contract_schema())


async def _counted(changes: list[Change], old: Contract, new: Contract, url: str) -> list[Change]:
    from accoda.contract.diff import count_broken
    from accoda.errors import InvalidInput
    from accoda.storage.open import open_storage, read_url
    from accoda.storage.sqlite.open import file_of

    parts = read_url(url)
    if parts.scheme == "sqlite" and not file_of(parts).exists():  # opening it would make one
        raise InvalidInput("url", f"there is no file {file_of(parts)}, so nothing can be counted")
    async with await open_storage(url) as store:
        return await count_broken(changes, old, new, store)


def _problem(problem: object) -> dict[str, object]:
    from accoda.contract.problems import Problem

    if isinstance(problem, Problem):
        place = problem.position
        return {"file": problem.file, "line": place.line, "column": place.column, "text": problem.text}
    return {"text": str(problem)}


def _change(change: Change) -> dict[str, object]:
    return {"queue": change.queue, "verdict": str(change.verdict), "text": change.text, "stored": change.stored}


def _content(file: Path) -> str | None:
    """The content of a file; None: there is none, or it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return None
    except UnicodeDecodeError:
        return "?"


def _is_ours(content: str | None) -> bool:
    """Whether a file may be replaced: it does not exist, is empty, or was generated before."""
    return not content or "Written by `accoda generate` from " in content[:1000]


def _replace(file: Path, text: str) -> None:
    """Write beside it, then rename: an import meanwhile never sees half a file."""
    part = file.with_name(f".{file.name}.new")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
