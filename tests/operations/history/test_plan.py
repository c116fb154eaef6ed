"""What a round writes: differences of counters, spread over late slots, and nothing where nothing changed."""

from collections.abc import Mapping

from accoda.limits import allowed, set_limits
from accoda.model import QueueStats
from accoda.operations.history.plan import (
    AT_ONCE,
    LONGEST,
    REFRESH,
    TOTAL,
    Counters,
    Memory,
    Recorded,
    RingWrite,
    Round,
    WorkerSums,
    pack,
    plan,
    unpack,
)
from accoda.operations.history.ring import STEP

SLOT = 113_333_333


def counters(slot: int, queues: Mapping[str, QueueStats], **more) -> Counters:
    """At the moment at which that slot has just ended."""
    return Counters((slot + 1) * STEP, queues, **more)


def write_of(found: Round, name: str) -> RingWrite | None:
    return next((write for write in found.writes if write.name == name), None)


def events(found: Round, name: str) -> list[tuple[int, int]]:
    """Slots and what was done in them."""
    one = write_of(found, name)
    return [] if one is None else [(slot - SLOT, int(values[0])) for slot, values in one.slots]


def begin(queues: Mapping[str, QueueStats], **more) -> Memory:
    return plan(None, counters(SLOT, queues, **more)).memory


def test_the_first_round_tells_what_is_there_and_nothing_of_what_happened() -> None:
    found = plan(None, counters(SLOT, {"a": QueueStats(done=1000, ready=3)}))
    assert events(found, "a") == [(0, 0)] and events(found, TOTAL) == [(0, 0)]
    one = write_of(found, "a")
    assert one is not None and one.slots[0][1][4] == 3


def test_a_round_tells_the_difference() -> None:
    memory = begin({"a": QueueStats(done=1000)})
    found = plan(memory, counters(SLOT + 1, {"a": QueueStats(done=1007, retried=2)}))
    assert events(found, "a") == [(1, 7)] == events(found, TOTAL)


def test_a_queue_of_which_nothing_changed_is_not_written() -> None:
    memory = begin({"a": QueueStats(done=5, ready=2, oldest_age=3.0)})
    found = plan(memory, counters(SLOT + 1, {"a": QueueStats(done=5, ready=2, oldest_age=18.0)}))
    assert [one.name for one in found.writes] == [TOTAL]
    later = plan(found.memory, counters(SLOT + 2, {"a": QueueStats(done=6, ready=1)}))
    assert events(later, "a") == [(2, 1)]  # in its slot, and not spread over those in which nothing happened


def test_a_queue_is_written_once_a_day_all_the_same() -> None:
    memory = begin({"a": QueueStats(dead=2)})
    written = []
    for slot in range(SLOT + 1, SLOT + REFRESH + 9):
        found = plan(memory, counters(slot, {"a": QueueStats(dead=2)}))
        memory = found.memory
        written += events(found, "a")
    assert written == [(REFRESH, 0)]


def test_a_new_queue_began_with_nothing() -> None:
    memory = begin({})
    assert events(plan(memory, counters(SLOT + 1, {"new": QueueStats(done=4)})), "new") == [(1, 4)]


def test_what_happened_while_rounds_were_late_is_spread_evenly() -> None:
    memory = begin({"a": QueueStats()})
    found = plan(memory, counters(SLOT + 3, {"a": QueueStats(done=8)}))
    assert events(found, "a") == [(1, 3), (2, 3), (3, 2)] == events(found, TOTAL)


def test_after_a_long_silence_nobody_knows_when_it_happened() -> None:
    memory = begin({"a": QueueStats()})
    later = SLOT + LONGEST + 1
    found = plan(memory, counters(later, {"a": QueueStats(done=800, ready=1)}))
    assert events(found, "a") == [(LONGEST + 1, 0)]
    assert events(plan(found.memory, counters(later + 1, {"a": QueueStats(done=801)})), "a") == [(LONGEST + 2, 1)]


def test_a_round_within_the_same_slot_writes_nothing() -> None:
    memory = begin({"a": QueueStats()})
    found = plan(memory, counters(SLOT, {"a": QueueStats(done=5)}))
    assert found.writes == [] and found.memory == memory


def test_counters_that_begin_anew_give_no_negative_events() -> None:
    memory = begin({"a": QueueStats(done=1000)})
    assert events(plan(memory, counters(SLOT + 1, {"a": QueueStats(done=3)})), "a") == [(1, 0)]


def test_a_clock_that_goes_back_a_little_is_waited_for_and_far_back_is_believed() -> None:
    memory = begin({"a": QueueStats(done=5)})
    assert plan(memory, counters(SLOT - 2, {"a": QueueStats(done=6)})).writes == []
    found = plan(memory, counters(SLOT - 240, {"a": QueueStats(done=900)}))
    assert events(found, "a") == [(-240, 0)] and found.memory.slot == SLOT - 240


