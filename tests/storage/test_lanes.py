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
