"""Keys of another type than ours: found after Redis said WRONGTYPE, which does not tell which key it means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from accoda.errors import StorageError
from accoda.storage.redis.connection import Argument

_OF_A_QUEUE = {
    "ready": "zset", "ready:ids": "zset", "delayed": "zset", "delayed:ids": "zset", "taken": "hash", "ends": "zset",
    "batches": "hash", "dead": "zset", "dead:at": "zset", "done": "zset", "done:at": "zset", "kept": "zset",
    "keys": "hash", "notes": "hash", "afresh": "hash", "meta": "hash",
}  # fmt: skip
_OF_A_SHARD = {"ids": "hash", "queues": "set", "outbox": "hash", "values": "hash", "names": "zset", "ends": "zset"}
_WORDS = {"zset": "sorted set"}


class WrongType(StorageError):
    """A key of a queue is not what Accoda keeps there. Nothing of that queue works until it is moved away."""


def expected(command: Sequence[Argument]) -> dict[str, str]:
    """The keys that a command or script uses, with the types that they should have. Each key that a script is told may
    be one of a shard or the base of a queue's keys (see keys.py)."""
    if command[0] not in ("EVAL", "EVALSHA"):
        return {str(command[1]): ""} if len(command) > 1 else {}
    wanted: dict[str, str] = {}
    for key in map(str, command[3 : 3 + int(command[2])]):
        last = key.rpartition(":")[2]
        if last in _OF_A_SHARD:
            wanted[key] = _OF_A_SHARD[last]
        wanted.update((f"{key}:{name}", kind) for name, kind in _OF_A_QUEUE.items())
    return wanted


async def explain(wanted: dict[str, str], ask: Callable[..., Awaitable[Any]]) -> WrongType:
    """The error that names the key; `ask` sends a command to the server that has them."""
    for key, kind in wanted.items():
        found = (await ask("TYPE", key)).decode()
        if found not in ("none", kind):
            return WrongType(
                f"the Redis key {key!r} is a {_WORDS.get(found, found)}"
                + (f" where Accoda keeps a {_WORDS.get(kind, kind)}" if kind else " and not what Accoda keeps there")
                + f": something else wrote it. Move it away (redis-cli RENAME {key!r} 'moved-away') and go on; "
                "other queues are not affected"
            )
    return WrongType("Redis found a key of another type than Accoda keeps there; look for what else uses this prefix")
