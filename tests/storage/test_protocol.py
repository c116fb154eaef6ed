"""Every storage that open_storage knows has the whole protocol, with the same parameters."""

import inspect
from importlib import import_module

import pytest

from accoda.storage.protocol import VERBS, Store
from accoda.storage.wrapper import Wrapper

CLASSES = [
    "accoda.storage.memory.storage:MemoryStorage",
    "accoda.storage.sqlite.storage:SqliteStorage",
    "accoda.storage.redis.storage:RedisStorage",
    "accoda.storage.postgres.storage:PostgresStorage",
    "accoda.storage.tarantool.storage:TarantoolStorage",
]


@pytest.mark.parametrize("place", CLASSES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_parameters_of_the_protocol(place: str, verb: str) -> None:
    module, name = place.split(":")
    theirs = inspect.signature(getattr(getattr(import_module(module), name), verb)).parameters
    for parameter in inspect.signature(getattr(Store, verb)).parameters.values():
        assert theirs[parameter.name].kind == parameter.kind
        assert theirs[parameter.name].default == parameter.default


async def test_a_wrapper_has_every_verb_and_passes_its_arguments_on() -> None:
    class Echo(Wrapper):
        async def call(self, verb: str, *args: object, **kwargs: object) -> object:
            return verb, args, kwargs

    for verb in VERBS:
        assert await getattr(Echo(), verb)("q", limit=3) == (verb, ("q",), {"limit": 3})


async def test_a_wrapper_closes_with_its_block() -> None:
    calls = []

    class Noted(Wrapper):
        async def call(self, verb: str, *args: object, **kwargs: object) -> None:
            calls.append(verb)

    async with Noted():
        pass
    assert calls == ["close"]
