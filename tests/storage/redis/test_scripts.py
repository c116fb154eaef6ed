"""The headers of the scripts, and their callers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from proof.servers.redis import RedisServer
from tests.storage.redis.verbs import use_every_verb

from accoda import NewJob, open_storage
from accoda.model import Lanes
from accoda.storage.redis.client import Client
from accoda.storage.redis.scripts import all_scripts, script


async def test_are_called_as_their_headers_say(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[tuple[int, int]]] = {}
    prepare = Client._prepare

    def noting(self: Client, script: Any, shard: Any, keys: Any, number: Any, forget: Any, args: Any) -> Any:
        seen.setdefault(script.name, set()).add((len(keys), 4 + len(args)))
        return prepare(self, script, shard, keys, number, forget, args)

    monkeypatch.setattr(Client, "_prepare", noting)
    async with await open_storage(server.url) as store:
        await use_every_verb(store)
        await store.set_lanes("q", Lanes(limits={"a": 1}))
        await store.lanes("q")
        await store.enqueue([NewJob("q", lane="a")])
        server.ask("ZADD", "accoda:q:ready", -9, "what is no record")
        await store.take("q", 1)
    only_in_a_cluster = {"collect", "post", "register"}
    assert set(seen) | only_in_a_cluster == set(all_scripts())
    for name, calls in seen.items():
        header = script(name).header
        for keys, args in calls:
            assert fits(header["keys"], keys), f"{name}: {keys} keys for {header['keys']!r}"
            assert fits(header["arguments"], args), f"{name}: {args} arguments for {header['arguments']!r}"


@pytest.mark.parametrize("name", all_scripts())
def test_use_no_more_than_their_headers_name(name: str) -> None:
    verb = script(name)
    assert set(verb.header) == {"keys", "arguments", "answer", "uses"}
    assert verb.header["arguments"].startswith("now, call, forget, width")
    for word, field in (("KEYS", "keys"), ("ARGV", "arguments")):
        used = max((int(n) for n in re.findall(rf"{word}\[(\d+)\]", verb.source.decode())), default=0)
        assert used <= len(named(verb.header[field])) + 1


def named(text: str) -> list[str]:
    """The names of a header's list, without what is in brackets."""
    return re.sub(r"\([^)]*\)", "", text).split(", ")


def fits(text: str, count: int) -> bool:
    """Whether so many keys or arguments are what a header lists; "then ..." stands for any number."""
    names = named(text)
    fixed = [name for name in names if not name.startswith("then")]
    fixed = fixed[: next((n for n, name in enumerate(names) if name.startswith("then")), len(names))]
    return count >= len(fixed) if len(fixed) < len(names) else count == len(fixed)
