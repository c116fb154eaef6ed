"""How many jobs stand before and behind a place in a long line, told from looks at a few parts of it. No I/O here.

A line is ordered by rank, then id. An index finds a place in it and reads on from there, but it does not know how many
entries lie between two places. So the line is cut into cells of equal width, the first entries of each are read, and
the density that they show is taken for the rest of the cell; where two neighbours differ most, the cell is cut again.

What is measured along: where there are few ranks, each is a *lane*, in which ids are spread; where there are many, as
of ranks that grow with time, the ranks themselves, each of which may again be a lane of many ids that came at once.

`weigh` is a generator and knows nothing of any storage: it asks for a round of looks and is sent what they found.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from math import inf, sqrt
from typing import NamedTuple

RANKS = 64  # so many ranks are lanes
READ = 32  # entries of a look
_CELLS = 32  # cells of one side at first
_ROUNDS, _CUTS = 6, 24  # how often cells are cut, and how many of them at a time
_GAP = 4  # times the usual distance of two neighbours: more is a gap
_FEW = 4  # ranks that are counted one by one
_DOUBT = 0.1  # a cell whose ends agree may still be so much off in between
_GOOD = 0.003  # of all jobs: a cell that can be wrong by less is not cut

Entry = tuple[float, int]  # rank and id of a job in the line


class Look(NamedTuple):
    """A wish: the first `number` entries from the place (rank, id) on, or, `down`, those before it, backwards."""

    rank: float
    id: int
    number: int = READ
    down: bool = False


class Stretch(NamedTuple):
    """What a look found. `far` is the last id of the last entry's rank, in the direction of the look; `beyond` is the
    next rank after that one, None where the line ends."""

    entries: Sequence[Entry]
    far: int = 0
    beyond: float | None = None


class Line(NamedTuple):
    """What is known beforehand: the place itself, the lowest ranks, up to `RANKS` and one more, and the last rank."""

    own: Entry
    ranks: Sequence[float]
    last_rank: float


class Weights(NamedTuple):
    """Estimates: of the jobs before the place and behind it, and which share of the former has a higher id."""

    ahead: float
    behind: float
    newer: float


Rounds = Generator[list[Look], list[Stretch], Weights]


class Part(NamedTuple):
    """A part of the line on one side of the place, from `low` to before `high`: ids of a lane, or whole ranks."""

    number: int  # parts and cells are sorted by it
    ahead: bool
    rank: float | None  # None: this is measured along ranks
    low: float
    high: float


class Cell(NamedTuple):
    """A piece of a part. It begins at an entry, and `read` of its entries are known, up to before `rest`; behind that
    there are `density` entries a unit of width, up to `end`. `newer` is a share; `step` is the usual distance of two
    neighbours: ids, or ranks, of which each may have many entries."""

    part: Part
    at: float
    end: float
    read: float
    rest: float
    density: float
    newer: float
    step: float = 0.0
    there: float = 0.0  # entries with which the rest begins, if there is one
    origin: float = 0.0  # ranks: where the look began that this cell goes on from, and how many entries were
    since: float = 0.0  # found since


def weigh(line: Line) -> Rounds:
    """Measure both sides of a place."""
    parts = yield from _parts(line)
    firsts = [(part, at, end) for part in parts for at, end in _cut(part, parts, line.own[1])]
    found = yield [_look(part, at) for part, at, _ in firsts] + [_look(part, part.high, down=True) for part in parts]
    cells = [_measure(*first, line.own[1], stretch) for first, stretch in zip(firsts, found, strict=False)]
    ends = {part: _density_at_end(part, stretch) for part, stretch in zip(parts, found[len(firsts) :], strict=True)}
    for _ in range(_ROUNDS):
        cells.sort(key=_order)
        worst = _worst(cells, ends)
        if not worst:
            break
        found = yield [_look(cell.part, at) for cell, at in worst]
        for (cell, at), stretch in zip(worst, found, strict=True):
            cells.remove(cell)
            cells.append(cell._replace(end=at))
            cells.append(_go_on(cell, _measure(cell.part, at, cell.end, line.own[1], stretch)))
    return _sum_up(cells, ends)


def drive(rounds: Rounds, look: Callable[[Look], Stretch]) -> Weights:
    """Answer the looks one by one, until there are no more."""
    wanted = next(rounds)
    while True:
        try:
            wanted = rounds.send([look(each) for each in wanted])
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def place_of(weights: Weights, others: int, ahead: int, behind: int) -> int:
    """How many are ahead, of all the others in the line, of whom at least so many are known to be on either side.

    >>> place_of(Weights(300, 100, 0), others=4000, ahead=101, behind=101)
    3000
    >>> place_of(Weights(1, 999, 0), others=4000, ahead=101, behind=101)
    101
    """
    whole = weights.ahead + weights.behind
    guess = round(others * weights.ahead / whole) if whole > 0 else others // 2
    return max(ahead, min(guess, others - behind))


def newer_of(weights: Weights, ahead: int) -> int:
    return max(0, min(ahead, round(ahead * weights.newer)))


def _parts(line: Line) -> Generator[list[Look], list[Stretch], list[Part]]:
    rank, id = line.own
    lanes = list(line.ranks) if len(line.ranks) <= RANKS else sorted({rank, line.last_rank})
    found = yield [Look(lane, 0, 1) for lane in lanes]
    parts = []
    for lane, stretch in zip(lanes, found, strict=True):
        first = stretch.entries[0] if stretch.entries else (None, 0)
        if first[0] != lane:
            continue  # a delayed job may have a rank that no ready one has
        low, high = first[1], stretch.far + 1
        if lane == rank:
            parts += [Part(0, True, lane, low, min(id, high)), Part(0, False, lane, max(id + 1, low), high)]
        else:
            parts.append(Part(0, lane < rank, lane, low, high))
    if len(line.ranks) > RANKS:
        parts.append(Part(0, True, None, line.ranks[0], rank))
        after = found[lanes.index(rank)]
        here = after.entries and after.entries[0][0] == rank
        following = after.beyond if here else after.entries[0][0] if after.entries else None
        if following is not None:
            parts.append(Part(0, False, None, following, line.last_rank))
    return [part._replace(number=n) for n, part in enumerate(parts) if 0 < part.high - part.low < inf]


def _cut(part: Part, parts: Sequence[Part], own: int) -> list[tuple[float, float]]:
    """The cells of a part at first, as places where they begin and end."""
    number = max(2, _CELLS // sum(each.ahead == part.ahead for each in parts))
    width = part.high - part.low
    edges = [part.low + width * n / number for n in range(number)]
    if part.rank is not None:
        # Also where ids become higher than the own one, so that all of a cell are newer, or none.
        edges = sorted({int(edge) for edge in edges} | ({own} if part.low < own < part.high else set()))
    return list(pairwise([*edges, part.high]))


def _look(part: Part, at: float, *, down: bool = False) -> Look:
    return Look(at, 0, READ, down) if part.rank is None else Look(part.rank, int(at), READ, down)


def _measure(part: Part, at: float, end: float, own: int, stretch: Stretch) -> Cell:
    """The cell that begins at a place: what was read of it, and how dense it is."""
    if part.rank is None:
        inside = [entry for entry in stretch.entries if entry[0] < end]
    else:
        inside = [entry for entry in stretch.entries if entry[0] == part.rank and entry[1] < end]
    newer = _share_above(own, inside, stretch.far if part.rank is None else inside[-1][1] if inside else 0)
    if len(inside) < READ:  # all of it
        return Cell(part, at, end, len(inside), end, 0.0, newer)
    if part.rank is not None:
        first, last = inside[0][1], inside[-1][1]
        return Cell(part, first, end, READ, last + 1, READ / (last - first + 1), newer, (last - first + 1) / READ)
    mass, reach = _with_whole_lane(inside, stretch)
    reach = end if reach is None else min(reach, end)
    start = inside[0][0]
    ranks = len({rank for rank, _ in inside if rank < reach})
    # From one entry to the next there may be any distance, also none worth speaking of: of few ranks, the distance is
    # taken from the place of the look, which was not chosen by them.
    width = reach - (start if ranks >= READ // 2 else at)
    # The rest begins with a rank: it may have as many as the others.
    return Cell(part, start, end, mass, reach, mass / width, newer, width / ranks, mass / ranks, at, mass)


def _go_on(before: Cell, cell: Cell) -> Cell:
    """A cell that was cut off right where the one before it had been read to.

    It begins at a rank, so its own look says too much of how near the next one is; both together do not.
    """
    if cell.part.rank is not None or cell.at != before.rest or cell.rest >= cell.end:
        return cell
    since, width = before.since + cell.since, cell.rest - before.origin
    return cell._replace(density=since / width, step=before.step, origin=before.origin, since=since)


def _share_above(own: int, entries: Sequence[Entry], far: int) -> float:
    """Which share of them has a higher id; where all have one rank, of all its ids up to `far`, evenly spread."""
    if len(entries) == READ and entries[0][0] == entries[-1][0]:
        first = entries[0][1]
        return min(1.0, max(0.0, (far - own) / (far - first + 1)))
    return sum(id > own for _, id in entries) / (len(entries) or 1)


def _density_at_end(part: Part, stretch: Stretch) -> float:
    """How dense a part is right before its end, from what was read there backwards."""
    if part.rank is None:
        inside = [entry for entry in stretch.entries if entry[0] >= part.low]
        if not inside:
            return 0.0
        mass, reach = _with_whole_lane(inside, stretch)
        return mass / (part.high - (part.low if reach is None else max(reach, part.low)))
    ids = [id for rank, id in stretch.entries if rank == part.rank and id >= part.low]
    return len(ids) / (part.high - ids[-1]) if ids else 0.0


def _with_whole_lane(entries: Sequence[Entry], stretch: Stretch) -> tuple[float, float | None]:
    """How many entries there are up to the end of a rank, and the rank after that.

    Jobs that came at once have the same rank: where a look ends in a long lane, that is counted whole, by the density
    of its ids. Too little was read of a short one to tell: then the count ends before it.
    """
    last = entries[-1][0]
    ids = [id for rank, id in entries if rank == last]
    if stretch.entries[-1][0] != last:  # it was read to its end
        return float(len(entries)), stretch.entries[len(entries)][0]
    if len(ids) < len(entries) and len(ids) < READ // 2:
        return float(len(entries) - len(ids)), last
    density = len(ids) / (abs(ids[-1] - ids[0]) + 1)
    lane = max(len(ids), density * (abs(stretch.far - ids[0]) + 1))
    return len(entries) - len(ids) + lane, stretch.beyond


def _order(cell: Cell) -> tuple[int, float]:
    return cell.part.number, cell.at


def _where_to_cut(cell: Cell, after: float) -> float:
    rest, end = cell.rest, cell.end
    if cell.part.rank is None:
        few = end - rest <= _FEW * cell.step
        return rest if few else (rest + end) / 2  # a few ranks are counted one by one
    if not after:  # its entries end somewhere, and nobody knows how soon
        return int(rest + sqrt((rest - cell.at) * (end - rest)))
    return int((rest + end) / 2)


def _after(cells: Sequence[Cell], ends: dict[Part, float]) -> list[tuple[Cell, float]]:
    """Each cell, and the density where it ends."""
    told = []
    for cell, next in pairwise([*cells, None]):
        assert cell is not None
        if next is None or next.part != cell.part:
            told.append((cell, ends[cell.part]))
        elif next.at - cell.end > _GAP * cell.step > 0:
            told.append((cell, 0.0))
        else:
            told.append((cell, next.density or next.read / max(1e-9, next.end - next.at)))
    return told


def _mass(cell: Cell, after: float) -> float:
    if cell.rest >= cell.end:
        return cell.read
    return cell.read + cell.there + (cell.end - cell.rest) * (cell.density + after) / 2


def _worst(cells: Sequence[Cell], ends: dict[Part, float]) -> list[tuple[Cell, float]]:
    """The cells whose two ends differ most in what they let one expect, and where to cut them."""
    told = _after(cells, ends)
    enough = _GOOD * sum(_mass(*each) for each in told)
    wrong = []
    for cell, after in told:
        error = (abs(cell.density - after) / 2 + _DOUBT * cell.density) * (cell.end - cell.rest)
        at = _where_to_cut(cell, after)
        if error > enough and cell.at < at < cell.end and cell.rest <= at:
            wrong.append((error, cell, at))
    wrong.sort(key=lambda each: -each[0])
    return [(cell, at) for _, cell, at in wrong[:_CUTS]]


def _sum_up(cells: Sequence[Cell], ends: dict[Part, float]) -> Weights:
    cells = sorted(cells, key=_order)
    sides = {True: 0.0, False: 0.0}
    newer = 0.0
    for cell, after in _after(cells, ends):
        mass = _mass(cell, after)
        sides[cell.part.ahead] += mass
        newer += mass * cell.newer * cell.part.ahead
    return Weights(sides[True], sides[False], newer / sides[True] if sides[True] else 0.0)
