"""Broken storages must fail the suite: else its tests would prove nothing."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from proof.mutants import MUTANTS, mutant_fixture

from accoda.testing.machine import state_machine

TARGET = Path(__file__).with_name("mutant_target.py")
FEW_RUNS = settings(
    max_examples=400,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,  # the same runs every time: this asks whether they suffice, not whether luck does
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,  # the first is enough
    suppress_health_check=list(HealthCheck),
)


def run_suite(tests: set[str], *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # What a broken storage leaves behind must not fail the next one.
    alone = [f"-pno:{each}" for each in ("cacheprovider", "unraisableexception", "threadexception")]
    names = [f"{TARGET}::{test}" for test in sorted(tests)]
    command = [sys.executable, "-m", "pytest", "--noconftest", "--tb=native", *alone, *options, *names]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=170)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What became of the test that is said to catch each mutant: "failure" in the test, "error" around it.

    One process for all of them: to start it takes longer than most of the tests.
    """
    report = tmp_path_factory.mktemp("mutants") / "report.xml"
    tests = {mutant.caught_by for mutant in MUTANTS.values()}
    result = run_suite(tests, f"--junitxml={report}", ACCODA_TIME_LIMIT="2")
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
    found: dict[str, set[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        (mutant,) = [each.attrib["value"] for each in case.iter("property")]
        found.setdefault(mutant, set()).update(each.tag for each in case if each.tag in ("failure", "error"))
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fails_the_test_that_is_said_to_catch_it(name: str, verdicts: dict[str, set[str]]) -> None:
    assert verdicts.get(name) == {"failure"}


@pytest.mark.parametrize("storage", ["", "sqlite"])
def test_the_same_tests_pass_without_a_mutant(storage: str) -> None:
    tests = {mutant.caught_by for mutant in MUTANTS.values() if (mutant.sqlite is not None) == bool(storage)}
    result = run_suite(tests, ACCODA_MUTANT=storage)
    assert result.returncode == pytest.ExitCode.OK, result.stdout + result.stderr


SELDOM = {
    "ahead-of-a-delayed-job-is-none", "fence-of-rerank-ignored", "pause-in-the-past-is-ignored", "purge-ignores-limit",
    "queue-unchecked", "rerank-misses-a-run", "retry-drops-follow-ups", "retry-keeps-its-turn",
    "second-report-of-a-kept-job", "sqlite-shared-places-of-the-line-only", "turn-forgets-the-last",
    "versions-begin-again",
}  # fmt: skip
"""The machine finds them after thousands of commands: too long for each run of the tests, so only in thorough ones."""
THOROUGH = "ACCODA_EXAMPLES" in os.environ
BY_MACHINE = [name for name, mutant in MUTANTS.items() if mutant.by_machine and (THOROUGH or name not in SELDOM)]


def test_those_that_are_found_seldom_exist() -> None:
    assert MUTANTS.keys() >= SELDOM


@pytest.mark.parametrize("name", BY_MACHINE)
def test_the_machine_finds_a_mutant_by_itself(name: str) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(state_machine(lambda: mutant_fixture(name)), settings=FEW_RUNS)
