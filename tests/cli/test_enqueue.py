"""`accoda enqueue`: one job, or one for each line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_world import NOW, World

from accoda.envelope import unwrap
from accoda.payload import decode
from accoda.runtime.heartbeat import PREFIX, Heartbeat, encode


def total(world: World, queue: str) -> int:
    count: int = world.store(lambda app: app.storage.stats()).queues[queue].total
    return count


def payload(world: World, id: int) -> Any:
    return decode(unwrap(world.store(lambda app: app.find(id)).data)[1])


def test_everything_that_is_said_of_a_job_is_stored(world: World) -> None:
    options = ["--priority", "critical", "--delay", "5m", "--key", "k", "--cost", "3", "--keep-for", "1h"]
    options += ["--lane", "customer 7"]
    told = world.run(
        "enqueue", "calls", '{"n": [1, 2]}', *options, "--max-retries=2", "--name=A call", "--header=a=b=c", "--json"
    )
    id = json.loads(told.stdout)["id"]
    job = json.loads(world.run("job", str(id), "--json").stdout)
    assert (job["payload"], job["priority"], job["key"], job["cost"]) == ({"n": [1, 2]}, "CRITICAL", "k", 3)
    assert (job["keepFor"], job["maxRetries"], job["name"]) == (3600, 2, "A call")
    stored = world.store(lambda app: app.find(id))
    assert stored.start_time == NOW + 300_000 and stored.lane == "customer 7"
    assert unwrap(stored.data)[0].headers == {"a": "b=c"}
    assert "lane: must be 1 to 128 printable" in world.run("enqueue", "calls", "1", "--lane", "two\nlines").stderr
    assert "header: must look like tenant=acme, not 'tenant'" in world.run("enqueue", "calls", "--header=tenant").stderr


def test_the_handlers_of_an_app_say_how_its_jobs_are_kept(world: World) -> None:
    world.run("enqueue", "reports", "2040", "--app", "shop:app")
    assert world.store(lambda app: app.find(18)).keep_for == 86_400


def test_a_payload_comes_from_standard_input_or_a_file(world: World) -> None:
    assert world.run("enqueue", "calls", "-", input='{"a": 1}\n').stdout == "Job 18 is in calls.\n"
    Path("p.json").write_text('"text"')
    world.run("enqueue", "calls", "--file", "p.json")
    world.run("enqueue", "calls", "--file", "-", input="[null]")
    world.run("enqueue", "calls", "null")
    assert [payload(world, id) for id in (18, 19, 20, 21)] == [{"a": 1}, "text", [None], None]


def test_a_key_that_is_held_is_said(world: World) -> None:
    words = ("enqueue", "emails", "1", "--key", "welcome/elena")
    assert world.run(*words).stdout == "Job 14 of emails has this key already; it was kept.\n"
    reranked = world.run(*words, "--on-duplicate", "rerank", "--priority", "CRITICAL")
    assert reranked.stdout == "Job 14 of emails has this key already; it was kept.\n"
    assert world.store(lambda app: app.find(14)).rank == 0
    replaced = world.run(*words, "--on-duplicate", "replace")
    assert replaced.stdout == "Job 14 of emails has this key already; it was replaced.\n"
    assert payload(world, 14) == 1


def test_a_secret_field_is_never_shown(world: World) -> None:
    said = '{"to": "anna", "card": {"number": "4111", "name": "A"}}'
    world.run("enqueue", "calls", said, "--secret", "card.number", "--secret", "to")
    shown = json.loads(world.run("job", "18", "--json").stdout)["payload"]
    assert shown == {"to": "•••", "card": {"number": "•••", "name": "A"}}
    assert payload(world, 18)["card"]["number"] == "4111", "the handler gets it"
    assert world.run("enqueue", "mails", "--lines", "--secret", "to", "--file", "few.jsonl").exit_code == 0
    assert "anna@example.com" not in world.run("jobs", "--queue", "mails", "--json").stdout


def test_lines_are_stored_in_batches(world: World) -> None:
    assert world.run("enqueue", "calls", "--lines", "-f", "people.jsonl").stdout == "1,200 jobs are in calls.\n"
    assert total(world, "calls") == 1200
    few = world.run("enqueue", "calls", "-", "--lines", "--json", input="1\n\n  \n2")
    assert json.loads(few.stdout) == {"stored": 2}
    assert world.run("enqueue", "calls", "-", "--lines", input="").stdout == "0 jobs are in calls.\n"


def test_a_wrong_line_stores_nothing_of_its_batch(world: World) -> None:
    told = world.run("enqueue", "calls", "--lines", "-f", "wrong.jsonl")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("Error: line 1,201: payload: is not JSON: ")
    assert told.stderr.endswith("; the 1,000 jobs before line 1,001 are stored, no others\n")
    assert total(world, "calls") == 1000
    early = world.run("enqueue", "mails", "-", "--lines", input="1\n\n{]\n")
    assert early.stderr.startswith("Error: line 3: payload: is not JSON: ")
    assert early.stderr.endswith("; nothing is stored\n")


def test_a_line_that_does_not_fit_the_handler_is_found(world: World) -> None:
    told = world.run("enqueue", "reports", "-", "--lines", "--app", "shop:app", input='2030\n"then"\n')
    assert told.exit_code == 2
    assert told.stderr.startswith("Error: line 2: payload: does not fit int")


def test_who_waits_gets_the_result_or_a_no(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes the job while the command waits for it."""
    import asyncio

    from accoda import App, Bury, Done
    from accoda.model import Lease
    from accoda.operations import jobs

    looks = jobs.wait_result
    outcomes: list[Callable[[Lease], Done | Bury]] = [
        lambda lease: Done(lease, result=b"\xa2ok"),
        lambda lease: Bury(lease, "no paper"),
    ]

    async def work_then_look(app: App, id: int, timeout: float = 0.0) -> Any:
        (job,) = await app.storage.take("calls", 1)
        await app.storage.settle([outcomes.pop(0)(job.lease)])
        return await asyncio.wait_for(looks(app, id, timeout), 30)

    monkeypatch.setattr(jobs, "wait_result", work_then_look)
    assert world.run("enqueue", "calls", "1", "--wait").stdout == '"ok"\n'
    failed = world.run("enqueue", "calls", "1", "--wait")
    assert (failed.exit_code, failed.stderr.splitlines()[-1]) == (1, "Error: job 19 is dead: no paper")


