"""From an outbox to its table. Drivers are imported when they are needed."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from accoda.errors import MissingDriver
from accoda.transactions.outbox import Outbox
from accoda.transactions.table import Table


def open_table(outbox: Outbox) -> AbstractAsyncContextManager[Table]:
    """Connect to the table of an outbox, and make it if there is none."""
    if outbox.path is not None:
        from accoda.transactions.sqlite_table import open_sqlite_table

        return open_sqlite_table(outbox.path)
    try:
        from accoda.transactions.postgres_table import open_postgres_table
    except ModuleNotFoundError as error:
        raise MissingDriver(
            "an outbox in PostgreSQL needs asyncpg; install it with: pip install 'accoda[postgres]'"
        ) from error
    return open_postgres_table(outbox.url)
