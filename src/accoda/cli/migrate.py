"""`accoda migrate`: create or upgrade a store."""

from __future__ import annotations

import click

from accoda.cli.draw import echo


@click.command()
@click.argument("url", envvar="ACCODA_URL")
def migrate(url: str) -> None:
    """Create or upgrade the store behind URL (or ACCODA_URL)."""
    import asyncio

    from accoda.storage.open import migrate as migrate_store

    asyncio.run(migrate_store(url))
    echo("The store is up to date.")
