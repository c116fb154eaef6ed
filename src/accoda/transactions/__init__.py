"""Enqueue in a transaction of the caller's own: the job exists if and only if that transaction commits.

app.enqueue(…, connection=c) ──► ways.py ──┬─► the store itself, on the caller's connection, where it is in the same
                                           │   database (PostgreSQL; SQLite by apsw)
                                           └─► outbox.py: a row of a table in the caller's database
                                                    │ commit
                                                    ▼
                                               relay.py: every worker has one; stores the jobs of each row once
"""

from accoda.transactions.outbox import Outbox, outbox_schema
from accoda.transactions.ways import Transactions

__all__ = ["Outbox", "Transactions", "outbox_schema"]
