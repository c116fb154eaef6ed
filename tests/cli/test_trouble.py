"""What goes wrong is a line and a code: no store, Ctrl-C, a reader that has gone."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_world import World

from accoda.cli.common import shown_url
from accoda.runtime.attempts import Attempt, write_attempts

CODE = "from accoda.cli import main; main()"


def start(*words: str, folder: Path, **given: object) -> "subprocess.Popen[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ACCODA_")}
    streams: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | given
    command = [sys.executable, "-c", CODE, *words]
    return subprocess.Popen(command, cwd=folder, env=environ, text=True, **streams)  # type: ignore[call-overload,no-any-return]


def test_a_store_that_does_not_exist_is_not_created_by_reading(world: World) -> None:
    for words in (
        ("jobs",),
        ("queues",),
        ("dead",),
        ("workers",),
        ("budgets",),
        ("job", "1"),
        ("job", "1", "delete", "-y"),
    ):
        told = world.run(*words, "--url", "sqlite:///nothing.db")
        assert (told.exit_code, told.stdout) == (3, ""), words
        assert told.stderr == (
            "Error: there is no file nothing.db; to make a store there: accoda migrate sqlite:///nothing.db\n"
        )
    assert not Path("nothing.db").exists()


def test_without_a_url_and_a_file_it_asks_which_store(world: World) -> None:
    Path("accoda.db").unlink()
    for words in (("jobs",), ("enqueue", "calls", "1")):
        told = world.run(*words)
        assert told.exit_code == 2
        assert told.stderr == "Error: url: which store? Give --url or set ACCODA_URL, such as sqlite:///jobs.db\n"
    assert not Path("accoda.db").exists()


def test_the_url_is_taken_from_the_option_then_the_app_then_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("there.py").write_text('from accoda import App\napp = App("sqlite:///there.db")\n')
    world.run("enqueue", "there", "1", "--url", "sqlite:///there.db")
    world.run("enqueue", "here", "1", "--url", "sqlite:///here.db")
    monkeypatch.setenv("ACCODA_URL", "sqlite:///here.db")
    assert world.run("queues", "here").exit_code == 0
    assert world.run("queues", "there", "--app", "there:app").exit_code == 0
    assert world.run("queues", "emails", "--app", "there:app", "--url", "sqlite:///accoda.db").exit_code == 0


def test_a_server_that_does_not_answer_is_a_3(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accoda.cli.common.PATIENCE", 0.1)
    told = world.run("queues", "--url", "redis://anna:secret@127.0.0.1:1/0")
    assert told.exit_code == 3
    assert told.stderr == "Error: redis://anna:•••@127.0.0.1:1/0 did not answer within 0.1 s; is it running?\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@db/0", "redis://:•••@db/0"),
        ("redis://anna:se@cr:et@db/0", "redis://anna:•••@db/0"),
        ("postgresql://db/jobs?password=secret&pool=3", "postgresql://db/jobs?password=•••&pool=3"),
        ("postgresql://db/jobs?sslpassword=secret&PASSWORD=x", "postgresql://db/jobs?sslpassword=•••&PASSWORD=•••"),
        ("redis+sentinel://h/0?sentinel_password=secret", "redis+sentinel://h/0?sentinel_password=•••"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_a_password_is_never_shown_wherever_it_stands_in_the_url(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_file_that_is_no_store_is_a_3(world: World) -> None:
    told = world.run("queues", "--url", "sqlite:///people.jsonl")
    assert told.exit_code == 3
    assert told.stderr.startswith("Error: ") and told.stderr.count("\n") == 1


def test_an_error_is_wrapped_if_the_width_is_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = world.run("job", "99").stderr
    assert whole.count("\n") == 1
    broken = world.run("job", "99", terminal=True).stderr
    monkeypatch.setenv("COLUMNS", "80")
    assert world.run("job", "99").stderr == broken
    assert broken.replace("\n", " ").strip() == whole.strip()
    assert broken.count("\n") > 1 and max(map(len, broken.splitlines())) <= 80


def test_a_url_in_an_error_is_never_broken(world: World) -> None:
    url = f"sqlite:///{'long' * 30}.db"
    assert url in world.run("jobs", "--url", url, terminal=True).stderr.splitlines()


def test_a_file_of_schedules_that_cannot_be_used_is_a_2(world: World) -> None:
    told = world.run("schedules", "apply", "wrong.toml")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("Error: wrong.toml: [schedules.poll] evry: there is no such key")
    assert world.run("schedules").stdout == ""


def test_ctrl_c_ends_it_with_130_and_a_word(world: World) -> None:
    # A shell starts background jobs (`make test &`) with SIGINT ignored, and children inherit that.
    heeded = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    following = start("job", "2", "follow", folder=Path.cwd(), preexec_fn=heeded)
    assert following.stdout is not None
    assert "delayed" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=30)
    assert (following.returncode, out, err) == (130, "", "Stopped.\n")


@pytest.mark.parametrize("words", [("jobs",), ("job", "9"), ("queues", "--json"), ("dead", "--help")])
def test_a_reader_that_has_gone_is_no_error(world: World, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    told = start(*words, folder=Path.cwd(), stdout=writer)
    os.close(writer)
    _, err = told.communicate(timeout=30)
    assert (told.returncode, err) == (141, "")


def test_piped_output_has_no_colours(world: World) -> None:
    out, err = start("jobs", folder=Path.cwd()).communicate(timeout=30)
    assert err == "" and "\x1b" not in out and max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("words", [("jobs",), ("queues",), ("doctor",)])
def test_output_that_was_closed_before_the_start_is_no_error(world: World, words: tuple[str, ...]) -> None:
    told = start(*words, folder=Path.cwd(), stdout=None, preexec_fn=lambda: os.close(1))
    _, err = told.communicate(timeout=30)
    assert (told.returncode, err) == (0, "")


def test_input_that_was_closed_before_the_start_is_reported(world: World) -> None:
    told = start("enqueue", "emails", "-", folder=Path.cwd(), stdin=None, preexec_fn=lambda: os.close(0))
    _, err = told.communicate(timeout=30)
    assert (told.returncode, err) == (2, "Error: payload: is to be read from standard input, which is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_is_reported_in_a_line(world: World) -> None:
    with Path("/dev/full").open("w") as full:
        told = start("jobs", folder=Path.cwd(), stdout=full)
        _, err = told.communicate(timeout=30)
    assert (told.returncode, err) == (1, "Error: the output cannot be written: no space is left where it goes\n")


def test_an_import_that_fails_is_told_with_the_file_and_line_of_the_users_code(world: World) -> None:
    Path("config.py").write_text("import os\n\n\ndef password():\n    return os.environ['NO_SUCH_NAME']\n")
    Path("broken.py").write_text("import config\n\nPASSWORD = config.password()\n")
    told = world.run("jobs", "--app", "broken:app")
    problem, place = told.stderr.splitlines()
    assert problem == "Error: cannot import broken: KeyError: 'NO_SUCH_NAME'"
    assert place == "  config.py, line 5: return os.environ['NO_SUCH_NAME']"
    Path("broken2.py").write_text("x = 1\nx = = 2\n")
    assert world.run("jobs", "--app", "broken2").stderr.endswith("\n  broken2.py, line 2: x = = 2\n")
    Path("broken3.py").write_text("\nimport nothing_of_that_name\n")
    said = world.run("jobs", "--app", "broken3").stderr
    assert said.endswith("which is missing\n  broken3.py, line 2: import nothing_of_that_name\n")


def test_a_job_that_failed_is_shown_with_its_traceback(world: World) -> None:
    async def note(app: Any) -> None:
        await write_attempts(app.storage, 3, [Attempt(0, "w1", 1, 2, "retry", "ValueError: no", "Traceback: line 7")])

    world.store(note)
    assert "traceback" in (shown := world.run("job", "3").stdout) and "Traceback: line 7" in shown