def test_one_round_writes_a_bounded_number_and_the_others_come_first_in_the_next() -> None:
    names = [f"q{number:04}" for number in range(AT_ONCE + 50)]
    memory = begin({name: QueueStats() for name in names})
    memory = plan(memory, counters(SLOT + 1, {name: QueueStats() for name in names})).memory
    found = plan(memory, counters(SLOT + 2, {name: QueueStats(done=6) for name in names}))
    assert len(found.writes) == AT_ONCE + 1 and events(found, names[-1]) == []
    last = plan(found.memory, counters(SLOT + 3, {name: QueueStats(done=6) for name in names}))
    assert sorted(events(last, names[-1])) == [(2, 3), (3, 3)]
    assert len(last.writes) == 51


def test_coarse_slots_are_made_when_they_end_also_of_a_queue_that_fell_asleep() -> None:
    first = SLOT // 20 * 20
    memory = plan(None, counters(first - 1, {"a": QueueStats()})).memory
    made: list[tuple[int, range]] = []
    for slot in range(first, first + 41):
        found = plan(memory, counters(slot, {"a": QueueStats(done=min(3, slot - first))}))
        memory = found.memory
        if (one := write_of(found, "a")) is not None and "24h" in one.rolls:
            made.append((slot - first, one.rolls["24h"]))
    # The slot before it was there at the start; ours ends with the twentieth round; in the one after it nothing was.
    assert [(at, list(slots)[-1] - first // 20) for at, slots in made] == [(19, 0)]


def test_what_workers_measured_is_told_as_means() -> None:
    stats = {"a": QueueStats()}
    memory = begin(stats, workers={"w": WorkerSums(0, {"a": (10, 5.0, 20.0)})})
    found = plan(memory, counters(SLOT + 1, stats, workers={"w": WorkerSums(0, {"a": (14, 7.0, 21.0)})}))
    one = write_of(found, "a")
    assert one is not None and one.slots[0][1][9:] == (0.25, 0.5, 4)
    again = counters(SLOT + 2, stats, workers={"w": WorkerSums(0, {"a": (14, 7.0, 21.0)})})
    assert plan(found.memory, again).writes[1:] == []


def test_a_worker_that_restarts_begins_anew_and_gives_no_negative_numbers() -> None:
    stats, now = {"a": QueueStats()}, (SLOT + 1) * STEP
    memory = begin(stats, workers={"w1": WorkerSums(0, {"a": (1000, 500.0, 100.0)})})
    restarted = {"w2": WorkerSums(now, {"a": (2, 1.0, 4.0)})}
    one = write_of(plan(memory, counters(SLOT + 1, stats, workers=restarted)), "a")
    assert one is not None and one.slots[0][1][9:] == (2.0, 0.5, 2)
    shrunk = plan(memory, counters(SLOT + 1, stats, workers={"w1": WorkerSums(0, {"a": (4, 1.0, 1.0)})}))
    assert write_of(shrunk, "a") is None
    again = plan(shrunk.memory, counters(SLOT + 2, stats, workers={"w1": WorkerSums(0, {"a": (6, 2.0, 1.5)})}))
    one = write_of(again, "a")
    assert one is not None and one.slots[0][1][9:] == (0.25, 0.5, 2)


def test_a_worker_that_was_there_for_long_but_not_seen_is_believed_from_now_on() -> None:
    stats = {"a": QueueStats()}
    found = plan(begin(stats), counters(SLOT + 1, stats, workers={"w": WorkerSums(0, {"a": (9999, 1e6, 0.0)})}))
    assert write_of(found, "a") is None


def test_a_budget_is_told_with_what_was_used_and_begins_each_day_anew() -> None:
    memory = begin({}, budgets={"keepa": (20.0, 0.0, 300.0, 4.0)})
    found = plan(memory, counters(SLOT + 1, {}, budgets={"keepa": (12.0, 5.0, 303.0, 5.0)}))
    one = write_of(found, "budget:keepa")
    assert one is not None and one.slots == [(SLOT + 1, (12.0, 5.0, 3.0, 1))]
    still = plan(found.memory, counters(SLOT + 2, {}, budgets={"keepa": (12.0, 5.0, 303.0, 5.0)}))
    assert write_of(still, "budget:keepa") is None
    one = write_of(plan(found.memory, counters(SLOT + 2, {}, budgets={"keepa": (20.0, 0.0, 2.0, 0.0)})), "budget:keepa")
    assert one is not None and one.slots == [(SLOT + 2, (20.0, 0.0, 2.0, 0))]


def test_what_is_remembered_travels_and_what_cannot_be_read_is_nothing() -> None:
    memory = begin({"a": QueueStats(done=4)}, workers={"w": WorkerSums(0, {"a": (1, 2.0, 3.0)})})
    assert unpack(pack(memory)) == memory
    assert unpack(b"") is None and unpack(b"\x78") is None and unpack(pack(memory)[:-4]) is None


def test_a_memory_that_does_not_fit_leaves_queues_out_for_good() -> None:
    queues = {
        f"a-queue-{number * 7919}": Recorded(SLOT, (number * 7919 % 1009, 1, 2, 3), (0,) * 5) for number in range(400)
    }
    before = allowed.payload
    set_limits(payload=1500)
    try:
        small = unpack(pack(Memory(SLOT, queues, {}, {}, None)))
    finally:
        set_limits(payload=before)
    assert small is not None and 0 < len(small.queues) < 400
    seen = plan(small, counters(SLOT + 1, {name: QueueStats(done=5000) for name in queues}))
    assert len(seen.memory.queues) == len(small.queues)  # the others are not taken for new
