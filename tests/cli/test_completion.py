"""Words are completed in a shell."""

from pathlib import Path

import pytest
from cli_flows import build_flows
from cli_world import World, visit
from click.shell_completion import ShellComplete

from accoda.cli import completion
from accoda.cli.commands import COMMANDS, accoda


def completed(*words: str) -> list[str]:
    """What a shell is offered after these words, for the last of them."""
    *before, last = words
    found = ShellComplete(accoda, {}, "accoda", "_ACCODA_COMPLETE").get_completions(list(before), last)
    return [item.value for item in found]


def test_commands_are_completed() -> None:
    assert completed("que") == ["queues"]
    assert completed("") == list(COMMANDS)


def test_options_are_completed() -> None:
    assert completed("jobs", "--st") == ["--state"]
    assert completed("queues", "emails", "--j") == ["--json"]
    assert completed("queues", "--a") == ["--all", "--app"]
    assert completed("dead", "--f") == ["--fingerprint"]
    assert completed("dead", "--limit", "3", "--f") == ["--fingerprint"]


def test_verbs_are_completed_after_their_noun() -> None:
    assert completed("job", "17", "re") == ["retry", "result"]
    assert completed("queues", "emails", "") == ["show", "pause", "resume", "purge"]
    assert completed("dead", "re") == ["replay"]


def test_states_and_levels_are_completed() -> None:
    assert completed("jobs", "--state", "d") == ["delayed", "dead", "done"]


def test_queues_are_completed_from_the_store(world: World) -> None:
    assert completed("queues", "") == ["deals", "emails", "reports"]
    assert completed("queues", "--url", "sqlite:///accoda.db", "e") == ["emails"]
    assert completed("enqueue", "re") == ["reports"]
    assert completed("jobs", "--queue", "d") == ["deals"]


def test_flows_are_completed_from_the_store(prepared: Path, tmp_path: Path) -> None:
    build_flows(prepared, tmp_path / "flows")
    with visit(tmp_path / "flows", tmp_path / "shop"):
        assert completed("flow", "o") == ["order-17"]
        assert completed("flows", "cancel", "") == ["order-17", "import-2030", "mailing-1", "night-31"]


def test_a_store_that_is_not_there_completes_nothing(world: World) -> None:
    assert completed("queues", "--url", "sqlite:///nothing.db", "") == []
    assert completed("enqueue", "--url", "x", "") == []


def test_a_store_that_does_not_answer_in_time_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    asked, answer = Event(), Event()

    def never(url: str | None, app: str | None, names: object) -> list[str]:
        asked.set()
        answer.wait(30)
        return ["late"]

    monkeypatch.setattr(completion, "_ask", never)
    monkeypatch.setattr(completion, "PATIENCE", 0.01)
    assert completed("enqueue", "") == []
    assert asked.is_set()
    answer.set()


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o nosort"), ("zsh", "#compdef accoda"), ("fish", "complete --no-files")]
)
def test_each_shell_has_its_script(world: World, shell: str, mark: str) -> None:
    told = world.run("completion", shell)
    assert told.exit_code == 0
    assert mark in told.stdout and "_ACCODA_COMPLETE" in told.stdout


def test_another_shell_is_said_to_be_none(world: World) -> None:
    told = world.run("completion", "tcsh")
    assert told.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in told.stderr
