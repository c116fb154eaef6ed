"""The log of waiters that joined and left a shared job."""

from hypothesis import given
from hypothesis import strategies as st

from accoda.demand.score import DEFAULT_WEIGHTS, Crowd, crowd_of
from accoda.demand.waiters import ASKS, JOINS, LEAVES, Entry, WaiterLog, present, write_entry

ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from([JOINS, JOINS, ASKS, LEAVES]),
        st.sampled_from("abcd"),
        st.sampled_from(["business", "pro", "free", "a tier of another release"]),
        st.sampled_from([None, 5, 7, 9]),
    ),
    max_size=30,
)


@given(ENTRIES)
def test_the_crowd_is_that_of_the_present_waiters_after_every_entry(entries: list[Entry]) -> None:
    log = WaiterLog(1, DEFAULT_WEIGHTS)
    for end, entry in enumerate(entries, start=1):
        log.add_own(entry)
        left = present(entries[:end], 1)
        assert log.crowd == crowd_of((DEFAULT_WEIGHTS.points(one.tier), one.due) for one in left.values())
        assert all(log.has(id) == (id in left) for id in "abcd")
    assert log.seen == len(entries)


def test_an_unreadable_entry_is_counted_as_seen_and_is_no_waiter() -> None:
    log = WaiterLog(1, DEFAULT_WEIGHTS)
    log.add([b"\xc1", write_entry(Entry(JOINS, "a", "pro")), b""])
    assert (log.seen, log.crowd) == (3, Crowd(1, 3.0, 0))


def test_a_waiter_that_joined_and_then_only_asks_still_waits() -> None:
    joined = Entry(JOINS, "a", "pro", fresh_after=9)
    assert present([joined, Entry(ASKS, "a", "pro")], 1) == {"a": joined}
    assert present([joined, Entry(LEAVES, "a", leaves=1), Entry(ASKS, "a", "pro")], 1)["a"].kind == ASKS
