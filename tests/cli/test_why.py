"""`accoda why`: the answer first, in 80 columns, and as JSON."""

import json

import pytest
from cli_world import World


def test_the_first_line_is_the_answer_and_the_gates_follow(world: World) -> None:
    told = world.run("why", "13").stdout.splitlines()
    assert told[0].startswith("job 13 of deals (ready): queue deals is paused until 09:30:00 UTC")
    assert "  ✗ paused   queue deals is paused until 09:30:00 UTC, in 30 min" in told
    assert "  ✓ line     it is next in line" in told
    assert "  sooner    resume the queue: accoda queues deals resume" in told


@pytest.mark.parametrize("id", ["1", "3", "9", "10", "11", "12", "13", "14", "2"])
def test_no_line_is_longer_than_the_screen(world: World, id: str) -> None:
    told = world.run("why", id)
    assert told.exit_code == 0 and max(map(len, told.stdout.splitlines())) <= 80


def test_budgets_are_known_with_the_app(world: World) -> None:
    told = world.run("why", "13", "--app", "shop:app").stdout
    assert "✓ budget   keepa can pay for the next job" in told


def test_as_json_with_moments_as_text(world: World) -> None:
    told = json.loads(world.run("why", "10", "--json").stdout)
    (taken,) = told["gates"]
    assert (told["state"], taken["name"], taken["facts"]["worker"]) == ("taken", "taken", "post")
    assert taken["facts"]["leaseUntil"] == "2030-01-31T09:01:08.000Z"


def test_a_job_that_is_not_there_is_a_no(world: World) -> None:
    told = world.run("why", "99")
    assert (told.exit_code, told.stdout) == (1, "") and "job 99 is not stored" in told.stderr


def test_secrets_are_not_told(world: World) -> None:
    assert "4111" not in world.run("why", "9", "--json", "--app", "shop:app").stdout


def test_a_pause_says_who_and_why(world: World) -> None:
    world.run("queues", "emails", "pause", "--note", "the mail server is being moved")
    told = " ".join(world.run("why", "12").stdout.split())
    assert "queue emails is paused by " in told and "until it is resumed: the mail server is being moved" in told
    world.run("queues", "emails", "resume")
    assert "the queue is not paused" in world.run("why", "12").stdout
    too_long = world.run("queues", "emails", "pause", "--note", "x" * 600)
    assert too_long.exit_code == 2 and "at most 500 characters" in too_long.stderr


def test_the_advice_can_be_typed(world: World) -> None:
    assert world.run("queues", "deals", "resume").exit_code == 0
    assert world.run("job", "14", "retry").exit_code == 0
    assert world.run("job", "12", "priority", "HIGH").exit_code == 0
