"""`accoda queues`, `workers` and `budgets`."""

import json
from pathlib import Path

import pytest
from cli_world import NOW, World

from accoda import App
from accoda.runtime.heartbeat import PREFIX, Heartbeat, ProcessorState, encode


def test_a_queue_is_paused_for_a_while_and_resumed(world: World) -> None:
    assert world.run("queues", "emails", "pause", "--for", "90m").stdout == "emails is paused for 1 h 30 min.\n"
    assert world.store(lambda app: app.storage.stats()).queues["emails"].paused_until == NOW + 5_400_000
    assert world.run("queues", "emails", "resume").stdout == "emails resumed.\n"
    assert world.run("queues", "emails", "pause").stdout == "emails is paused.\n"
    assert world.store(lambda app: app.storage.stats()).queues["emails"].paused_until is None


def test_a_typo_is_no_queue_to_pause(world: World) -> None:
    told = world.run("queues", "emials", "pause")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == "Error: there is no queue 'emials'; did you mean emails or deals?\n"
    assert "emials" not in world.store(lambda app: app.storage.stats()).queues


def test_an_app_knows_queues_that_have_no_job_yet(world: World) -> None:
    code = "from accoda import App\napp = App()\n@app.handler\nasync def calls(n: int) -> None: ...\n"
    Path("other.py").write_text(code)
    assert world.run("queues", "calls").exit_code == 1
    assert "handler  yes" in world.run("queues", "calls", "--app", "other:app").stdout