def test_a_url_may_name_a_file_that_is_not_there_yet(world: World) -> None:
    world.run("enqueue", "calls", "1", "--url", "sqlite:///new.db")
    assert Path("new.db").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("calls", "{to: anna}"), "payload: is not JSON: object keys must be strings (byte 1); write '{"),
        (("calls", "1", "--delay", "soon"), "delay: must be a length of time"),
        (("calls", "1", "--at", "soon"), "at: must be a moment such as"),
        (("calls", "1", "--delay", "1", "--at", "2030-02-01"), "at: give either --delay or --at, not both"),
        (("calls", "1", "--file", "p.json"), "payload: give either a payload or --file, not both"),
        (("calls", "--file", "none.json"), "file: none.json cannot be read: No such file or directory"),
        (("calls", "1", "--lines"), "lines: needs a file: --file jobs.jsonl, or --file - for standard input"),
        (("calls", "--file", "people.jsonl", "--lines", "--wait"), "wait: is for one job, not for many lines"),
        (("calls", "1", "--on-duplicate", "keep"), "on-duplicate: needs a --key"),
        (("calls", "1", "--cost", "-1"), "Invalid value for '--cost': -1 is not in the range"),
        (("calls", "1", "--webhook", "ftp://x"), "webhook: "),
        (("calls", "1", "--secret", ""), "secret: "),
        (("calls", "1", "--name", ""), "name: must be 1 to 200 characters"),
        (("a b", "1"), "queue: "),
        (("accoda.webhooks", "1"), "queue: 'accoda.webhooks' is a system queue"),
        (("calls", "1", "--url", "memory://"), "url: memory:// is gone when this command ends"),
        ((), "Missing argument 'QUEUE'. See accoda enqueue --help"),
    ],
)
def test_mistakes_are_one_line_and_store_nothing(world: World, words: tuple[str, ...], said: str) -> None:
    told = world.run("enqueue", *words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith(f"Error: {said}") and told.stderr.count("\n") == 1
    assert "calls" not in world.store(lambda app: app.storage.stats()).queues


def test_a_payload_that_is_missing_is_asked_for_and_null_is_said(world: World) -> None:
    told = world.run("enqueue", "calls")
    assert told.exit_code == 2 and "or null for a job without one" in " ".join(told.stderr.split())
    assert world.run("enqueue", "calls", "null").stdout == "Job 18 is in calls.\n"


def test_a_queue_or_type_that_no_running_worker_handles_is_named_on_standard_error(world: World) -> None:
    async def beat(app: Any) -> None:
        worker = Heartbeat("w9", "nine", "host-1", 7, 0, 0, ("work",), 1, types={"work": ["mail", "report"]})
        await app.storage.write(PREFIX + worker.id, encode(worker), ttl=600)

    world.store(beat)
    fine = world.run("enqueue", "work", "1", "--type", "mail")
    assert (fine.stdout, fine.stderr) == ("Job 18 is in work.\n", "")
    world.store(lambda app: app.storage.take("work", 1, worker="w9"))  # that it runs says nothing of other types
    typo = world.run("enqueue", "work", "1", "-t", "mial", "--json")
    assert json.loads(typo.stdout)["id"] == 19 and typo.exit_code == 0
    assert typo.stderr == "Warning: no running worker handles type mial of queue work; did you mean mail?\n"
    table = world.run("jobs", "--type", "mial").stdout.splitlines()
    assert table[0].split()[:3] == ["id", "queue", "type"] and table[1].split()[:3] == ["19", "work", "mial"]
    assert "type" not in world.run("jobs", "-q", "emails").stdout, "a column only where a job has one"
