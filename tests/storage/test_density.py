"""What is told of a long line from a few looks at it: lines of many shapes, each known in full here."""

from bisect import bisect_left
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda.storage.density import RANKS, READ, Entry, Line, Look, Stretch, Weights, drive, newer_of, place_of, weigh

SIZE = 20_000
MOST_LOOKS = 400


class Known:
    """A line that is known in full, and how often somebody looked at it."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = sorted(entries)
        self.looks = 0

    def look(self, wish: Look) -> Stretch:
        self.looks += 1
        assert wish.number <= READ
        place = bisect_left(self.entries, (wish.rank, wish.id))
        if wish.down:
            found = self.entries[max(0, place - wish.number) : place][::-1]
        else:
            found = self.entries[place : place + wish.number]
        if not found:
            return Stretch(())
        rank = found[-1][0]
        first, last = bisect_left(self.entries, (rank, -1)), bisect_left(self.entries, (rank, 1 << 62))
        if wish.down:
            return Stretch(found, self.entries[first][1], self.entries[first - 1][0] if first else None)
        beyond = self.entries[last][0] if last < len(self.entries) else None
        return Stretch(found, self.entries[last - 1][1], beyond)

    def weigh(self, own: Entry) -> Weights:
        ranks = sorted({rank for rank, _ in self.entries})
        return drive(weigh(Line(own, ranks[: RANKS + 1], ranks[-1])), self.look)

    def estimate(self, place: int) -> tuple[int, int]:
        own = self.entries[place]
        weights = self.weigh(own)
        ahead = place_of(weights, len(self.entries) - 1, 101, 101)
        return ahead, newer_of(weights, ahead)


def ids(rng: Random, gap: float = 5.0, size: int = SIZE) -> list[int]:
    """Growing, with gaps of any length up to some tens."""
    found, last = [], 0
    for _ in range(size):
        last += 1 + int(rng.expovariate(1 / gap))
        found.append(last)
    return found


def aging(rng: Random) -> list[Entry]:
    moment, line = 0.0, []
    for id in ids(rng):
        moment += rng.expovariate(1 / 5)
        line.append((float(int(moment) + rng.randrange(4) * 10_000), id))
    return line


def batches(rng: Random) -> list[Entry]:
    """Ranks that grow with time, and many jobs that came in the same moment."""
    moment, left, line = 0.0, 0, []
    for id in ids(rng, 0.5):
        if not left:
            left, moment = rng.choice((100, 200, 300)), moment + rng.uniform(500, 1500)
        left -= 1
        line.append((float(int(moment)), id))
    return line


def bursts(rng: Random) -> list[Entry]:
    return [(0.0, 100_000 * n + id) for n in range(40) for id in range(rng.choice((400, 600)))]


SHAPES: dict[str, Callable[[Random], list[Entry]]] = {
    "one rank without gaps": lambda rng: [(0.0, id) for id in range(1, SIZE)],
    "one rank with gaps": lambda rng: [(0.0, id) for id in ids(rng, 20)],
    "a few levels": lambda rng: [(float(rng.choice((0, 1, 1, 2, 2, 2, 3))), id) for id in ids(rng)],
    "as many levels as lanes": lambda rng: [(float(rng.randrange(RANKS)), id) for id in ids(rng)],
    "levels that take turns": lambda rng: [(float(id // 3000 % 4), id) for id in ids(rng)],
    "ranks that grow with time": aging,
    "batches of the same moment": batches,
    "every rank once": lambda rng: [(rng.random(), id) for id in ids(rng)],
    "stragglers far ahead": lambda rng: [(0.0, 5), (0.0, 9), *((0.0, 10**7 + id) for id in range(SIZE))],
    "thin, then thick": lambda rng: [
        *((0.0, 10_000 * n + 7) for n in range(1000)),
        *((0.0, 10**7 + n) for n in range(SIZE)),
    ],
    "bursts": bursts,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_place_is_told_within_a_tenth(shape: str) -> None:
    line = Known(SHAPES[shape](Random(1)))
    size = len(line.entries)
    for place in (size // 10, size // 4, size // 2, 3 * size // 4, 9 * size // 10):
        line.looks = 0
        ahead, newer = line.estimate(place)
        assert abs(ahead - place) <= max(place / 10, size / 50), (place, ahead)
        own = line.entries[place][1]
        assert abs(newer - sum(id > own for _, id in line.entries[:place])) <= size / 20
        assert line.looks <= MOST_LOOKS


def test_the_cost_is_the_same_for_a_line_ten_times_as_long() -> None:
    looks = []
    for size in (SIZE, 10 * SIZE):
        line = Known([(float(n % 3), n * 2) for n in range(size)])
        ahead, _ = line.estimate(size // 2)
        assert abs(ahead - size // 2) <= size / 100
        looks.append(line.looks)
    assert looks[1] <= looks[0] * 1.5


@given(
    st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 7.0]) | st.floats(-1e300, 1e300), st.integers(1, 99)), min_size=1
    ),
    st.tuples(st.sampled_from([-1.0, 0.0, 7.0, 8.0]), st.integers(1, 99)),
)
def test_a_short_line_is_weighed_as_it_is(entries: list[Entry], own: Entry) -> None:
    """Less than what a look reads: every cell is read in full."""
    line = Known(list({id: (rank, id) for rank, id in entries if id != own[1]}.values())[: READ - 1])
    if not line.entries:
        return
    weights = line.weigh(own)
    ahead = bisect_left(line.entries, own)
    assert (round(weights.ahead), round(weights.behind)) == (ahead, len(line.entries) - ahead)
    assert newer_of(weights, ahead) == sum(id > own[1] for _, id in line.entries[:ahead])


def test_ranks_that_are_no_numbers_break_nothing() -> None:
    line = Known([(float("-inf"), 1), *((0.0, n) for n in range(2, 500)), (float("inf"), 501)])
    weights = line.weigh((0.0, 250))
    assert weights.ahead > 100 and weights.behind > 100


def test_what_is_known_of_either_side_counts_more_than_an_estimate() -> None:
    nothing = Weights(0.0, 0.0, 0.0)
    assert place_of(nothing, 100, 10, 10) == 50
    assert place_of(Weights(5.0, 0.0, 0.0), 100, 10, 10) == 90
    assert place_of(Weights(0.0, 5.0, 0.0), 100, 10, 10) == 10
    assert place_of(Weights(1.0, 1.0, 0.0), 3, 10, 10) == 10, "the counter is wrong, but ten were seen"
    assert newer_of(Weights(1.0, 1.0, 1.5), 10) == 10
