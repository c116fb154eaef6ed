"""Holds a log against the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from accoda.errors import InvalidInput
from proof.checker.call_log import CallLog, no_collection
from proof.checker.figures import counted
from proof.checker.final import FinalState
from proof.checker.ledger import Ledger, gather
from proof.checker.rules import RULES, Options, Rule, Violation

ALL = tuple(RULES)


class Verdict(Struct):
    """What was broken, and what the log came to.

    `skipped` are the rules that need the final state, where none was given; `cut` are those that were broken so often
    that the rest is left out.
    """

    violations: list[Violation]
    counts: dict[str, int]
    skipped: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        lines = [f"{name}: {count}" for name, count in self.counts.items()]
        lines += [f"not checked without the final state: {name}" for name in self.skipped]
        lines += map(str, self.violations)
        lines += [f"{name}: there are more" for name in self.cut]
        lines.append("no violation" if self.ok else f"{len(self.violations)} violations")
        return "\n".join(lines)


def check(
    log: CallLog,
    final: FinalState | None = None,
    rules: Iterable[str] = ALL,
    options: Options | None = None,
    most: int = 100,
) -> Verdict:
    """Look for everything in the log that breaks one of the rules, which are named as in `RULES`.

    The log must begin with an empty store, and so must each of its lives, see `CallLog.lives`. `most` is how many
    violations of one rule are listed.
    """
    chosen = [_rule(name) for name in rules]
    options = options or Options()
    with no_collection():
        verdict, counts = Verdict([], {}), Counter[str]()
        *earlier, last = log.lives()
        for life in earlier:
            ledger = gather(life, None)
            counts.update(counted(ledger))
            _judge(verdict, ledger, [rule for rule in chosen if not rule.needs_final], options, most)
        ledger = gather(last, final)
        counts.update(counted(ledger))
        verdict.counts = dict(counts)
        verdict.skipped = tuple(rule.name for rule in chosen if rule.needs_final and final is None)
        _judge(verdict, ledger, [rule for rule in chosen if rule.name not in verdict.skipped], options, most)
    return verdict


def _judge(verdict: Verdict, ledger: Ledger, rules: Iterable[Rule], options: Options, most: int) -> None:
    for rule in rules:
        found = list(islice(rule.find(ledger, options), most + 1))
        verdict.violations += [Violation(rule.name, each.job, each.text, each.calls) for each in found[:most]]
        if len(found) > most:
            verdict.cut += (rule.name,)


def _rule(name: str) -> Rule:
    if name not in RULES:
        raise InvalidInput("rules", f"no rule is called {name!r}; there are: {', '.join(RULES)}")
    return RULES[name]
