"""Many waiters for one key, in real processes: `python -m proof.chaos.demand`.

No waiter may be forgotten, and none served twice by one fetch.

What happened is counted outside the store: every call of `fetch`, every delivery, every answer to a waiter that joins
or leaves is a line in a file.
"""
