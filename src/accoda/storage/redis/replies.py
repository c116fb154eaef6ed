"""What an error reply of Redis means: try again, or an error to raise."""

from __future__ import annotations

from typing import NoReturn

from accoda.errors import StorageError, StorageFull

Address = tuple[str, int]

_NO_MORE_CLIENTS = "ERR max number of clients reached"  # sent to a new connection, which the server then closes
_LATER = ("TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "BUSY ", "NOREPLICAS", "UNBLOCKED", _NO_MORE_CLIENTS)


class TryAgain(Exception):
    """The command was not carried out, or may be sent again.

    `moved` says that the slot belongs to another server, at `address` if that is known, where it may be sent at once.
    `done` says that it was carried out here, and only the replicas did not confirm it.
    """

    def __init__(self, why: str, *, moved: bool = False, address: Address | None = None, done: bool = False) -> None:
        super().__init__(why)
        self.moved = moved
        self.address = address
        self.done = done


def raise_for(text: str, reply: Exception) -> NoReturn:
    """Raise what it means. Redis refuses a script at its first write or not at all: nothing was changed."""
    if text.startswith("MOVED "):
        raise TryAgain(text, moved=True, address=address_in(text))
    if text.startswith("READONLY") or "-READONLY" in text:
        raise TryAgain(text, moved=True)
    if text.startswith(_LATER):
        raise TryAgain(text, moved=text.startswith("CLUSTERDOWN"))
    if "OOM command not allowed" in text:
        raise StorageFull(
            "the memory of Redis is full (maxmemory): nothing was changed. Raise maxmemory, let the workers catch "
            "up (jobs can still be taken and finished), or purge dead, done and cancelled jobs; then try again"
        ) from reply
    if text.startswith("MISCONF"):
        raise StorageFull(
            f"Redis cannot write to its disk and refuses to change anything ({text}); free space there or mend the "
            "disk, then try again: it goes on by itself. Nothing was changed"
        ) from reply
    if text.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
        raise StorageError(f"Redis refused the command ({text}); check the user's rights, see docs/redis.md") from reply
    if "WRONGTYPE" in text:
        raise StorageError(
            "a Redis key under Accoda's prefix has another type than Accoda keeps there, so something else wrote it: "
            "compare `redis-cli --scan --pattern 'accoda:*'` and TYPE with docs/redis.md, and RENAME that key"
        ) from reply
    raise StorageError(f"Redis: {text}") from reply


def address_in(text: str) -> Address:
    """The address in "MOVED 3999 127.0.0.1:6381"."""
    host, _, port = text.split()[2].rpartition(":")
    return host, int(port)
