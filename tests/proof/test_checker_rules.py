"""The checker raises no false alarm, and catches everything that it should: tried on a fake store and its mutants."""

from typing import Any

import pytest
from proof.checker import RULES, CallLog, FinalState, MemorySink, Options, Recorder, check, recovery, redelivery
from proof.checker import records as r
from proof.checker.flow_mutants import FLOW_MUTANTS, FlowMutant, catch_flow, judge_flows
from proof.checker.mutants import MUTANTS, Mutant, TakesAnew, catch
from proof.checker.trial import Plan, Trial, judge

from accoda import Lease
from accoda.model import Lanes, QueueStats, State

SECOND = 1_000_000_000


@pytest.mark.parametrize("seed", range(20))
def test_the_right_store_breaks_no_rule(seed: int) -> None:
    verdict = judge(Plan(seed))
    assert verdict.ok, str(verdict)
    assert verdict.counts["unknown calls"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_lost_replies_and_kills_give_no_false_alarm(seed: int) -> None:
    verdict = judge(Plan(seed, loss=0.15, kills=2, again=0.2))
    assert verdict.ok, str(verdict)
    assert verdict.counts["unknown calls"] > 10


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_by_its_rule(mutant: Mutant) -> None:
    assert catch(mutant) is not None


@pytest.mark.parametrize("seed", range(20))
def test_right_flows_break_no_rule(seed: int) -> None:
    verdict = judge_flows(seed)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("mutant", FLOW_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_flows_is_caught_by_its_rule(mutant: FlowMutant) -> None:
    assert catch_flow(mutant) is not None


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in (*MUTANTS, *FLOW_MUTANTS)} == set(RULES)


@pytest.mark.parametrize("rule", ["lost", "double lease", "stale token", "done twice", "resurrected"])
def test_mutants_are_caught_though_replies_are_lost(rule: str) -> None:
    (mutant, *_) = [mutant for mutant in MUTANTS if mutant.rule == rule]
    verdicts = (judge(Plan(seed, model=mutant.model, loss=0.1, kills=1)) for seed in range(5))
    assert any(violation.rule == rule for verdict in verdicts for violation in verdict.violations)


def test_a_seed_gives_the_same_calls_again() -> None:
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
    """A call log made by hand, call by call, with moments in seconds. A call without an end is unknown."""

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.number = 0
        self.at = 0
        self.recorder = Recorder("c", self.sink, lambda: self.at)
        self.told: dict[tuple[int, int], tuple[int, int]] = {}  # tries and crashes, where they are not all crashes
        self.ranks: dict[tuple[int, int], float] = {}
        self.lane: str | None = None  # of all jobs
        self.queue = "q"  # of what is added next

    def failures(self, id: int, attempts: int) -> tuple[int, int]:
        return self.told.get((id, attempts), (0, attempts))

    def call(self, times: tuple[float, float | None], start: Any, end: Any, asked: object, *told: object) -> None:
        self.number += 1
        began, ended = times
        self.sink.put(start("c", self.number, int(began * SECOND), "", *asked))  # type: ignore[misc]
        if ended is not None:
            self.sink.put(end("c", self.number, int(ended * SECOND), 0, *told))

    def enqueue(self, began: float, ended: float | None, id: int, **asked: Any) -> None:
        jobs = (r.Asked(self.queue, 1, id, lane=self.lane, **asked),)
        self.call((began, ended), r.Enqueue, r.EnqueueEnd, (jobs,), (r.Placed(id, "created", 0),))

    def take(
        self, began: float, ended: float | None, *tokens: tuple[int, int], lease: float = 10.0, count: int = 0
    ) -> None:
        taken = tuple(
            r.Taken(id, n, self.ranks.get((id, n), 0.0), 0, 0, 1, id, 0, 0, *self.failures(id, n), lane=self.lane)
            for id, n in tokens
        )
        self.call((began, ended), r.Take, r.TakeEnd, (self.queue, count or len(tokens), lease, None), taken)

    def settle(self, began: float, ended: float | None, id: int, attempts: int, kind: r.Kind = "done") -> None:
        self.call((began, ended), r.Settle, r.RefusedEnd, ((r.Told("q", id, attempts, kind),),))

    def extend(self, began: float, ended: float | None, id: int, attempts: int, lease: float) -> None:
        self.call((began, ended), r.Extend, r.RefusedEnd, ((r.Held("q", id, attempts),), lease))

    def join(self, began: float, ended: float | None, id: int, waiter: int, place: int = 1) -> None:
        jobs = (r.Asked("q", 1, id, key="k", on_duplicate="attach", waiter=waiter),)
        self.call((began, ended), r.Enqueue, r.EnqueueEnd, (jobs,), (r.Placed(id, "attached", place),))

    def change(self, began: float, ended: float | None, *changes: r.Changed, count: int = 1) -> None:
        self.number += 1
        self.sink.put(r.Change("c", self.number, int(began * SECOND), "", changes))
        if ended is not None:
            self.sink.put(r.End("c", self.number, int(ended * SECOND), count))

    def remove(self, began: float, ended: float | None, id: int, waiters: int = 0, *, accepted: bool = True) -> None:
        self.change(began, ended, r.Changed("remove", id, waiters, "q"), count=int(accepted))

    def rules(self, began: float, ended: float | None, rules: Lanes | None) -> None:
        self.call((began, ended), r.SetLanes, r.End, (self.queue, rules))

    def note(self, at: float, kind: str, **fields: object) -> None:
        self.at = int(at * SECOND)
        self.recorder.note(kind, **fields)

    def broken(self, **options: Any) -> set[str]:
        return {each.rule for each in check(CallLog.of(self.sink), options=Options(**options)).violations}


def leased_again(began: float, ended: float, told: tuple[int, int] = (0, 1), rank: float = 0.0) -> Script:
    """Job 1 is taken for 10 s by a call from 1 to 2, and again by one from `began` to `ended`.

    `told` are the tries and crashes of the second lease, `rank` is its rank.
    """
    script = Script()
    script.told[1, 1], script.ranks[1, 1] = told, rank
    script.enqueue(0, 0.5, 1)
    script.take(1, 2, (1, 0))
    script.take(began, ended, (1, 1))
    return script


def test_a_lease_is_valid_from_the_end_of_its_take_until_its_start_and_the_lease() -> None:
    assert leased_again(3, 10.5).broken() == {"double lease", "attempts"}
    assert leased_again(3, 11.5).broken() == set()  # the second may have been handed out when the first was over
    assert leased_again(1.5, 10.5).broken() == {"attempts"}  # it is open which came first


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


def test_tries_are_the_retries_that_count_since_the_job_began_again() -> None:
    def told(tries: int, crashes: int, kind: r.Kind = "retry", counts: bool = True) -> set[str]:
        """Job 1 was taken, settled so, revived if it was buried, and taken again with these tries and crashes."""
        script = leased_again(5, 6, told=(tries, crashes))
        script.call((3, 4), r.Settle, r.RefusedEnd, ((r.Told("q", 1, 0, kind, counts=counts),),))
        if kind == "bury":
            script.change(4.2, 4.5, r.Changed("revive", 1))
        return script.broken()

    assert told(1, 0) == told(0, 0, counts=False) == told(0, 0, "bury") == set()
    assert told(0, 0) == told(0, 1) == told(2, 0) == {"attempts"}
    assert told(1, 0, counts=False) == told(1, 0, "bury") == told(0, 1, "bury") == {"attempts"}


def test_a_rank_may_change_with_a_retry() -> None:
    script = leased_again(5, 6, told=(1, 0), rank=7.0)
    script.settle(3, 4, 1, 0, "retry")
    assert script.broken() == {"content"}
    script.call((3, None), r.Settle, r.RefusedEnd, ((r.Told("q", 1, 0, "retry", rank=7.0),),))
    assert script.broken() == set()


def test_a_done_and_a_later_lease_cannot_both_be() -> None:
    script = leased_again(13, 17)
    script.settle(15, 16, 1, 0)
    assert "resurrected" in script.broken()


def test_a_take_with_unknown_end_explains_unseen_attempts() -> None:
    script = Script()
    script.enqueue(0, 0.5, 1)
    script.take(20, 21, (1, 1))
    assert script.broken() == {"attempts"}
    script.take(1, None)
    assert script.broken() == set()


def came_back_unseen(ended: float, lease: float = 10.0) -> Script:
    """Job 1 is ready from 0.5 on. A take from 1 on gives nothing, though its server was killed and it was sent again;
    later the job is handed out, with attempts 1."""
    script = Script()
    script.enqueue(0, 0.5, 1)
    script.note(1.1, "server down")
    script.take(1, ended, lease=lease, count=3)
    script.take(20, 21, (1, 1))
    return script


def test_a_take_that_lasted_as_long_as_its_lease_may_have_leased_what_it_did_not_tell() -> None:
    assert came_back_unseen(11).broken() == set()
    assert came_back_unseen(10.99).broken() == set()  # by the tolerance
    assert came_back_unseen(10.9).broken() == {"attempts"}
    assert came_back_unseen(11, lease=11.0).broken() == {"attempts"}


def test_a_shorter_one_may_not_though_its_server_was_killed_meanwhile() -> None:
    assert came_back_unseen(5).broken() == {"attempts"}
    assert came_back_unseen(5).broken(takes_anew=True) == set()


def test_what_was_leased_unseen_is_handed_out_only_when_that_lease_is_over() -> None:
    script = came_back_unseen(19, lease=5.0)
    script.enqueue(8, 8.5, 2)
    script.take(12, 12.5, (2, 1))
    assert script.broken() == {"attempts"}  # it was enqueued four seconds before, and the lease is of five


def test_a_take_leases_a_job_unseen_once_for_each_length_of_its_lease() -> None:
    def seen_with(attempts: int) -> set[str]:
        script = Script()
        script.enqueue(0, 0.5, 1)
        script.take(1, 7, lease=2.0, count=1)
        script.take(20, 21, (1, attempts))
        return script.broken()

    assert seen_with(3) == set()
    assert seen_with(4) == {"attempts"}


def test_a_take_that_is_sent_again_gives_no_job_that_was_replaced_meanwhile() -> None:
    script = Script()
    script.enqueue(0, 0.5, 1, key="k", on_duplicate="replace")
    script.take(1, 2, count=3)
    script.take(3, 4, (1, 1))
    assert "attempts" in script.broken()
    jobs = (r.Asked("q", 1, 1, key="k", on_duplicate="replace"),)
    script.call((1.5, 1.6), r.Enqueue, r.EnqueueEnd, (jobs,), (r.Placed(1, "replaced", 0),))
    assert "attempts" not in script.broken()


def test_the_line_need_not_be_empty_after_a_take_that_gave_less_if_it_outlasted_its_lease() -> None:
    def passed_over(ended: float) -> set[str]:
        script = Script()
        script.enqueue(0, 0.5, 1)
        script.take(1, ended, count=3)
        script.take(20, 21, (1, 0))
        return script.broken()

    assert passed_over(2) == {"order"}
    assert passed_over(11) == set()


def test_nor_if_a_job_was_removed_meanwhile() -> None:
    script = Script()
    script.enqueue(0, 0.4, 1)
    script.enqueue(0, 0.5, 2)
    script.take(1, 2, count=3)
    script.take(20, 21, (2, 0))
    assert script.broken() == {"order"}
    script.remove(1.5, 1.6, 1)
    assert script.broken() == set()


@pytest.mark.parametrize("seed", range(10))
def test_a_store_that_takes_anew_is_right_if_the_options_say_so(seed: int) -> None:
    verdict = judge(Plan(seed, again=0.2, store=TakesAnew), Options(takes_anew=True))
    assert verdict.ok, str(verdict)


def test_a_removal_counts_if_it_was_accepted() -> None:
    def removed(accepted: bool | None, later: float) -> set[str]:
        script = Script()
        script.enqueue(0, 0.5, 1)
        script.remove(1, None if accepted is None else 2, 1, accepted=bool(accepted))
        script.take(later, later + 1, (1, 0))
        return script.broken()

    assert removed(True, 3) == {"resurrected"}
    assert removed(True, 1.5) == set()  # it was running when it was removed
    assert removed(False, 3) == set()
    assert removed(None, 3) == set()


def test_an_outcome_of_a_lease_whose_job_was_removed_is_stale() -> None:
    script = Script()
    script.enqueue(0, 0.5, 1)
    script.take(1, 2, (1, 0))
    script.remove(3, 4, 1)
    script.settle(5, 6, 1, 0)
    assert script.broken() == {"stale token"}


def test_a_cancelled_job_is_seen_as_nothing_else_and_its_lease_is_over() -> None:
    def cancelled(*told: str) -> set[str]:
        script = Script()
        script.enqueue(0, 0.5, 1)
        script.take(1, 2, (1, 0))
        script.change(3, 4, r.Changed("cancel", 1, None, "q"))
        if "done" in told:
            script.settle(5, 6, 1, 0)
        for state in told:
            if state != "done":
                seen = r.Seen(1, "q", state, 0, 1, 1, 0, 0, 0.0)  # type: ignore[arg-type]
                script.call((7, 8), r.Look, r.LookEnd, (1,), (seen,))
        return script.broken()

    assert cancelled("cancelled") == cancelled() == set()
    assert cancelled("taken") == cancelled("ready") == {"resurrected"}
    assert cancelled("done") == {"stale token"}


def test_a_removal_that_overlooks_a_waiter_is_found() -> None:
    def removed(joined: float, seen: int) -> set[str]:
        script = Script()
        script.enqueue(0, 0.5, 1, key="k")
        script.join(1, joined, 1, waiter=7)
        script.remove(3, 4, 1, waiters=seen)
        return script.broken()

    assert removed(2, 0) == {"waiters"}
    assert removed(3.5, 0) == set()  # it may have joined after
    assert removed(2, 1) == set()


def test_a_look_names_all_waiters_after_those_it_knows() -> None:
    def looked(after: int, *names: int) -> set[str]:
        script = Script()
        script.enqueue(0, 0.5, 1, key="k")
        for place, waiter in enumerate((7, 8, 9)):
            script.join(1, 2, 1, waiter=waiter, place=place + 1)
        seen = (r.Seen(1, "q", "ready", 0, 1, 1, 3, 0, 0.0),)
        script.call((3, 4), r.Look, r.LookEnd, (None, "q", "k", after), seen, names)
        return script.broken()

    assert looked(0, 7, 8, 9) == looked(1, 8, 9) == looked(3) == set()
    assert looked(0, 7, 8) == looked(2) == looked(1, 7, 8) == {"waiters"}


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


def test_a_start_now_allows_what_comes_after_it() -> None:
    def taken_at(began: float, delayed: float = 1, count: int = 1) -> set[str]:
        """Job 1 is enqueued with a delay of a minute, started by a call from 5 to 6, and taken."""
        script = Script()
        script.enqueue(delayed, delayed + 0.5, 1, delay=60.0)
        script.change(5, 6, r.Changed("start now", 1), count=count)
        script.take(began, began + 0.5, (1, 0))
        return script.broken()

    assert taken_at(5.2) == taken_at(7) == set()
    assert taken_at(3) == {"early"}
    assert taken_at(7, count=0) == {"early"}, "it started nothing"
    assert taken_at(9, delayed=7) == {"early"}, "it was over when the job came"


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
    assert len(check(CallLog.of(script.sink)).violations) == 1


def test_a_budget_may_come_in_steps_or_all_at_once() -> None:
    def spend(*moments: float, **rhythm: float) -> set[str]:
        script = Script()
        script.note(0, "budget", name="api", capacity=20, refill=10, per=60, left=0, **rhythm)
        for moment in moments:
            script.note(moment, "spend", name="api", amount=10)
        return script.broken()

    assert spend(5) == spend(4.9, refill_in=5) == spend(4.9, reset_in=5) == {"budget"}
    assert spend(5, 65, refill_in=5) == spend(70, 71, refill_in=5) == set()
    assert spend(5, 6, refill_in=5) == spend(5, 65, 66, refill_in=5) == {"budget"}
    assert spend(5, 6, reset_in=5) == spend(5, 6, 65, 66, reset_in=5) == set()
    assert spend(5, 6, 7, reset_in=5) == {"budget"}
    assert spend(4.999, refill_in=5) == set()  # the tolerance between two clocks


def test_redelivery_is_counted_from_the_kill_of_its_holder() -> None:
    script = leased_again(12, 13)
    script.enqueue(0, 0.5, 2)
    script.take(1, 2, (2, 0))
    script.settle(2, 3, 2, 0, "retry")
    script.take(5, 6, (2, 1))
    script.note(4, "kill", client="c")
    script.note(4, "kill", client="another")
    assert redelivery(CallLog.of(script.sink)) == [(9.0, Lease("q", 1, 0, 0))]


def test_recovery_is_counted_to_the_next_take_that_gave_a_job() -> None:
    script = Script()
    script.enqueue(0, 0.5, 1)
    script.note(1, "server down")
    script.take(2, None, (1, 0))
    script.note(3, "server up")
    script.take(3.5, 3.6)
    script.take(3.7, 5.5, (1, 0))
    script.note(9, "server up")
    assert recovery(CallLog.of(script.sink)) == [2.5]


def in_lane(*takes: tuple[float, float], lease: float = 10.0) -> Script:
    """Jobs 1, 2, … of lane "x", each taken for 10 s by a call with these times."""
    script = Script()
    script.lane = "x"
    for id in range(1, len(takes) + 1):
        script.enqueue(0, 0.1, id)
    for id, (began, ended) in enumerate(takes, 1):
        script.take(began, ended, (id, 0), lease=lease)
    return script


@pytest.mark.parametrize(("rules", "rule"), [(Lanes(limit=1), "lanes"), (Lanes(total=1), "total")])
def test_more_leases_than_a_limit_are_found_only_where_they_were_surely_valid_together(rules: Lanes, rule: str) -> None:
    def broken(*takes: tuple[float, float], settled: float | None = None) -> set[str]:
        script = in_lane(*takes)
        script.rules(0.2, 0.3, rules)
        if settled is not None:
            script.settle(settled, settled + 1, 1, 0)
        return script.broken()

    assert broken((1, 2), (3, 4)) == {rule}
    assert broken((1, 2), (1.5, 2.5)) == {rule}  # whichever came first, the other came while it was leased
    assert broken((1, 2), (3, 4), settled=5) == {rule}
    assert broken((1, 2), (3, 4), settled=3.5) == set()  # it may have been done before the second was taken
    assert broken((1, 2), (10.5, 11.5)) == set()  # the lease of the first may have been over
    assert broken((1, 2), (10, 10.5)) == {rule}


def test_a_limit_is_one_that_may_have_been_in_force_at_the_last_take() -> None:
    def broken(*calls: tuple[float, float | None, Lanes | None]) -> bool:
        script = in_lane((1, 2), (3, 4))
        for call in calls:
            script.rules(*call)
        return bool(script.broken())

    one, two = Lanes(limit=1), Lanes(limit=1, limits={"x": 2})
    assert not broken()
    assert broken((0.2, 0.3, one))
    assert not broken((0.2, 3.5, one))  # the jobs may have been taken before
    assert not broken((4.1, 4.2, one))  # a lower limit ends no run
    assert not broken((0.2, 0.3, one), (2.5, 2.6, two))
    assert not broken((0.2, 0.3, one), (3.5, 4.5, two))  # it may have come in time
    assert not broken((0.2, 0.3, one), (0.4, None, two))  # it is not known when it came
    assert broken((0.2, 0.3, two), (2.5, 2.6, one))
    assert not broken((0.2, 0.5, two), (0.3, 0.6, one))  # it is open which came last
    assert not broken((0.2, 0.3, one), (0.4, 0.5, None))


def test_a_shared_limit_holds_for_the_queues_that_surely_share_it() -> None:
    def broken(*calls: tuple[str, float, float | None, Lanes | None]) -> set[str]:
        script = Script()
        script.lane = "x"
        for queue, began, ended, rules in calls:
            script.queue = queue
            script.rules(began, ended, rules)
        for id, script.queue in enumerate(("a", "b"), 1):
            script.enqueue(0.4, 0.5, id)
            script.take(id, id + 0.5, (id, 0))
        return script.broken()

    one, two, alone = Lanes(limit=1, shared="s"), Lanes(limit=2, shared="s"), Lanes(limit=1)
    assert broken(("a", 0.1, 0.2, one), ("b", 0.1, 0.2, one)) == {"shared lanes"}
    assert broken(("a", 0.1, 0.2, two), ("b", 0.1, 0.2, one)) == {"shared lanes"}  # the lowest limit holds
    assert not broken(("a", 0.1, 0.2, two), ("b", 0.1, 0.2, two))
    assert not broken(("a", 0.1, 0.2, one), ("b", 0.1, 0.2, alone))
    assert not broken(("a", 0.1, 0.2, one), ("b", 0.1, 0.2, Lanes(limit=1, shared="t")))
    assert not broken(("a", 0.1, 0.2, one), ("b", 0.1, 0.2, one), ("a", 0.25, 2.2, alone))  # it may have left in time
    assert not broken(("a", 0.1, 0.2, one), ("b", 0.1, None, one))  # it is not known when it came


def test_what_is_held_in_the_end_is_explained_by_a_full_lane() -> None:
    def broken(inside: int, *calls: tuple[float, float | None, Lanes | None], lane: str | None = "x") -> bool:
        script = Script()
        script.lane = "x"
        for call in calls:
            script.rules(*call)
        ready: State = "ready"
        states: list[State] = ["held", *[ready] * inside]
        jobs = {id: r.Seen(id, "q", state, 0, 1, id, 0, 0, 0.0, None, lane) for id, state in enumerate(states)}
        final = FinalState(jobs, {"q": QueueStats()})
        verdict = check(CallLog.of(script.sink), final, rules=["held"])
        return not verdict.ok

    one, two = Lanes(limit=1), Lanes(limit=2)
    assert not broken(1, (1, 2, one))
    assert broken(0, (1, 2, one))
    assert broken(1, (1, 2, one), (3, 4, two))
    assert not broken(1, (1, 2, one), (1.5, 4, two))
    assert not broken(1, (1, None, one), (3, 4, two))
    assert broken(1)
    assert broken(1, (1, 2, one), lane=None)


def test_what_is_held_in_the_end_may_be_held_by_a_queue_that_shares_the_limit() -> None:
    def broken(*states: State, shared: str = "s") -> bool:
        script = Script()
        for script.queue, name in (("a", "s"), ("b", shared)):
            script.rules(1, 2, Lanes(limit=1, shared=name))
        seen = [("a", "held"), *(("b", state) for state in states)]
        jobs = {
            id: r.Seen(id, queue, state, 0, 1, id, 0, 0, 0.0, None, "x")  # type: ignore[arg-type]
            for id, (queue, state) in enumerate(seen)
        }
        final = FinalState(jobs, {queue: QueueStats() for queue in "ab"})
        return not check(CallLog.of(script.sink), final, rules=["held"]).ok

    assert not broken("ready")
    assert not broken("taken")
    assert broken("dead")
    assert broken("ready", shared="t")
