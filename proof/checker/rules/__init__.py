"""The rules, by name, each with its promise in one sentence."""

from __future__ import annotations

from proof.checker.rules.attempts import attempts_right
from proof.checker.rules.base import Broken, Options, Rule, Violation
from proof.checker.rules.budget import within_budget
from proof.checker.rules.content import content_kept, ids_grow, versions_unique
from proof.checker.rules.counts import counters_conserve
from proof.checker.rules.demand import no_waiter_forgotten
from proof.checker.rules.ends import done_twice, from_nowhere, lost, resurrected, told_cancelled
from proof.checker.rules.flows import ends_reported, flows_end, joins_fire_once, only_nodes_run, results_right
from proof.checker.rules.lanes import nothing_held_for_ever, within_limits, within_shared_limits, within_total
from proof.checker.rules.leases import double_lease, own_lease, stale_token, tokens_grow
from proof.checker.rules.runs import runs_explained
from proof.checker.rules.timing import in_order, never_early

_RULES = (
    Rule("lost", "Every acknowledged job is there in the end, or done, cancelled or removed.", lost, needs_final=True),
    Rule("from nowhere", "Every job that is seen was enqueued.", from_nowhere),
    Rule("double lease", "No two leases of a job are valid at once, and none is handed out twice.", double_lease),
    Rule("tokens grow", "The attempts of a job never fall.", tokens_grow),
    Rule("stale token", "No outcome or extension of a lease that has ended is accepted.", stale_token),
    Rule("own lease", "A job is ended only by a lease that was taken for that very job.", own_lease),
    Rule("done twice", "A job is done once.", done_twice),
    Rule("cancelled", "A lease is refused as cancelled only if its job was cancelled.", told_cancelled),
    Rule(
        "resurrected",
        "What is done, cancelled or removed stays so; a dead job comes back only by revival.",
        resurrected,
    ),
    Rule("attempts", "Attempts, crashes and tries are as many as returns explain.", attempts_right),
    Rule("early", "No job is taken before its start time.", never_early),
    Rule("order", "A take never passes over a job that comes before those it hands out.", in_order),
    Rule("waiters", "No waiter that joined a job is overlooked when it is done or changed.", no_waiter_forgotten),
    Rule("lanes", "No more jobs of a lane are leased at once than its limit.", within_limits),
    Rule(
        "shared lanes", "No more jobs of a lane are leased at once in queues that share a limit.", within_shared_limits
    ),
    Rule("total", "No more jobs of a queue are leased at once than its total.", within_total),
    Rule("held", "No job is held in the end while its lane has room.", nothing_held_for_ever, needs_final=True),
    Rule("budget", "What a take hands out costs at most `max_cost`; no budget is overspent.", within_budget),
    Rule("counters", "The store's figures fit what its clients were told.", counters_conserve, needs_final=True),
    Rule("runs", "A handler runs once for each lease, where the lease is.", runs_explained),
    Rule("content", "Data, rank and lane come out as they were put in.", content_kept),
    Rule("ids", "Ids of a queue grow in the order of the calls.", ids_grow),
    Rule(
        "joins",
        "Every node of a flow is started once, after the nodes before it have ended as it needs.",
        joins_fire_once,
        needs_final=True,
    ),
    Rule(
        "nodes", "A node has one job, and no job runs as a node that was not started.", only_nodes_run, needs_final=True
    ),
    Rule("results", "A node is handed the results that were accepted.", results_right, needs_final=True),
    Rule(
        "reports",
        "Every accepted end of a flow's job is reported to it, and nothing else.",
        ends_reported,
        needs_final=True,
    ),
    Rule("flows end", "No flow waits for ever, and each is what its nodes make of it.", flows_end, needs_final=True),
    Rule("versions", "No two writes of a document get the same version.", versions_unique),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _RULES}

__all__ = ["RULES", "Broken", "Options", "Rule", "Violation"]
