"""The tree of commands."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

import click

from accoda.cli.contract import contract, generate
from accoda.cli.settings import settings
from accoda.cli.worker import worker
from accoda.errors import AccodaError


class Plain(click.Group):
    """Errors that Accoda raises on purpose are one line for a person, not a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except AccodaError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Plain, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("accoda"), prog_name="accoda")
def accoda() -> None:
    """A job queue that knows who waits, what it costs and by when it is wanted."""


@accoda.command()
@click.argument("url", envvar="ACCODA_URL")
def migrate(url: str) -> None:
    """Create or upgrade the store behind URL (or ACCODA_URL)."""
    from accoda.storage.open import migrate as migrate_store

    asyncio.run(migrate_store(url))
    click.echo("The store is up to date.")


accoda.add_command(contract)
accoda.add_command(generate)
accoda.add_command(settings)
accoda.add_command(worker)
