"""The depth and size of a msgpack value, told from its bytes, are those of the value itself."""

import doctest
from random import Random
from typing import Any

import msgspec

from accoda import shape
from accoda.shape import over


def value_of(random: Random, room: int) -> Any:
    """Some value, with lists and maps inside each other, of every length that msgpack writes in another way."""
    kind = random.random()
    if room and kind < 0.35:
        return [value_of(random, room - 1) for _ in range(random.choice((0, 1, 2, 3, 20)))]
    if room and kind < 0.6:
        keys = (random.choice((str(n) * n, n << random.randrange(60))) for n in range(random.choice((0, 1, 3, 18))))
        return {key: value_of(random, room - 1) for key in keys}
    number = random.choice((0, 100, 200, 60_000, 1 << 30, 1 << 40, -5, -100, -1000, -(1 << 20), -(1 << 40)))
    size = random.choice((0, 5, 31, 32, 255, 256, 70_000 if random.random() < 0.01 else 9))
    return random.choice((None, True, 1.5, number, "x" * size, "\u00e9" * (size // 2), random.randbytes(size)))


def values(count: int) -> list[Any]:
    random = Random(5)
    return [value_of(random, random.choice((1, 2, 2, 3))) for _ in range(count)]


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def items(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + items(inner) for inner in value.values())
    return 1 + sum(map(items, value)) if isinstance(value, list) else 1


def test_a_value_is_within_its_own_measures_and_over_smaller_ones() -> None:
    for value in values(300):
        data = msgspec.msgpack.encode(value)
        deep, many = depth(value), items(value)
        assert over(data, deep, many, 1000) is None
        assert over(data, 1000, many, 1000) is None
        if deep:
            assert over(data, deep - 1, many, 1000) == "depth"


def test_the_walk_counts_every_value_and_level() -> None:
    for value in values(300):
        data = msgspec.msgpack.encode(value)
        assert shape._walk(data, depth(value), items(value), 0) is None
        if items(value) > 1:
            assert shape._walk(data, 1000, items(value) - 1, 0) == "items"


def test_whatever_the_bytes_say_it_gives_an_answer() -> None:
    random = Random(5)
    for _ in range(2000):
        data, limit = random.randbytes(random.randrange(300)), random.choice((1, 5, 100))
        assert over(data, limit, limit, limit) in (None, "depth", "items", "keys")


def test_keys_that_are_lists_are_counted() -> None:
    data = msgspec.msgpack.encode([{(n, n): {(n,): 1} for n in range(20)}])
    assert over(data, 4, 1000, 40) is None
    assert over(data, 4, 1000, 39) == "keys"


def test_the_examples_in_the_docstrings_hold() -> None:
    assert not doctest.testmod(shape).failed
