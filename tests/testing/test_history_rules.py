"""The checker raises no false alarm, and catches everything that it should: tried on a toy queue and its mutants."""

from typing import Any

import pytest

from accoda import Lease
from accoda.testing.history import RULES, History, MemorySink, Options, Recorder, check, recovery, redelivery
from accoda.testing.history import records as r
from accoda.testing.history.mutants import MUTANTS, Mutant, catch
from accoda.testing.history.trial import Plan, Trial, judge

SECOND = 1_000_000_000


@pytest.mark.parametrize("seed", range(20))
def test_the_right_toy_breaks_no_rule(seed: int) -> None:
    verdict = judge(Plan(seed))
    assert verdict.ok, str(verdict)
    assert verdict.counts["unknown calls"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_lost_replies_and_kills_give_no_false_alarm(seed: int) -> None:
    verdict = judge(Plan(seed, loss=0.15, kills=2))
    assert verdict.ok, str(verdict)
    assert verdict.counts["unknown calls"] > 10


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_by_its_rule(mutant: Mutant) -> None:
    assert catch(mutant) is not None


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} == set(RULES)


@pytest.mark.parametrize("rule", ["lost", "double lease", "stale token", "done twice", "resurrected"])
def test_mutants_are_caught_though_replies_are_lost(rule: str) -> None:
    (mutant, *_) = [mutant for mutant in MUTANTS if mutant.rule == rule]
    verdicts = (judge(Plan(seed, model=mutant.model, loss=0.1, kills=1)) for seed in range(5))
    assert any(violation.rule == rule for verdict in verdicts for violation in verdict.violations)


def test_a_seed_gives_the_same_history_again() -> None:
    plan = Plan(7, loss=0.1, kills=2)
    one, two = Trial(plan), Trial(plan)
    one.play()
    two.play()
    assert one.sink.records == two.sink.records


def test_a_verdict_names_the_calls_and_tells_what_it_left_out() -> None:
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == "run_elsewhere"]
    verdict = check(Trial(Plan(1, run=mutant.run)).play(), rules=["runs", "lost"], most=3)
    assert (len(verdict.violations), verdict.cut, verdict.skipped) == (3, ("runs",), ("lost",))
    assert not verdict.ok
    assert "which did not hold that lease\n    #" in str(verdict)
    assert "runs: there are more" in str(verdict)
    assert "not checked without the final state: lost" in str(verdict)


class Script:
    """A history made by hand, call by call, with moments in seconds. A call without an end is unknown."""

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.number = 0
        self.at = 0
        self.recorder = Recorder("c", self.sink, lambda: self.at)

    def call(self, times: tuple[float, float | None], start: Any, end: Any, asked: object, told: object = ()) -> None:
        self.number += 1
        began, ended = times
        self.sink.put(start("c", self.number, int(began * SECOND), "", *asked))  # type: ignore[misc]
        if ended is not None:
            self.sink.put(end("c", self.number, int(ended * SECOND), 0, told))

    def enqueue(self, began: float, ended: float | None, id: int, **asked: Any) -> None:
        jobs = (r.Asked("q", 1, id, **asked),)
        self.call((began, ended), r.Enqueue, r.EnqueueEnd, (jobs,), (r.Placed(id, "created", 0),))

    def take(self, began: float, ended: float | None, *tokens: tuple[int, int], lease: float = 10.0) -> None:
        taken = tuple(r.Taken(id, attempts, 0.0, 0, 0, 1, id, 0, 0, 0, attempts) for id, attempts in tokens)
        self.call((began, ended), r.Take, r.TakeEnd, ("q", len(tokens), lease, None), taken)

    def settle(self, began: float, ended: float | None, id: int, attempts: int, kind: r.Kind = "done") -> None:
        self.call((began, ended), r.Settle, r.RefusedEnd, ((r.Told("q", id, attempts, kind),),))

    def extend(self, began: float, ended: float | None, id: int, attempts: int, lease: float) -> None:
        self.call((began, ended), r.Extend, r.RefusedEnd, ((r.Held("q", id, attempts),), lease))

    def note(self, at: float, kind: str, **fields: object) -> None:
        self.at = int(at * SECOND)
        self.recorder.note(kind, **fields)

    def broken(self, **options: Any) -> set[str]:
        return {each.rule for each in check(History.of(self.sink), options=Options(**options)).violations}


def leased_again(began: float, ended: float) -> Script:
    """Job 1 is taken for 10 s by a call from 1 to 2, and again by one from `began` to `ended`."""
    script = Script()
    script.enqueue(0, 0.5, 1)
    script.take(1, 2, (1, 0))
    script.take(began, ended, (1, 1))
    return script


def test_a_lease_is_valid_from_the_end_of_its_take_until_its_start_and_the_lease() -> None:
    assert leased_again(3, 10.5).broken() == {"double lease", "attempts"}
    assert leased_again(3, 11.5).broken() == set()  # the second may have been handed out when the first was over
    assert leased_again(1.5, 10.5).broken() == {"attempts"}  # nobody knows which came first


def test_the_tolerance_is_an_option() -> None:
    assert leased_again(3, 10.99).broken() == set()  # a thousandth of ten seconds, and three milliseconds
    assert leased_again(3, 10.99).broken(slack=0.0, drift=0.0) == {"double lease", "attempts"}


