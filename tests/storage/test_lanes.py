"""The order of ready jobs in memory is that of a sorted list, whatever comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from accoda.storage.memory.lanes import Lanes

pushes = st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.integers(0, 50))


@given(st.lists(st.one_of(pushes, st.none()), max_size=200))
def test_lanes_pop_the_lowest_rank_then_the_lowest_id(commands: list[tuple[float, int] | None]) -> None:
    lanes = Lanes()
    model: list[tuple[float, int]] = []
    for command in commands:
        if command is not None:
            lanes.push(*command)
            model.append(command)
            continue
        head = lanes.first()
        assert (head is None) == (not model)
        if head is not None:
            rank, lane, id = head
            assert (rank, id) == min(model)
            model.remove((rank, id))
            lanes.pop(lane)
        assert lanes.size == len(model)


def test_a_long_lane_drops_what_is_behind_its_head() -> None:
    lanes = Lanes()
    for id in range(5000):
        lanes.push(0.0, id)
    popped = []
    while (head := lanes.first()) is not None:
        popped.append(head[2])
        lanes.pop(head[1])
        assert len(head[1].line) <= 5000
    assert popped == list(range(5000))
    assert lanes.first() is None


@given(st.lists(pushes, max_size=200), st.integers(0, 60))
def test_lanes_are_given_in_order_without_being_changed(entries: list[tuple[float, int]], pops: int) -> None:
    lanes = Lanes()
    for entry in entries:
        lanes.push(*entry)
    for _ in range(min(pops, len(entries))):
        head = lanes.first()
        assert head is not None
        lanes.pop(head[1])
    left = sorted(entries)[pops:]
    seen = [(rank, id) for rank, lane in lanes.in_order() for id in lane.after(-1)]
    assert [rank for rank, _ in seen] == [rank for rank, _ in left]
    assert sorted(seen) == left
    assert sum(lane.size for _, lane in lanes.sample(99)) == lanes.size == len(left)
    for rank, lane in lanes.in_order():
        assert sorted(lane.sample(200)) == [id for each, id in left if each == rank]
        below, above = set(lane.before(25)), set(lane.after(25))
        own = {id for each, id in left if each == rank}
        assert {id for id in below if id < 25} == {id for id in own if id < 25}
        assert {id for id in above if id > 25} == {id for id in own if id > 25}


def test_a_sample_is_spread_over_all_of_a_lane_and_over_all_lanes() -> None:
    lanes = Lanes()
    for id in range(1000):
        lanes.push(float(id % 10), id)
    assert [rank for rank, _ in lanes.sample(5)] == [1.0, 3.0, 5.0, 7.0, 9.0]
    (first, lane) = next(lanes.in_order())
    assert (first, list(lane.sample(4))) == (0.0, [120, 370, 620, 870])
