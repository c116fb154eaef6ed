"""`accoda jobs` and `accoda job`: look at jobs, and do something with one."""

import json

import pytest
from cli_world import World

from accoda import App, Retry


def test_jobs_are_listed_with_what_people_know_them_by(world: World) -> None:
    told = world.run("jobs", "--state", "done")
    assert told.stdout.splitlines() == [
        "id  queue    priority  attempt  ended    what",
        " 1  reports  NORMAL    1        3 h ago  Report of the year 2029",
    ]


def test_running_jobs_are_listed_with_their_workers_and_the_end_of_their_leases(world: World) -> None:
    told = world.run("jobs", "--state", "running")
    assert told.stdout.splitlines() == [
        "id  queue   priority  attempt  worker  started   lease     what",
        '10  emails  NORMAL    1        post    52 s ago  in 1 min  {"to": "bruno@exampl…',
    ]


def test_lists_of_one_state_are_in_the_order_of_processing_and_fit_a_terminal(world: World) -> None:
    async def fill(app: App) -> None:
        @app.handler("aged", policy="aging")
        async def aged(payload: object) -> None: ...

        for level in ("LOW", "critical", "high"):
            await app.enqueue("aged", "x" * 90, priority=level, type="report.generate")
            await app.enqueue("aged", delay=7200 if level == "LOW" else 60, priority=level)
        await app.enqueue("aged", delay=49 * 86_400)
        for worker, lease in (("a-worker-with-a-name-as-long-as-a-host-s", 90), ("b", 30)):
            await app.enqueue("mail", type="mail.send")
            await app.storage.take("mail", 1, lease=lease, worker=worker)

    world.store(fill)
    ready = world.run("jobs", "-q", "aged", "-s", "ready").stdout.splitlines()
    assert [line.split()[3] for line in ready] == ["priority", "CRITICAL", "HIGH", "LOW"]
    assert [line.split()[4] for line in ready] == ["rank", "1896080400000", "1896081400000", "1896083400000"]
    delayed = world.run("jobs", "-s", "delayed").stdout.splitlines()
    assert [line.split()[0] for line in delayed if " aged " in line] == ["21", "23", "19", "24"]
    running = world.run("jobs", "-s", "taken").stdout.splitlines()
    assert [line.split()[0] for line in running[1:]] == ["26", "10", "25"]
    assert all(len(line) <= 80 for line in ready + delayed + running)


def test_a_job_is_found_by_the_key_that_its_caller_gave_it(world: World) -> None:
    async def fill(app: App) -> int:
        await app.enqueue("emails", key="job-123")
        return (await app.enqueue("reports", key="job-123", type="report.generate")).id

    id = world.store(fill)
    found = json.loads(world.run("jobs", "-q", "reports", "--key", "job-123", "--json").stdout)["items"]
    assert [(job["id"], job["key"], job["type"]) for job in found] == [(id, "job-123", "report.generate")]
    assert world.run("jobs", "-q", "deals", "--key", "job-123").exit_code == 1


def test_pages_lead_from_one_to_the_next(world: World) -> None:
    seen: list[int] = []
    cursor: list[str] = []
    while True:
        page = json.loads(world.run("jobs", "--limit", "4", "--json", *cursor).stdout)
        seen += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert sorted(seen) == list(range(1, 15))


def test_the_next_page_is_told_on_standard_error(world: World) -> None:
    told = world.run("jobs", "--limit", "1")
    assert len(told.stdout.splitlines()) == 2
    assert told.stderr.startswith("There are more: add --cursor ")


def test_our_own_queues_are_shown_when_asked_for(world: World) -> None:
    assert "accoda.webhooks" not in world.run("jobs").output
    assert "accoda.webhooks" in world.run("jobs", "--all").output
    assert "accoda.webhooks" not in world.run("queues").output
    assert "accoda.webhooks" in world.run("queues", "--all").output


def test_a_filter_that_matches_nothing_is_a_no(world: World) -> None:
    told = world.run("jobs", "--queue", "deals", "--state", "dead")
    assert (told.exit_code, told.stdout, told.stderr) == (1, "", "No job matches.\n")
    as_json = world.run("jobs", "--queue", "deals", "--state", "dead", "--json")
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (1, {"items": [], "next": None})


@pytest.mark.parametrize("words", [("job", "9", "--json"), ("job", "--json", "9"), ("job", "9", "show", "--json")])
def test_options_may_stand_anywhere(world: World, words: tuple[str, ...]) -> None:
    assert json.loads(world.run(*words).stdout)["id"] == 9


def test_the_value_of_an_option_is_no_noun(world: World) -> None:
    url = "sqlite:///accoda.db"
    assert world.run("job", "--url", url, "9", "cancel").stdout == "Job 9 is cancelled.\n"
    assert "emails is paused" in world.run("queues", "--url", url, "emails", "--for", "1h", "pause").stdout


def test_secrets_are_hidden_in_cards_and_json(world: World) -> None:
    assert "4111" not in world.run("job", "9").output
    assert "4111" not in world.run("job", "9", "--json").output
    assert "4111" not in world.run("jobs").output


