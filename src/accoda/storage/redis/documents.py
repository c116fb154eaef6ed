"""Documents: a shard by the name, so that a Cluster spreads them; a list by prefix asks all shards."""

from __future__ import annotations

import asyncio
from binascii import crc_hqx

from accoda.errors import VersionConflict
from accoda.model import Document
from accoda.storage.redis.client import Client
from accoda.storage.redis.keys import Keys, Shard
from accoda.storage.redis.scripts import script

_READ, _WRITE = script("read"), script("write")


class Documents:
    def __init__(self, keys: Keys, client: Client) -> None:
        self._client = client
        self._shards = keys.document_shards(client.topology.cluster)

    async def read(self, name: str) -> Document | None:
        found = await self._read(self._shard(name), "one", name)
        return found[0] if found else None

    async def write(self, name: str, value: bytes, version: int | None, ttl: float | None) -> int:
        shard = self._shard(name)
        expected = "" if version is None else version
        life = "" if ttl is None else round(ttl * 1000)
        answer = int(await self._client.once(_WRITE, shard, _keys(shard), name, value, expected, life))
        if answer <= 0:
            assert version is not None
            raise VersionConflict(name, version, -answer)
        return answer

    async def documents(self, prefix: str) -> list[Document]:
        pages = await asyncio.gather(*(self._read(shard, "prefix", prefix) for shard in self._shards))
        return sorted((document for page in pages for document in page), key=lambda document: document.name)

    def _shard(self, name: str) -> Shard:
        return self._shards[crc_hqx(name.encode(), 0) % len(self._shards)]

    async def _read(self, shard: Shard, how: str, name: str) -> list[Document]:
        reply = await self._client.run(_READ, shard, _keys(shard), how, name)
        return [
            Document(reply[n].decode(), reply[n + 1], int(reply[n + 2]), int(reply[n + 3]) if reply[n + 3] else None)
            for n in range(0, len(reply), 4)
            if _is_text(reply[n])
        ]


def _is_text(name: bytes) -> bool:
    """Whether it can be a name: others were not written by Accoda."""
    try:
        return bool(name.decode())
    except UnicodeDecodeError:
        return False


def _keys(shard: Shard) -> list[str]:
    return [f"{shard.root}:values", f"{shard.root}:names", f"{shard.root}:ends"]
