"""`python -m benchmarks.peers.fire`: the same jobs, the same kills, and which queues have not done them all.

Two groups of worker processes run 2,000 short jobs. Ten times one group is killed by SIGKILL in the middle of its work
and started again at once, as a service manager would. Then they run undisturbed until everything is done or
the quiet time is over. Every run is noted in a file by the handler itself, so no queue is asked for its own opinion.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers import environments
from benchmarks.peers.environments import ADAPTERS, clean_environment
from benchmarks.peers.stores import PLACES

JOBS = 2000
KILLS = 10
QUIET = 120.0
RESULTS = Path(__file__).parent.parent / "results"


@dataclass(frozen=True)
class Rival:
    """A queue in the setting that its documentation gives against lost workers.

    `quiet` is how long it has for the rest after the last kill: less only where by its own code nothing comes later.
    """

    adapter: str
    storage: str
    title: str
    setting: str
    quiet: float = QUIET


RIVALS = (
    Rival("accoda", "redis", "Accoda", "leases of 2 s"),
    Rival("celery", "redis", "Celery", "acks_late, reject_on_worker_lost, prefetch 1, visibility timeout 10 s"),
    Rival("saq", "redis", "SAQ", "timeout 2 s, 100 retries, swept each second"),
    Rival("dramatiq", "redis", "Dramatiq", "heartbeat timeout 3 s, maintenance in one of ten commands"),
    Rival("rq", "redis", "RQ", "timeout 2 s, 100 retries, maintenance each second, worker TTL 20 s"),
    Rival("arq", "redis", "arq", "timeout 1 s, 100 tries"),
    Rival(
        "taskiq", "redis", "taskiq, stream",
        "acknowledged when executed, idle timeout 5 s (it looks for such jobs only after new ones came)", 30,
    ),
    Rival("huey", "redis", "Huey", "has none", 10),
    Rival("accoda", "postgres", "Accoda", "leases of 2 s"),
    Rival("procrastinate", "postgres", "Procrastinate", "heartbeat 1 s, stalled jobs retried by its periodic task"),
    Rival("pgqueuer", "postgres", "PgQueuer", "heartbeat timeout 3 s"),
    Rival("chancy", "postgres", "Chancy", "heartbeat timeout 3 s, recovery each second"),
    Rival("accoda", "sqlite", "Accoda", "leases of 2 s"),
    Rival("huey", "sqlite", "Huey", "has none", 10),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one queue made of it. `seconds` is from the last kill to the last job, or to the end of the quiet time."""

    title: str
    version: str
    storage: str
    setting: str
    jobs: int
    kills: int
    missing: int
    repeated: int
    seconds: float
    quiet: float


class Group:
    """One worker of a rival, with whatever processes it forks."""

    def __init__(self, command: list[str], environment: dict[str, str], errors: int) -> None:
        self._command = command
        self._environment = environment
        self._errors = errors
        self.start()

    def start(self) -> None:
        self._leader = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
            start_new_session=True, env=self._environment,
        )  # fmt: skip

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._leader.pid, signal.SIGKILL)
        self._leader.wait()


def runs(diary: Path, what: str) -> Counter[int]:
    """How often each number began, or ended."""
    lines = diary.read_text().splitlines() if diary.exists() else []
    return Counter(int(line.split()[1]) for line in lines if line.startswith(what))


def under_fire(rival: Rival, url: str, jobs: int, kills: int) -> Outcome:
    """Fill, kill, wait, count."""
    with tempfile.TemporaryDirectory(prefix="accoda-fire-") as folder, tempfile.TemporaryFile() as errors:
        diary = Path(folder) / "runs.txt"
        order = json.dumps({"url": url, "count": jobs, "diary": str(diary)})
        command = [environments.python_of(rival.adapter), str(ADAPTERS / f"fire_{rival.adapter}.py")]
        environment = clean_environment(rival.adapter)
        subprocess.run([*command, "fill", order], check=True, stderr=errors, timeout=120, env=environment)
        groups = [Group([*command, "work", order], environment, errors.fileno()) for _ in range(2)]
        try:
            done = shoot(groups, diary, jobs, kills)
            begun = time.monotonic()
            missing, seconds = wait(diary, jobs, begun, rival.quiet)
        finally:
            for group in groups:
                group.kill()
        repeated = sum(count > 1 for count in runs(diary, "began").values())
    version = " + ".join(environments.versions(rival.adapter).values())
    found = jobs, done, missing, repeated, seconds, rival.quiet
    return Outcome(rival.title, version, rival.storage, rival.setting, *found)


def shoot(groups: list[Group], diary: Path, jobs: int, kills: int) -> int:
    """Kill one group after the other, each time when a further share of the jobs is done; count the kills."""
    chance = random.Random(7)
    for number in range(kills):
        share = (number + 1) * jobs * 0.9 / (kills + 1)
        deadline = time.monotonic() + 30
        while len(runs(diary, "ended")) < share and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.1))
        groups[number % len(groups)].kill()
        groups[number % len(groups)].start()
    return kills


def wait(diary: Path, jobs: int, begun: float, quiet: float) -> tuple[int, float]:
    """Until all are done, or the quiet time is over; how many are missing, and how long it took."""
    while (missing := jobs - len(runs(diary, "ended"))) and time.monotonic() - begun < quiet:
        time.sleep(0.2)
    return missing, time.monotonic() - begun


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as Markdown."""
    lines = [
        "| queue | storage | setting | jobs | kills | not done | ran more than once | done after the last kill |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in outcomes:
        name = f"**{one.title}**" if one.title == "Accoda" else f"{one.title} {one.version}"
        end = f"{one.seconds:.1f} s" if not one.missing else f"not within {one.quiet:.0f} s"
        lines.append(
            f"| {name} | {one.storage} | {one.setting} | {one.jobs:,} | {one.kills} | {one.missing} "
            f"| {one.repeated} | {end} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.fire", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--peers", default="", help="names with commas between them (all)")
    given = parser.parse_args()
    names = {name for name in given.peers.split(",") if name}
    rivals = [rival for rival in RIVALS if not names or rival.adapter in names]
    outcomes = []
    for storage in dict.fromkeys(rival.storage for rival in rivals):
        with PLACES[storage]() as place:
            for rival in (rival for rival in rivals if rival.storage == storage):
                print(f"{rival.title} on {storage}: {rival.setting}", file=sys.stderr, flush=True)
                outcomes.append(under_fire(rival, place.fresh(), given.jobs, given.kills))
                print(f"  {outcomes[-1]}", file=sys.stderr, flush=True)
    print(table(outcomes))
    if not names and given.jobs >= JOBS and given.kills >= KILLS:
        (RESULTS / "fire.md").write_text(table(outcomes))
        (RESULTS / "fire.json").write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n")


if __name__ == "__main__":
    main()
