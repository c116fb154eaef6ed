"""`accoda schedules` on the command line."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from schedule_env import START, extras_of, payload_of

from accoda import App
from accoda.cli.commands import accoda
from accoda.cli.draw import Surroundings
from accoda.clock import ManualClock
from accoda.model import JobInfo

REPORT = ("add", "report", "--cron", "0 7 * * MON-FRI", "--tz", "Europe/Rome", "--queue", "reports")


class Shell:
    """A folder with a store, on a Monday at noon (UTC)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(START)

    def run(self, *words: str, url: bool = True) -> Result:
        around = Surroundings(self.clock, 80, False)
        given = [*words, *(("--url", f"sqlite:///{self.folder}/jobs.db") if url else ())]
        result = CliRunner().invoke(accoda, ["schedules", *given], obj=around, prog_name="accoda")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_schedule_is_added_listed_and_shown_with_its_next_runs_in_its_own_zone(shell: Shell) -> None:
    told = shell.run(*REPORT, "--payload", '{"year": 2030}')
    said = "report is stored: at 07:00, Monday to Friday, Europe/Rome; next Tue 2026-03-03 07:00:00 CET (in 18 h).\n"
    assert told.stdout == said
    listed = shell.run().stdout.splitlines()
    assert listed[1].split("  ") == [
        "report",
        "active",
        "at 07:00, Monday to Friday, Europe/Rome",
        "reports",
        "in 18 h",
    ]
    shown = shell.run("show", "report").stdout
    assert 'payload       {"year": 2030}' in shown and "last run      never" in shown
    assert shown.splitlines()[-5:] == [
        "Tue 2026-03-03 07:00:00 CET  in 18 h",
        "Wed 2026-03-04 07:00:00 CET  in 1 d",
        "Thu 2026-03-05 07:00:00 CET  in 2 d",
        "Fri 2026-03-06 07:00:00 CET  in 3 d",
        "Mon 2026-03-09 07:00:00 CET  in 6 d",
    ]


def test_json_has_the_names_of_the_http_api(shell: Shell) -> None:
    made = shell.json("add", "sweep", "--every", "5m", "--catch-up", "all", "--overlap", "skip", "--max-retries", "2")
    assert (made["name"], made["every"], made["catchUp"], made["maxRetries"]) == ("sweep", 300.0, "all", 2)
    assert made["nextAt"] == "2026-03-02T12:05:00.000Z" and len(made["upcoming"]) == 5
    assert shell.json("show", "sweep") == made
    assert shell.json("list") == [made]


def test_a_name_is_taken_unless_it_is_to_be_replaced(shell: Shell) -> None:
    shell.run(*REPORT)
    again = shell.run(*REPORT)
    assert again.exit_code == 1 and "there is a schedule 'report' already" in again.stderr
    changed = shell.run("add", "report", "--every", "90s", "--replace")
    assert "every 1 minute 30 seconds" in changed.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--every", "soon"), "--every: must be seconds, or a length such as"),
        ((), "--cron: give one of the two"),
        (("--every", "5m", "--cron", "* * * * *"), "--every: give one of the two"),
        (("--cron", "61 * * * *"), "--cron: '61 * * * *': bad minute"),
        (("--every", "5m", "--catch-up", "no"), "--catch-up: must be one of skip, once, all"),
        (("--every", "5m", "--payload", "{year: 1}"), "payload: is not JSON"),
        (("--every", "5m", "--starts-at", "tomorrow"), "--starts-at: "),
        (("--every", "5m", "--queue", "accoda.x"), "--queue: names that begin with 'accoda.'"),
        (("--every", "5m", "--webhook-url", "ftp://x"), "--webhook-url: "),
    ],
)
def test_an_invalid_value_is_named_by_its_option(shell: Shell, words: tuple[str, ...], says: str) -> None:
    told = shell.run("add", "x", *words)
    assert told.exit_code == 2 and says in told.stderr
    assert not (shell.folder / "jobs.db").exists()


def test_pause_resume_trigger_delete(shell: Shell) -> None:
    shell.run("add", "sweep", "--every", "5m", "--overlap", "skip")
    assert shell.run("pause", "sweep").stdout == "sweep is paused: every 5 minutes.\n"
    assert "paused" in shell.run().stdout
    assert shell.run("resume", "sweep").stdout.startswith(
        "sweep resumed: every 5 minutes; next Mon 2026-03-02 12:05:00"
    )
    assert "was created." in shell.run("trigger", "sweep").stdout
    assert "was kept; its last job has not ended" in shell.run("trigger", "sweep").stdout
    refused = shell.run("delete", "sweep")
    assert refused.exit_code == 2 and "Delete the schedule sweep (every 5 minutes)?" in refused.stderr
    assert shell.run("delete", "sweep", "--yes").stdout == "sweep was deleted.\n"
    gone = shell.run("delete", "sweep", "--yes")
    assert gone.exit_code == 1 and "there is no schedule 'sweep'" in gone.stderr


def test_a_typo_is_answered_with_a_suggestion(shell: Shell) -> None:
    shell.run(*REPORT)
    told = shell.run("show", "raport")
    assert (told.exit_code, told.stderr) == (1, "Error: there is no schedule 'raport'; did you mean report?\n")