def test_an_extension_makes_a_lease_last_and_an_unknown_one_may_shorten_it() -> None:
    script = leased_again(13, 14)
    script.extend(5, 6, 1, 0, 10.0)
    assert script.broken() == {"double lease", "attempts"}
    script.extend(7, None, 1, 0, 1.0)
    assert script.broken() == set()


def test_an_accepted_outcome_shows_that_the_lease_was_valid_until_then() -> None:
    script = leased_again(13, 14)
    script.settle(15, 16, 1, 0, "retry")
    assert script.broken() >= {"double lease", "stale token"}


def test_an_unknown_outcome_explains_a_return() -> None:
    script = leased_again(3, 4)
    script.settle(2.5, None, 1, 0, "retry")
    assert script.broken() == set()


def test_a_done_and_a_later_lease_cannot_both_be() -> None:
    script = leased_again(13, 17)
    script.settle(15, 16, 1, 0)
    assert "resurrected" in script.broken()


def test_a_take_with_unknown_end_explains_attempts_that_nobody_saw() -> None:
    script = Script()
    script.enqueue(0, 0.5, 1)
    script.take(20, 21, (1, 1))
    assert script.broken() == {"attempts"}
    script.take(1, None)
    assert script.broken() == set()


def test_a_job_of_an_unknown_enqueue_is_explained_once() -> None:
    script = Script()
    script.enqueue(0, None, 1)
    script.take(1, 2, (1, 0))
    assert script.broken() == set()
    script.take(3, 4, (2, 0))
    assert script.broken() == {"from nowhere"}


def test_a_start_given_as_a_moment_is_counted_from_the_creation() -> None:
    def taken_by(ended: float) -> set[str]:
        script = Script()
        script.enqueue(100, 101, 1, start_at=8_000)  # the store's clock said 0 when it was created
        script.take(102, ended, (1, 0))
        return script.broken()

    assert taken_by(107) == {"early"}
    assert taken_by(108.5) == set()


def test_order_counts_only_where_it_is_certain() -> None:
    def passed_over(enqueued: float, taken: float) -> set[str]:
        script = Script()
        script.enqueue(0, enqueued, 1)
        script.enqueue(0, 0.4, 2)
        script.take(1, 2, (2, 0))
        script.take(taken, taken + 1, (1, 0))
        return script.broken()

    assert passed_over(0.5, 3) == {"order"}
    assert passed_over(1.5, 3) == set()  # it may have been enqueued after the take
    assert passed_over(0.5, 1.5) == set()  # it may have been taken before


def test_a_take_that_was_given_up_may_hold_the_head_for_a_while() -> None:
    script = Script()
    script.enqueue(0, 0.4, 1)
    script.enqueue(0, 0.5, 2)
    script.take(0.6, None)
    script.take(1, 2, (2, 0))
    script.take(3, 4, (1, 0))
    assert script.broken() == set()
    assert script.broken(lingering=0.0) == {"order"}


def test_a_job_may_be_passed_over_as_long_as_the_options_say() -> None:
    script = Script()
    for id in (1, 2, 3, 4):
        script.enqueue(0, 0.3, id)
    for number, id in enumerate((2, 3, 1, 4)):  # the first is passed over from 1 to 2.5
        script.take(1 + number, 1.5 + number, (id, 0))
    assert script.broken() == {"order"}
    assert script.broken(passing=1.0) == {"order"}
    assert script.broken(passing=2.0) == set()


def test_a_store_with_partitions_keeps_no_order() -> None:
    script = Script()
    script.enqueue(0, 0.4, 1)
    script.enqueue(0, 0.5, 2)
    script.take(1, 2, (2, 0))
    script.take(3, 4, (1, 0))
    assert script.broken() == {"order"}
    assert script.broken(ordered=False) == set()


def test_a_budget_that_is_overspent_is_found() -> None:
    script = Script()
    script.note(0, "budget", name="api", capacity=20, refill=20, per=60)
    script.note(1, "spend", name="api", amount=20)
    script.note(31, "spend", name="api", amount=10)
    assert script.broken() == set()
    script.note(40, "spend", name="api", amount=5)
    assert script.broken() == {"budget"}
    script.note(40, "budget", name="api", capacity=20, refill=20, per=60, left=9)
    script.note(41, "spend", name="api", amount=9)
    assert len(check(History.of(script.sink)).violations) == 1


def test_redelivery_is_counted_from_the_kill_of_who_held_the_job() -> None:
    script = leased_again(12, 13)
    script.enqueue(0, 0.5, 2)
    script.take(1, 2, (2, 0))
    script.settle(2, 3, 2, 0, "retry")
    script.take(5, 6, (2, 1))
    script.note(4, "kill", client="c")
    script.note(4, "kill", client="somebody else")
    assert redelivery(History.of(script.sink)) == [(9.0, Lease("q", 1, 0))]


def test_recovery_is_counted_to_the_next_take_that_gave_a_job() -> None:
    script = Script()
    script.enqueue(0, 0.5, 1)
    script.note(1, "server down")
    script.take(2, None, (1, 0))
    script.note(3, "server up")
    script.take(3.5, 3.6)
    script.take(3.7, 5.5, (1, 0))
    script.note(9, "server up")
    assert recovery(History.of(script.sink)) == [2.5]
