"""What a run has found so far, kept line by line: an interrupted run goes on with `--continue`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.findings import Entry, Measured
from benchmarks.peers.peer import Peer


class NothingToContinue(Exception):
    """There is no run that was interrupted, or it cannot be read; says what to do."""


@dataclass(frozen=True)
class Plan:
    """What a run does. `whole`: nothing was left out, so its results may be published."""

    storages: Sequence[str]
    names: Sequence[str]
    measures: Sequence[str]
    rounds: int
    sample: dict[str, Any]
    whole: bool


@dataclass(frozen=True)
class Step:
    """One measurement of one peer."""

    storage: str
    name: str
    measure: str
    round: int


@dataclass(frozen=True)
class Result:
    """What came of a step: values, or nothing (`none`), or a failure, or it was left out because of an earlier one."""

    step: Step
    seconds: float
    values: dict[str, Any] | None = None
    none: bool = False
    failed: str = ""


class Journal:
    """A file of lines: first the plan, then what is known of the storages and the results, as they come."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.results: list[Result] = []
        self.places: dict[str, dict[str, Any]] = {}  # about, machine, date and versions of a storage

    @classmethod
    def begin(cls, path: Path, plan: Plan) -> Journal:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"plan": asdict(plan)}) + "\n")
        return cls(path, plan)

    @classmethod
    def resume(cls, path: Path) -> Journal:
        """Read what was kept. A last line that was cut off is dropped: that step is done again."""
        if not path.exists():
            raise NothingToContinue(f"there is no interrupted run in {path}; start one without --continue")
        whole, _, _ = path.read_text().rpartition("\n")
        first, *rest = whole.splitlines() or [""]
        try:
            journal = cls(path, Plan(**json.loads(first)["plan"]))
            for line in rest:
                journal._read(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise NothingToContinue(f"{path} cannot be read ({error}); remove it and start anew") from None
        path.write_text(whole + "\n")
        return journal

    def _read(self, facts: dict[str, Any]) -> None:
        if "place" in facts:
            self.places[facts["storage"]] = facts["place"]
        else:
            self.results.append(Result(**{**facts, "step": Step(**facts["step"])}))

    def note_place(self, storage: str, place: dict[str, Any]) -> None:
        self.places[storage] = place
        self._write({"storage": storage, "place": place})

    def note(self, result: Result) -> None:
        self.results.append(result)
        self._write(asdict(result))

    def _write(self, facts: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def of(self, storage: str, name: str, measure: str) -> Iterator[Result]:
        key = (storage, name, measure)
        return (each for each in self.results if (each.step.storage, each.step.name, each.step.measure) == key)

    def is_done(self, step: Step) -> bool:
        return any(each.step == step for each in self.results)

    def is_hopeless(self, step: Step) -> bool:
        """Whether it failed before and never succeeded, or the peer has no such thing: another try costs time."""
        earlier = list(self.of(step.storage, step.name, step.measure))
        return bool(earlier) and not any(each.values for each in earlier)

    def measured(self, storage: str, name: str, measure: str) -> Measured:
        found = {each.step.round: each for each in self.of(storage, name, measure)}
        rounds = [found[number].values if number in found else None for number in range(self.plan.rounds)]
        good = any(values is not None for values in rounds)
        failed = "" if good else next((each.failed for each in found.values() if each.failed), "")
        return Measured(rounds, any(each.none for each in found.values()), failed)

    def entry(self, peer: Peer, measures: Sequence[str]) -> Entry:
        version = self.places.get(peer.storage, {}).get("versions", {}).get(peer.adapter, "")
        found = {measure: self.measured(peer.storage, peer.name, measure) for measure in measures}
        return Entry(
            peer.name, peer.title, version, peer.setting, peer.ours, peer.is_ceiling, peer.python, peer.durable,
            peer.safe, peer.loses, {measure: values for measure, values in found.items() if values.rounds},
        )  # fmt: skip