def test_a_job_is_cancelled_retried_deleted_and_given_a_priority(world: World) -> None:
    assert world.run("job", "3", "retry").stdout == "Job 3 is ready to run.\n"
    assert world.store(lambda app: app.find(3)).state == "ready"
    assert world.run("job", "3", "priority", "low").stdout == "Job 3 is LOW now.\n"
    assert world.store(lambda app: app.find(3)).rank == 3.0
    assert world.run("job", "3", "cancel").stdout == "Job 3 is cancelled.\n"
    assert world.store(lambda app: app.find(3)) is None
    assert world.run("job", "4", "delete", "-y").stdout == "Job 4 is deleted.\n"
    assert world.store(lambda app: app.find(4)) is None


def test_a_cancelled_job_that_is_kept_is_listed_and_has_no_result(world: World) -> None:
    id = world.store(lambda app: app.enqueue("emails", 1, keep_for=600)).id
    world.run("job", str(id), "cancel")
    assert f"{id}  emails  NORMAL" in world.run("jobs", "-s", "cancelled").stdout
    assert f"{id}  emails   cancelled" in world.run("jobs").stdout
    followed, result = world.run("job", str(id), "follow"), world.run("job", str(id), "result")
    assert followed.exit_code == 1 and "cancelled" in followed.stdout
    assert (result.exit_code, result.stderr) == (1, f"Error: job {id} was cancelled\n")
    assert world.run("queues", "emails", "purge", "-s", "cancelled", "-y").stdout == "1 job was deleted.\n"


def test_a_delayed_job_is_started_now(world: World) -> None:
    assert world.store(lambda app: app.find(14)).state == "delayed"
    assert world.run("job", "14", "retry").stdout == "Job 14 is ready to run.\n"
    assert world.store(lambda app: app.find(14)).state == "ready"


def test_what_the_state_does_not_allow_is_a_no_that_says_why(world: World) -> None:
    for words, said in (
        (("job", "1", "cancel"), "Error: job 1 is done: only a job that waits or runs can be cancelled\n"),
        (("job", "1", "retry"), "Error: job 1 is done: enqueue it anew to run it again\n"),
        (("job", "10", "priority", "high"), "Error: job 10 is taken: only a waiting job"),
    ):
        told = world.run(*words)
        assert told.exit_code == 1
        assert told.stderr.startswith(said)


def test_who_says_no_deletes_nothing(world: World) -> None:
    told = world.run("job", "4", "delete", input="n\n", terminal=True)
    asked = "Delete job 4, with its payload and result? [y/N]: n\n"
    assert (told.exit_code, told.stdout, told.stderr) == (1, "", f"{asked}Nothing was changed.\n")
    assert world.store(lambda app: app.find(4)) is not None
    assert world.run("job", "4", "delete", input="y\n", terminal=True).exit_code == 0
    assert world.store(lambda app: app.find(4)) is None


def test_results_come_as_json(world: World) -> None:
    assert json.loads(world.run("job", "1", "result").stdout) == {"pages": 12}
    dead = world.run("job", "3", "result")
    assert dead.exit_code == 1
    assert dead.stderr.startswith("Error: job 3 is dead: failed 5 times")
    early = world.run("job", "2", "result")
    assert (early.exit_code, early.stderr) == (1, "Error: job 2 is still delayed after 0 s\n")


def test_a_job_is_followed_to_its_end(world: World) -> None:
    assert world.run("job", "1", "follow").stdout == '2030-01-31 09:00:00 UTC  done · {"pages": 12}\n'
    assert world.run("job", "3", "follow").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("job",), "which one? Write accoda job ID. See accoda job --help"),
        (("job", "x"), "Invalid value for 'ID': 'x' is not a whole number. See accoda job x --help"),
        (("job", "1", "retyr"), "there is no verb 'retyr'; did you mean retry?"),
        (("job", "retry", "1"), "there is no verb '1'; write accoda job 1 retry"),
        (("job", "1", "priority", "urgent"), "Invalid value for 'LEVEL': 'urgent' is not one of"),
        (("jobs", "--limit", "0"), "Invalid value for '--limit': 0 is not in the range 1<=x<=1000."),
        (("jobs", "--cursor", "x"), "cursor: is damaged; use the `next` of a page as it is"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(world: World, words: tuple[str, ...], said: str) -> None:
    told = world.run(*words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith(f"Error: {said}") and told.stderr.count("\n") == 1


@pytest.mark.parametrize("word", ["running", "taken"])
def test_the_state_of_a_running_job_has_a_word_for_people_and_one_for_programs(world: World, word: str) -> None:
    (line,) = world.run("jobs", "--state", word).stdout.splitlines()[1:]
    assert line.split()[:2] == ["10", "emails"] and "10  emails   running" in world.run("jobs").stdout
    (job,) = json.loads(world.run("jobs", "--state", word, "--json").stdout)["items"]
    assert job["state"] == "taken"


def test_a_quarantined_job_says_so_in_lists_and_on_its_card(world: World) -> None:
    id = json.loads(world.run("enqueue", "calls", "1", "--json").stdout)["id"]

    async def crash(app: App) -> None:
        for _ in range(2):
            await app.storage.take("calls", 1, lease=30.0)
            world.clock.advance(31)
        for job in await app.storage.take("calls", 1):
            await app.storage.settle([Retry(job.lease, delay=600.0, counts=False)])

    world.store(crash)
    assert "quarantined: it runs alone" in world.run("jobs", "--queue", "calls").stdout
    card = " ".join(world.run("job", str(id)).stdout.split())
    assert "its lease ended 2 times without an outcome (the worker may have died); quarantined: it runs alone" in card
    assert "attempt 1" in card
