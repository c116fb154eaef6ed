"""What a run came to: for people in a terminal of 80 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import msgspec

from accoda.payload import encode
from accoda.retry import QUARANTINED
from proof.chaos.figures import Spread, ran_again, recoveries, redeliveries
from proof.chaos.fleet import Member
from proof.chaos.plan import Plan
from proof.chaos.settings import FLAKY_BURY, POISON
from proof.checker import CallLog, FinalState, Verdict

RESULTS = Path(__file__).parent / "results"
WIDTH = 80
MOST_SHOWN = 20

HEADLINES = {
    "lost": ("lost",),
    "double leases": ("double lease",),
    "stale outcomes accepted": ("stale token",),
    "ended by another job's lease": ("own lease",),
    "unexplained duplicates": ("done twice", "runs", "attempts"),
    "lanes broken": ("lanes", "shared lanes", "total", "held"),
    "flows broken": ("joins", "nodes", "results", "reports", "flows end"),
}
"""The figures of the promise, and the rules whose violations they count."""


@dataclass
class Run:
    """What is known after a run."""

    plan: Plan
    folder: Path
    history: CallLog
    final: FinalState
    verdict: Verdict
    most_in_a_lane: int
    strikes: Counter[str]
    members: Sequence[Member]
    drained: bool
    late: Sequence[str]
    hand_restarts: int
    failures: Sequence[str]
    seconds: float


class Report(msgspec.Struct):
    """All figures. `problems` are the violations, and whatever else a run must not end with."""

    storage: str
    seed: int
    seconds: float
    jobs: int
    runs: int
    flows: int
    joins: int
    in_lanes: int
    most_in_a_lane: int
    held: int
    worker_kills: int
    kills_by_point: dict[str, int]
    server_kills: int
    other_faults: dict[str, int]
    promises: dict[str, int]
    hand_restarts: int
    quarantined: int
    ran_more_than_once: int
    refused_outcomes: int
    redelivery: Spread
    redelivery_with_outage: Spread
    recovery: Spread
    could_not_start: int
    poison: dict[str, int]
    problems: list[str]
    folder: str

    @property
    def ok(self) -> bool:
        return not self.problems


def make_report(run: Run) -> Report:
    """The figures of a run."""
    notes = Counter(note.kind for note in run.history.notes)
    points = Counter(str(note.fields["how"]) for note in run.history.notes if note.kind == "kill")
    points["with all others"] = sum(note.kind == "all killed" and _worked(note.client) for note in run.history.notes)
    workers = [member for member in run.members if member.role.works]
    kills = sum(note.kind == "server down" and note.fields.get("how") == "kill" for note in run.history.notes)
    clear, clouded = redeliveries(run.history, run.plan.lease)
    others = Counter(run.strikes)
    for name in [name for name in others if name.startswith("kill") or name in ("server kill", "fail-over")]:
        del others[name]
    counts = run.verdict.counts
    return Report(
        storage=run.plan.storage,
        seed=run.plan.seed,
        seconds=round(run.seconds, 1),
        jobs=counts["done"] + counts["dead"] - counts["inboxes done"],
        runs=counts["runs"],
        flows=counts["flows"],
        joins=counts["joins"],
        in_lanes=counts["ran in lanes"],
        most_in_a_lane=run.most_in_a_lane,
        held=counts["held"],
        worker_kills=sum(member.ended[-9] for member in workers),
        kills_by_point={name: count for name, count in points.most_common() if count},
        server_kills=kills,
        other_faults={**others, "producer kill": notes["producer kill"]},
        promises={**headlines(run.verdict), "dead that never failed": len(wrongly_dead(run))},
        hand_restarts=run.hand_restarts,
        quarantined=sum(seen.state == "delayed" and seen.crashes >= QUARANTINED for seen in run.final.jobs.values()),
        ran_more_than_once=ran_again(run.history),
        refused_outcomes=counts["refused outcomes"],
        redelivery=clear,
        redelivery_with_outage=clouded,
        recovery=recoveries(run.history),
        could_not_start=sum(len(member.left) for member in run.members) - len(deserters(run)),
        poison=_poison(run),
        problems=problems(run),
        folder=str(run.folder),
    )


def headlines(verdict: Verdict) -> dict[str, int]:
    """How often each promise was broken. Rules that belong to no headline are counted as "other rules broken"."""
    broken = Counter(violation.rule for violation in verdict.violations)
    found = {name: sum(broken[rule] for rule in rules) for name, rules in HEADLINES.items()}
    found["other rules broken"] = broken.total() - sum(found.values())
    return found


def problems(run: Run) -> list[str]:
    found = [str(violation) for violation in run.verdict.violations]
    found += [f"{rule}: there are more violations than were counted" for rule in run.verdict.cut]
    if not run.drained:
        found.append("not all jobs were finished when all was calm again")
    found += [f"job {id} of {queue} is dead, though its handler never failed" for id, queue in wrongly_dead(run)]
    found += [f"{client} did not leave after SIGTERM" for client in run.late]
    found += [f"{client} ended by itself, though it was not killed" for client in deserters(run)]
    if run.hand_restarts:
        found.append(f"workers had to be restarted by hand {run.hand_restarts} times")
    return [*found, *run.failures]


def wrongly_dead(run: Run) -> list[tuple[int, str]]:
    """Only a handler that asks for it, as in `failing`, and `max_crashes`, which `poison` has, bury jobs here."""
    asked_for = crc32(encode(FLAKY_BURY))
    dead = (seen for seen in run.final.jobs.values() if seen.state == "dead")
    return [
        (seen.id, seen.queue) for seen in dead if seen.queue not in ("poison", "failing") and seen.check != asked_for
    ]


def deserters(run: Run) -> list[str]:
    """Processes that were at work and ended by themselves. One that finds the store away when it starts may do so."""
    worked = {call.client for call in run.history.calls if call.ok and call.verb in ("take", "enqueue")}
    return [client for member in run.members for client in member.left if client in worked]


def _worked(client: str) -> bool:
    return not client.startswith("producer")


def _poison(run: Run) -> dict[str, int]:
    """What lies with the dead of the queue `poison`. A good neighbour may be there if its workers were killed, too."""
    mark = crc32(encode(POISON))
    dead = [seen.check == mark for seen in run.final.jobs.values() if (seen.queue, seen.state) == ("poison", "dead")]
    return {"poison jobs buried": sum(dead), "good neighbours buried": len(dead) - sum(dead)}


def show(report: Report) -> str:
    """The report for people."""
    rows = [
        ("jobs", f"{report.jobs:,}"),
        ("runs of jobs", f"{report.runs:,}"),
        ("flows", f"{report.flows:,}"),
        ("joins fired", f"{report.joins:,}"),
        ("jobs of lanes that ran", f"{report.in_lanes:,}"),
        ("  most of a lane at once, held at end", f"{report.most_in_a_lane}, {report.held}"),
        ("worker kills", f"{report.worker_kills:,}"),
        *((f"  {name}", f"{count:,}") for name, count in report.kills_by_point.items()),
        (_server_kills(report.storage), f"{report.server_kills:,}"),
        *((name, f"{count:,}") for name, count in sorted(report.other_faults.items()) if count),
        *((name, f"{count:,}") for name, count in report.promises.items()),
        ("hand restarts", f"{report.hand_restarts:,}"),
        ("quarantined in the end", f"{report.quarantined:,}"),
        ("ran again after a fault (explained)", f"{report.ran_more_than_once:,}"),
        ("outcomes refused as late", f"{report.refused_outcomes:,}"),
        ("starts while the store was away", f"{report.could_not_start:,}"),
        ("redelivery after a kill, of the lease", _shares(report.redelivery)),
        ("  with an outage in between", _shares(report.redelivery_with_outage)),
        ("server back to consuming again", _seconds(report.recovery)),
    ]
    rows += [(name, f"{count:,}") for name, count in report.poison.items()]
    title = f"{report.storage}, seed {report.seed}, {report.seconds:.0f} s"
    lines = [title, "=" * len(title)]
    for name, value in rows:
        lines += textwrap.wrap(f"{name:<38}{value}", WIDTH, subsequent_indent=" " * 38)
    return "\n".join([*lines, "", *_ending(report)])


def _ending(report: Report) -> list[str]:
    if report.ok:
        return ["no violation"]
    lines = [f"{len(report.problems)} VIOLATIONS; the files are in {report.folder}"]
    for problem in report.problems[:MOST_SHOWN]:
        for line in problem.splitlines():
            lines += textwrap.wrap(line, WIDTH, subsequent_indent="      ")
    if len(report.problems) > MOST_SHOWN:
        lines.append(f"… and {len(report.problems) - MOST_SHOWN} more, in the JSON file")
    return lines


def _server_kills(storage: str) -> str:
    return "all processes killed at once" if storage == "sqlite" else "server kills"


def _shares(spread: Spread) -> str:
    if spread.median is None or spread.p99 is None:
        return "none"
    return f"median {spread.median:.0%}, 99th percentile {spread.p99:.0%} ({spread.count:,} jobs)"


def _seconds(spread: Spread) -> str:
    if spread.median is None or spread.worst is None:
        return "none"
    return f"median {spread.median:.2f} s, worst {spread.worst:.2f} s"


def save(report: Report, folder: Path = RESULTS) -> Path:
    """Write it as JSON."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{report.storage}.json"
    body = msgspec.to_builtins(report)
    del body["folder"]  # where it was is of no use to others
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n")
    return path
