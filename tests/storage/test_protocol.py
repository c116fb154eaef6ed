"""Every storage that open_storage knows has the whole protocol, with the same parameters."""

import inspect
from importlib import import_module

import pytest

from accoda.storage.protocol import Inspector, Storage

VERBS = {name: verb for kind in (Storage, Inspector) for name, verb in vars(kind).items() if not name.startswith("_")}
CLASSES = [
    "accoda.storage.memory.storage:MemoryStorage",
    "accoda.storage.sqlite.storage:SqliteStorage",
    "accoda.storage.redis.storage:RedisStorage",
    "accoda.storage.postgres.storage:PostgresStorage",
    "accoda.storage.tarantool.storage:TarantoolStorage",
    "accoda.storage.observed:Observed",
]


@pytest.mark.parametrize("place", CLASSES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_parameters_of_the_protocol(place: str, verb: str) -> None:
    module, name = place.split(":")
    theirs = inspect.signature(getattr(getattr(import_module(module), name), verb)).parameters
    for parameter in inspect.signature(VERBS[verb]).parameters.values():
        assert theirs[parameter.name].kind == parameter.kind
        assert theirs[parameter.name].default == parameter.default
