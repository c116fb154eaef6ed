"""`python -m benchmarks.peers`: drain a full queue with Accoda and with other queues for Python, in turns.

Each peer is installed once into an environment of its own. Prints a table for each storage; a run of everything, with
at least three rounds, is also written to benchmarks/results/. docs/benchmarks.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from accoda.testing.servers.process import ServerMissing
from benchmarks.peers import environments
from benchmarks.peers.catalogue import PEERS, STORAGES, Peer, chosen
from benchmarks.peers.drain import DrainFailed, drain
from benchmarks.peers.report import Findings, Row, save, text
from benchmarks.peers.stores import PLACES, Place

FEWEST = 100  # jobs: less would measure the first breath


@dataclass
class Course:
    """What one peer has shown so far."""

    peer: Peer
    jobs: int
    version: str = ""
    rates: list[float | None] = field(default_factory=list)
    failed: str = ""

    def row(self) -> Row:
        p = self.peer
        return Row(
            p.storage, p.name, p.title, self.version, p.setting, self.jobs, p.ours, p.durable, self.rates, self.failed
        )


def prepare(courses: Sequence[Course]) -> None:
    """Make the environments that are missing and note the versions in them."""
    versions: dict[str, str] = {}
    failed: dict[str, str] = {}
    for adapter in dict.fromkeys(course.peer.adapter for course in courses):
        if not environments.is_made(adapter):
            tell(f"installing {adapter} into an environment of its own")
        try:
            versions[adapter] = " + ".join(environments.versions(adapter).values())
        except environments.NotInstalled as error:
            failed[adapter] = str(error)
            tell(f"{adapter}: {error}")
    for course in courses:
        course.version = versions.get(course.peer.adapter, "")
        course.failed = failed.get(course.peer.adapter, "")


def measure(courses: Sequence[Course], place: Place, rounds: int) -> None:
    """Every peer once in each round. Neighbours stay neighbours, but each round begins with another peer."""
    for number in range(rounds):
        start = number * len(courses) // rounds
        for course in (*courses[start:], *courses[:start]):
            title = f"round {number + 1} of {rounds}, {course.peer.storage}: {course.row().label}"
            course.rates.append(None if course.failed else measure_one(course, place, title))


def measure_one(course: Course, place: Place, title: str) -> float | None:
    """One drain. A peer that fails is not tried again: it would cost everybody else the time."""
    url = place.fresh()
    begun = time.monotonic()
    try:
        rate = drain(course.peer, url, course.jobs, lambda: place.settled(url)).rate
    except DrainFailed as error:
        course.failed = str(error)
        tell(f"{title}: {error}")
        return None
    tell(f"{title}: {rate:,.0f}/s ({time.monotonic() - begun:.1f} s in all)")
    return rate


def measure_all(courses: Sequence[Course], rounds: int) -> Findings:
    cores, system = os.cpu_count(), f"Python {platform.python_version()} on {platform.system()}"
    busy = f"load average at the start {os.getloadavg()[0]:.1f}"  # much above 0: others shared the machine
    how = f"Rates are medians of {rounds} round(s), in which all peers took turns."
    about = {"machine": f"{cores} cores, {system}, {busy}. {how}"}
    for storage in dict.fromkeys(course.peer.storage for course in courses):
        here = [course for course in courses if course.peer.storage == storage]
        try:
            with PLACES[storage]() as place:
                about[storage] = place.about
                measure(here, place, rounds)
        except ServerMissing as missing:
            for course in here:
                course.failed = str(missing)
    return Findings(about, [course.row() for course in courses])


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def words(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """A type for argparse: words with commas between them, each one of the allowed."""

    def read(given: str) -> list[str]:
        found = [word.strip() for word in given.split(",") if word.strip()]
        if unknown := [word for word in found if word not in allowed]:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; choose from {', '.join(allowed)}")
        return found

    return read


def at_least_one(given: str) -> int:
    number = int(given)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def options() -> argparse.Namespace:
    names = sorted({name for peer in PEERS for name in (peer.name, peer.adapter)})
    most = max(peer.jobs for peer in PEERS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--storage", type=words(STORAGES), default=[], help=f"of {', '.join(STORAGES)} (all)")
    parser.add_argument("--peers", type=words(names), default=[], help=f"of {', '.join(names)} (all)")
    parser.add_argument("--rounds", type=at_least_one, default=3, help="how often each is measured (3)")
    parser.add_argument(
        "--jobs", type=at_least_one, default=most,
        help=f"for the fastest ({most:,}); the others get fewer, in proportion to their speed",
    )  # fmt: skip
    return parser.parse_args()


def main() -> None:
    given = options()
    share = given.jobs / max(peer.jobs for peer in PEERS)
    peers = chosen(given.storage or STORAGES, given.peers)
    courses = [Course(peer, max(FEWEST, round(peer.jobs * share))) for peer in peers]
    begun = time.monotonic()
    prepare(courses)
    findings = measure_all(courses, given.rounds)
    print(text(findings))
    tell(f"{time.monotonic() - begun:.0f} s")
    if not given.storage and not given.peers and given.rounds >= 3:
        save(findings)


if __name__ == "__main__":
    main()
