"""Rings: always the same size, every slot where it belongs, nothing old or of the future taken for the present."""

import pytest

from accoda.operations.history.ring import BUDGET, QUEUE, SHAPES, Ring, bytes_of, gather, spread

ONE = (1, 2, 3, 4, 5, 6, 7, 8, 9.5, 0.25, 0.5, 10)


def test_a_slot_is_read_as_it_was_put() -> None:
    ring = Ring(QUEUE, 240)
    ring.put(113_333_333, ONE)
    again = Ring(QUEUE, 240, ring.encode())
    assert again.get(113_333_333) == ONE and again.get(113_333_332) is None


@pytest.mark.parametrize(("layout", "size"), [(QUEUE, 240), (QUEUE, 336), (BUDGET, 288)])
def test_the_size_is_fixed(layout, size) -> None:
    ring = Ring(layout, size)
    empty = len(ring.encode())
    for slot in range(1, 5 * size):
        ring.put(slot, [1e30 * slot] * len(layout.rules))
    assert len(ring.encode()) == empty == bytes_of(layout, size)


def test_all_rings_of_a_queue_are_45_kilobytes() -> None:
    assert [bytes_of(QUEUE, shape.size) for shape in SHAPES.values()] == [12_502, 14_998, 17_494]


def test_a_place_that_was_written_again_no_longer_tells_of_the_time_before() -> None:
    ring = Ring(QUEUE, 240)
    ring.put(1000, ONE)
    ring.put(1240, ONE)
    assert ring.get(1000) is None and ring.get(1240) == ONE


def test_the_last_slot_before_another_is_found() -> None:
    ring = Ring(QUEUE, 240)
    assert ring.last(10_000) is None
    for slot in (1000, 1003, 1050):
        ring.put(slot, ONE)
    assert [found[0] for before in (1050, 1051, 99_999) if (found := ring.last(before))] == [1003, 1050, 1050]


@pytest.mark.parametrize("value", [b"", b"x" * 12_502, b"acr1", b"\0" * 12_503])
def test_a_damaged_ring_is_an_empty_one(value: bytes) -> None:
    ring = Ring(QUEUE, 240, value)
    assert ring.last(1 << 32) is None and len(ring.encode()) == 12_502


def test_numbers_that_do_not_fit_are_the_most_that_does() -> None:
    ring = Ring(QUEUE, 240)
    ring.put(7, [1e30, -5, float("nan"), float("inf"), 2, 2, 2, 2, 1e300, float("-inf"), 1.0, 0.4])
    values = ring.get(7)
    assert values is not None and values[:4] == (4_294_967_295, 0, 0, 0) and 2e38 < values[8] < 4e38
    assert values[9:] == (0, 1.0, 0)


def test_many_slots_make_one_by_their_rules() -> None:
    ring = Ring(QUEUE, 240)
    ring.put(40, (1, 0, 0, 0, 9, 9, 9, 9, 9.0, 1.0, 4.0, 1))
    ring.put(43, (2, 1, 1, 1, 5, 6, 7, 8, 3.0, 2.0, 8.0, 3))
    assert gather(ring, 40, 20, QUEUE) == (3, 1, 1, 1, 5, 6, 7, 8, 3.0, 1.75, 7.0, 4)
    assert gather(ring, 60, 20, QUEUE) is None


def test_events_are_spread_evenly_and_none_is_lost() -> None:
    assert spread(7, 3) == [3, 2, 2] and spread(0, 2) == [0, 0] and spread(-4, 2) == [0, 0]
    assert all(sum(spread(count, 20)) == count for count in range(100))


def test_a_slot_from_before_1970_is_nowhere() -> None:
    ring = Ring(BUDGET, 4)
    ring.put(-2, (1.0, 1.0, 1.0, 1))
    ring.put(0, (1.0, 1.0, 1.0, 1))
    assert [ring.get(slot) for slot in (-2, 0, 2)] == [None, None, None]