def test_a_file_is_applied(shell: Shell) -> None:
    file = shell.folder / "schedules.toml"
    file.write_text('[schedules.a]\nevery = "5m"\n[schedules.b]\ncron = "@daily"\n')
    assert shell.run("apply", str(file)).stdout == "created: a, b\n"
    file.write_text('[schedules.a]\nevery = "6m"\n')
    assert shell.run("apply", str(file)).stdout == "changed: a\n"
    refused = shell.run("apply", str(file), "--prune")
    assert refused.exit_code == 2 and "Delete b?" in refused.stderr
    assert shell.run("apply", str(file), "--prune", "--yes").stdout == "removed: b\nunchanged: a\n"
    file.write_text("[schedules.a]\nevry = 6\n")
    wrong = shell.run("apply", str(file))
    assert wrong.exit_code != 0 and "[schedules.a] evry: there is no such key; did you mean every?" in wrong.stderr


def test_check_needs_no_store(shell: Shell) -> None:
    told = shell.run("check", "30 2 * * *", "--tz", "Europe/Rome", "-n", "2", url=False)
    assert told.stdout.splitlines() == [
        "every day at 02:30, Europe/Rome",
        "next runs",
        "Tue 2026-03-03 02:30:00 CET  in 13 h",
        "Wed 2026-03-04 02:30:00 CET  in 1 d",
    ]
    wrong = shell.run("check", "0 0 30 2 *", url=False)
    assert wrong.exit_code == 2 and "never fires" in wrong.stderr
    found = json.loads(shell.run("check", "@daily", "--json", url=False).stdout)
    assert found["words"] == "every day at 00:00, UTC" and found["upcoming"][0] == "2026-03-03T00:00:00.000Z"


def test_a_tick_that_no_scheduler_does_is_overdue(shell: Shell) -> None:
    shell.run("add", "sweep", "--every", "5m")
    shell.clock.advance(400)
    assert shell.run().stdout.splitlines()[1].endswith("overdue")
    assert "is a worker or the service running?" in shell.run("show", "sweep").stderr


def test_a_broken_schedule_is_listed_with_its_problem(shell: Shell) -> None:
    import asyncio

    from accoda import NewJob, open_storage
    from accoda.schedules import QUEUE

    async def damage() -> None:
        async with await open_storage(f"sqlite:///{shell.folder}/jobs.db") as store:
            await store.enqueue([NewJob(QUEUE, b"?", key="bad", delay=60)])

    asyncio.run(damage())
    told = shell.run()
    assert "broken" in told.stdout and "bad: the stored schedule cannot be read" in told.stderr
    assert "state" in shell.run("show", "bad").stdout
    assert shell.run("pause", "bad").exit_code == 1
    assert shell.run("delete", "bad", "--yes").exit_code == 0


def test_an_empty_list_says_how_to_begin(shell: Shell) -> None:
    shell.run("add", "sweep", "--every", "5m")
    shell.run("delete", "sweep", "--yes")
    assert "accoda schedules add --help" in shell.run().stderr


def test_the_apps_spec_of_the_queue_is_stored_and_its_secrets_are_hidden_without_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "cli_cards.py").write_text(
        "from accoda import App\n"
        "app = App()\n"
        "@app.handler('cards', secret=('number',), cost=5)\n"
        "async def charge(card: dict) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(shell.folder))
    app = ("--app", "cli_cards:app")
    words = ("add", "daily", "--every", "1h", "--queue", "cards", "--payload")
    assert shell.json(*words, '{"number": "4111"}', *app)["payload"] == {"number": "•••"}
    assert shell.json("show", "daily")["payload"] == {"number": "•••"}
    assert "4111" not in shell.run("show", "daily").stdout + shell.run("list", "--json").stdout
    assert shell.run(*words, '{"number": "•••", "sum": 3}', "--replace").exit_code == 0
    assert shell.run("trigger", "daily").exit_code == 0  # by an app that knows nothing
    [job] = asyncio.run(jobs_of(shell, "cards"))
    assert (payload_of(job), job.cost, extras_of(job).secret) == ({"number": "4111", "sum": 3}, 5, ("number",))
    (shell.folder / "cards.toml").write_text(
        '[schedules.weekly]\nevery = "7d"\nqueue = "cards"\npayload = {number = "4222"}'
    )
    assert "created: weekly" in shell.run("apply", str(shell.folder / "cards.toml"), *app).stdout
    assert shell.json("show", "weekly")["payload"] == {"number": "•••"}
    refused = shell.run("add", "new", *words[2:], '{"number": "•••"}', *app)
    assert refused.exit_code == 2 and "give the value itself" in " ".join(refused.stderr.split())


def test_a_queue_of_a_demand_is_refused_if_the_app_is_given(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell.folder / "cli_deals.py").write_text("from accoda import App\napp = App()\napp.demand('deals')\n")
    monkeypatch.syspath_prepend(str(shell.folder))
    app = ("--app", "cli_deals:app")
    refused = shell.run("add", "daily", "--every", "1h", "--queue", "deals", *app)
    assert refused.exit_code == 2 and "'deals' belongs to a demand" in " ".join(refused.stderr.split())
    (shell.folder / "deals.toml").write_text(
        '[schedules.good]\nevery = "7d"\n[schedules.bad]\nevery = "7d"\nqueue = "deals.deliver"\n'
    )
    assert shell.run("apply", str(shell.folder / "deals.toml"), *app).exit_code == 2
    assert shell.json("list") == []
    assert shell.run("add", "daily", "--every", "1h", "--queue", "deals").exit_code == 0
    refused = shell.run("trigger", "daily", *app)
    assert refused.exit_code == 1 and "'daily' makes no jobs" in " ".join(refused.stderr.split())


async def jobs_of(shell: Shell, queue: str) -> list[JobInfo]:
    async with App(f"sqlite:///{shell.folder}/jobs.db") as app:
        return list(await app.storage.browse(queue, "ready"))