def test_a_queue_is_purged_by_state_and_age(world: World) -> None:
    words = ("queues", "emails", "purge", "--state", "dead")
    refused = world.run(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "Error: Delete up to 6 dead jobs of emails? Add --yes: there is no terminal to ask.\n"
    assert world.run(*words, "--older-than", "100m", "--yes").stdout == "3 jobs were deleted.\n"
    assert json.loads(world.run(*words, "--yes", "--json").stdout) == {"deleted": 3}
    again = world.run(*words, "--yes")
    assert (again.exit_code, again.stderr) == (1, "No job of emails is dead.\n")


def test_a_queue_as_json_has_the_names_of_the_wire(world: World) -> None:
    queue = json.loads(world.run("queues", "deals", "--json").stdout)
    assert (queue["name"], queue["paused"], queue["pausedUntil"]) == ("deals", True, "2030-01-31T09:30:00.000Z")
    assert [one["name"] for one in json.loads(world.run("queues", "--json").stdout)] == ["deals", "emails", "reports"]


def test_a_queue_tells_how_many_delayed_jobs_became_ready_by_their_time(world: World) -> None:
    for _ in range(2):
        world.run("enqueue", "later", "1", "--delay", "5m")
    assert "promoted" not in world.run("queues", "later").stdout
    world.clock.advance(300)
    assert "2 delayed jobs became ready" in world.run("queues", "later").stdout
    assert json.loads(world.run("queues", "later", "--json").stdout)["promoted"] == 2


def test_a_queue_has_the_number_that_its_code_or_a_worker_gives_it(world: World) -> None:
    async def beat(app: App) -> None:
        worker = Heartbeat("w9", "default", "host-1", 7, 0, 0, ("deals",), 1, numbers={"deals": 12})
        await app.storage.write(PREFIX + worker.id, encode(worker), ttl=600)

    Path("numbered.py").write_text(
        "from accoda import App\n\napp = App()\n\n@app.handler('emails', number=7)\nasync def send(to): ...\n"
    )
    world.store(beat)
    assert "number   7" in world.run("queues", "emails", "--app", "numbered:app").stdout
    told = {each["name"]: each["number"] for each in json.loads(world.run("queues", "--json").stdout)}
    assert (told["deals"], told["emails"]) == (12, None)


def test_workers_say_what_they_do(world: World) -> None:
    lines = world.run("workers").stdout.splitlines()
    assert lines[1].split()[:2] == ["office", "shop-2:812"] and lines[1].endswith("idle (deals, reports)")
    assert lines[2].endswith("1/10  emails × 1")
    assert [one["name"] for one in json.loads(world.run("workers", "--json").stdout)] == ["office", "post"]


def test_a_worker_is_drained_by_its_id_its_place_or_its_name(world: World) -> None:
    told = world.run("workers", "drain", "post")
    assert (told.exit_code, told.stdout) == (0, "a1 drains: it finishes what it runs and takes nothing more.\n")
    assert world.run("workers").stdout.splitlines()[2].endswith("draining, emails × 1")
    assert world.run("workers", "undrain", "shop-1:4711").stdout == "a1 takes jobs again.\n"
    assert json.loads(world.run("workers", "drain", "b2", "--json").stdout)["draining"] is True
    assert world.run("workers", "drain", "nobody").exit_code == 1


def test_without_workers_it_says_how_to_start_one(world: World) -> None:
    world.clock.advance(3600)
    told = world.run("workers")
    assert (told.exit_code, told.stdout) == (0, "")
    assert told.stderr == "No worker is running. Start one: accoda worker MODULE:APP\n"


def test_budgets_are_shown(world: World) -> None:
    assert world.run("budgets").stdout.splitlines()[1].split()[:4] == ["keepa", "█████·····", "144", "300"]
    assert json.loads(world.run("budgets", "keepa", "--json").stdout)["capacity"] == 300
    assert world.run("budgets", "keppa").exit_code == 1


def test_the_log_of_a_budget_is_read_and_is_no_queue(world: World) -> None:
    page = json.loads(world.run("budgets", "keepa", "log", "--json").stdout)
    assert [(line["jobId"], line["duration"], line["success"]) for line in page["items"]] == [
        (7, 0.42, True),
        (7, 2.005, False),
    ]
    first = world.run("budgets", "keepa", "log", "--limit", "1")
    assert "Libri" in first.stdout and first.stderr.startswith("More: --after ")
    assert world.run("budgets", "keepa", "log", "--for", "5s").stderr == "Nothing was paid for in this time.\n"
    for words in (("queues",), ("jobs", "--limit", "1000"), ("top", "--once")):
        assert "spent" not in world.run(*words).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("queues", "emails", "purge"), "Missing option '-s' / '--state'"),
        (("queues", "emails", "purge", "-s", "gone"), "Invalid value for '-s' / '--state': 'gone' is not one of"),
        (("queues", "emails", "paus"), "there is no verb 'paus'; did you mean pause?"),
        (("queues", "emails", "pause", "--for", "ever"), "for: must be a length of time"),
        (("queues", "a b"), "queue: "),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(world: World, words: tuple[str, ...], said: str) -> None:
    told = world.run(*words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith(f"Error: {said}") and told.stderr.count("\n") == 1


def test_a_worker_names_each_queue_once(world: World) -> None:
    states = tuple(ProcessorState("reports", 1, id, NOW) for id in (1, 2))
    beat = Heartbeat("c3", "batch", "shop-3", 9, NOW, NOW, ("reports",), 2, states, slots=20)
    world.store(lambda app: app.storage.write("worker/c3", encode(beat), ttl=60.0))
    (line,) = [line for line in world.run("workers").stdout.splitlines() if line.startswith("batch")]
    assert line.endswith("2/20  reports × 2")


def test_queues_have_their_health_and_people_read_running(world: World) -> None:
    title, *rows = world.run("queues").stdout.splitlines()
    assert title.split() == ["queue", "ready", "delayed", "running", "dead", "done", "oldest", "health"]
    assert [row.split()[0] for row in rows] == ["deals", "emails", "reports"]
    assert "healthy" in rows[1] and "6" in rows[1].split()  # six dead letters
    assert {queue["health"]["word"] for queue in json.loads(world.run("queues", "--json").stdout)} == {
        "paused", "healthy", "idle",
    }  # fmt: skip
