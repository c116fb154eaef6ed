"""Jobs in a schema of a PostgreSQL database, shared by any number of processes and machines."""

from accoda.storage.postgres.storage import PostgresStorage

__all__ = ["PostgresStorage"]
