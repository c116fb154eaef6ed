"""`accoda dead`: look, replay, delete."""

import json

import pytest
from cli_world import World

from accoda import App, Bury

NO_USER = "2842ec05d79c"


def states(world: World) -> list[str]:
    return [world.store(lambda app, id=id: app.find(id)).state for id in range(3, 9)]


def test_they_are_grouped_by_their_cause(world: World) -> None:
    found = json.loads(world.run("dead", "groups", "--json").stdout)
    assert [(group["count"], group["queues"]) for group in found["groups"]] == [(5, ["emails"]), (1, ["emails"])]
    assert found["groups"][1]["fingerprint"] == NO_USER


def test_list_is_what_it_does_without_a_word(world: World) -> None:
    assert world.run("dead").stdout == world.run("dead", "list").stdout
    assert world.run("dead", "--fingerprint", NO_USER).stdout.splitlines()[1].startswith(" 3  emails")


def test_they_are_listed_latest_first_over_all_queues(world: World) -> None:
    async def fill(app: App) -> None:
        for seconds, queue in enumerate(("zoo", "emails", "ark")):
            world.clock.advance(seconds)
            await app.enqueue(queue)
            [job] = [job for job in await app.storage.take(queue, 3) if job.created_at == world.clock.now()]
            await app.storage.settle([Bury(job.lease, f"no {queue}")])

    world.store(fill)
    lines = world.run("dead", "--limit", "4").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["queue", "ark", "emails", "zoo", "emails"]


def test_a_dry_run_changes_nothing(world: World) -> None:
    told = world.run("dead", "replay", "--queue", "emails", "--dry-run")
    assert told.stdout.startswith("6 dead letters of emails; nothing was changed.")
    assert json.loads(world.run("dead", "delete", "--dry-run", "--json").stdout)["n"] == 6
    assert states(world) == ["dead"] * 6


def test_a_replay_asks_and_takes_only_those_that_match(world: World) -> None:
    words = ("dead", "replay", "--fingerprint", NO_USER)
    assert world.run(*words).exit_code == 2
    assert states(world) == ["dead"] * 6
    assert world.run(*words, "--yes").stdout == "1 is ready again.\n"
    assert states(world) == ["ready"] + ["dead"] * 5
    report = json.loads(world.run("dead", "replay", "--yes", "--rate", "1000", "--json").stdout)
    assert report == {"revived": 5, "skipped": 0}
    assert states(world) == ["ready"] * 6


def test_all_of_a_queue_are_deleted(world: World) -> None:
    assert world.run("dead", "delete", "-q", "emails", "--yes").stdout == "6 deleted.\n"
    again = world.run("dead", "delete", "-q", "emails", "--yes")
    assert (again.exit_code, again.stderr) == (1, "No dead letter matches.\n")


def test_a_bar_is_drawn_for_a_person(world: World) -> None:
    told = world.run("dead", "replay", "--yes", terminal=True)
    assert "Replaying" in told.stderr and "Replaying" not in told.stdout
    assert told.stdout == "6 are ready again.\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("dead", "--fingerprint", "xyz"), 2, "fingerprint: must be 12 hex digits, not 'xyz'"),
        (("dead", "repaly"), 2, "there is no command 'repaly'; did you mean replay?"),
        (("dead", "replay", "--rate", "0"), 2, "Invalid value for '--rate': 0.0 is not in the range x>0."),
        (("dead", "--queue", "emials"), 1, "there is no queue 'emials'; did you mean emails or deals?"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(world: World, words: list[str], code: int, said: str) -> None:
    told = world.run(*words)
    assert (told.exit_code, told.stdout) == (code, "")
    assert told.stderr.startswith(f"Error: {said}") and told.stderr.count("\n") == 1
