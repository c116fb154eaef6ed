"""That flows keep their promises. A flow's log says what its coordinators did; the calls say what they had to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from accoda.flows.log import key_of
from accoda.model import RESULT_IN_REPORT, Report
from proof.checker.call_log import Call
from proof.checker.flow_logs import Replay
from proof.checker.ledger import Ledger, Life
from proof.checker.rules.base import Broken, Options
from proof.flows.model import BAD, LIVE

_KIND = {"done": "done", "bury": "dead"}


def joins_fire_once(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """In the log each node is started once, when the nodes before it have ended as it needs, and none is forgotten."""
    for found in ledger.flows.values():
        for text in found.wrong:
            yield Broken(None, f"{found.flow.id}: {text}")


def only_nodes_run(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A node has one job, and the flow has started it."""
    jobs: dict[tuple[str, str], set[int]] = defaultdict(set)
    for life, flow, node in _members(ledger):
        jobs[flow.flow.id, node].add(life.id)
        known = flow.model.nodes.get(node)
        if flow.at_rest and (known is None or not known.started):
            yield Broken(life.id, f"{flow.flow.id}: ran as {node}, which the flow has not started", _calls(life))
    for (id, node), ids in jobs.items():
        if len(ids) > 1:
            yield Broken(max(ids), f"{id}: {node} has run as several jobs: {sorted(ids)}")


def results_right(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A node is handed what the nodes before it returned when that was accepted, all of it and nothing else."""
    for life, flow, node in _members(ledger):
        wanted = flow.handed.get(node)
        for lease in life.leases if wanted is not None else ():
            given = lease.taken.flow.results if lease.taken.flow is not None else None
            if given is None or wanted is None:
                continue
            wrong = sorted(
                name
                for name in {*given, *wanted}
                if name not in given or name not in wanted or wanted[name] not in (None, given[name])
            )
            if wrong:
                text = f"{flow.flow.id}: {node} was handed other results of {', '.join(wrong)} than were accepted"
                yield Broken(life.id, text, (lease.call,))


def ends_reported(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """Every end and every revival of a flow's job that was accepted is in the flow's log, and nothing else is."""
    for found in ledger.flows.values():
        for report in found.reports:
            yield from _unfounded(ledger, found, report)
    for life, flow, node in _members(ledger):
        told = {(each.kind, each.attempts) for each in flow.reports if each.id == life.id}
        kinds = {kind for kind, _ in told}
        for outcome in life.outcomes:
            kind = _KIND.get(outcome.kind)
            if outcome.sure and kind is not None and (kind, outcome.attempts) not in told:
                text = f"{flow.flow.id}: {node} is {kind}, but that was not reported"
                yield Broken(life.id, text, (outcome.call,))
        ended = any(outcome.kind == "done" for outcome in life.outcomes)
        for removal in life.removals:
            kind = "cancelled" if removal.change.kind == "cancel" else "removed"
            if removal.sure and not ended and len(life.removals) == 1 and kind not in kinds:
                yield Broken(life.id, f"{flow.flow.id}: {node} was {kind}, but that was not reported", (removal.call,))
        for revival in life.revivals:
            if revival.sure and "revived" not in kinds:
                yield Broken(life.id, f"{flow.flow.id}: {node} was revived, but that was not reported", (revival.call,))


def _unfounded(ledger: Ledger, found: Replay, report: Report) -> Iterator[Broken]:
    """A report of an outcome that no call can have made, or with another result."""
    if report.kind not in ("done", "dead") or report.id in ledger.damaged:
        return
    life = ledger.lives.get(report.id)
    outcomes = [
        each
        for each in (life.outcomes if life is not None else ())
        if _KIND.get(each.kind) == report.kind and each.attempts == report.attempts
    ]
    what = f"{found.flow.id}: the log says that {report.key} (attempts {report.attempts}) is {report.kind}"
    if not outcomes:
        yield Broken(report.id, f"{what}, but no such outcome was accepted")
    elif report.kind == "done" and report.size <= RESULT_IN_REPORT:
        told = found.results.get(report.key.removeprefix(f"{found.flow.id}/"))
        if report.size >= 0 and told is not None and told not in [each.told.result for each in outcomes]:
            yield Broken(report.id, f"{what}, with another result", tuple(each.call for each in outcomes))


def flows_end(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A flow that runs has something to wait for, and one that has ended is what its nodes make of it."""
    if ledger.final is None:
        return
    live = {each.key for each in ledger.final.jobs.values() if each.state in ("ready", "delayed", "taken")}
    for id, found in ledger.flows.items():
        if not found.at_rest:
            continue
        states, wanted = found.model.states(), found.model.state()
        for node, state in states.items():
            if state == LIVE and key_of(id, node) not in live:
                yield Broken(None, f"{id} waits for ever: {node} was started, has not ended, and has no job")
            if found.flow.states.get(node) != state:
                yield Broken(None, f"{id}: {node} is {found.flow.states.get(node)}, but must be {state}")
        if found.flow.state != wanted:
            yield Broken(None, f"{id} is {found.flow.state}, but must be {wanted}: {states}")
        if wanted == "failed":
            yield from _without_cause(ledger, found, states)


def _without_cause(ledger: Ledger, found: Replay, states: dict[str, str]) -> Iterator[Broken]:
    """What a failed flow says is dead is there, so that it can be revived."""
    assert ledger.final is not None
    if not any(state in BAD for state in states.values()):
        yield Broken(None, f"{found.flow.id} has failed, but no node of it has")
    for node, state in states.items():
        seen = ledger.final.jobs.get(found.ids.get(node, 0))
        if state == "dead" and (seen is None or seen.state != "dead"):
            yield Broken(found.ids.get(node), f"{found.flow.id}: {node} is dead, but its job is not there")


def _members(ledger: Ledger) -> Iterator[tuple[Life, Replay, str]]:
    """The jobs that were taken as jobs of a flow that is still known."""
    if not ledger.flows:
        return
    for life in ledger.lives.values():
        place = life.leases[0].taken.flow if life.leases else None
        found = None if place is None else ledger.flows.get(place.id)
        if place is not None and found is not None:
            yield life, found, place.node


def _calls(life: Life) -> tuple[Call, ...]:
    return tuple(lease.call for lease in life.leases[:3])
