"""`accoda generate` and `accoda contract`, as a person and as CI see them: words, exit codes, files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from accoda.cli.commands import accoda

GOOD = """\
queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: string}
"""
FILES = ["__init__.py", "handlers.py", "producers.py", "records.py"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "q.yaml").write_text(GOOD)
    return tmp_path


def run(*words: str) -> Result:
    result = CliRunner().invoke(accoda, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    # A message about a file is one line, so that editors find their way in it, however long the file's name is.
    lines = [line for line in result.output.splitlines() if not line.startswith(("Error: ", "bad.yaml:"))]
    assert all(len(line) <= 80 for line in lines), result.output
    return result


def test_code_is_written_and_then_up_to_date(here: Path) -> None:
    assert run("generate", "q.yaml", "--out", "src/pkg").output == f"src/pkg: wrote {', '.join(FILES)}\n"
    assert sorted(file.name for file in (here / "src" / "pkg").iterdir()) == FILES
    before = {file: file.stat().st_mtime_ns for file in (here / "src" / "pkg").iterdir()}
    again = run("generate", "q.yaml", "--out", "src/pkg")
    assert (again.exit_code, again.output) == (0, "src/pkg: wrote nothing: all is up to date\n")
    assert {file: file.stat().st_mtime_ns for file in (here / "src" / "pkg").iterdir()} == before


def test_only_what_changed_is_written(here: Path) -> None:
    run("generate", "q.yaml", "--out", "pkg")
    (here / "q.yaml").write_text(GOOD.replace("type: string", "type: string, description: The address."))
    assert run("generate", "q.yaml", "--out", "pkg").output == "pkg: wrote records.py\n"


def test_ci_is_told_whether_the_code_is_stale(here: Path) -> None:
    missing = run("generate", "q.yaml", "--out", "pkg", "--check")
    assert missing.exit_code == 1
    assert not (here / "pkg").exists()
    run("generate", "q.yaml", "--out", "pkg")
    fresh = run("generate", "q.yaml", "--out", "pkg", "--check")
    assert (fresh.exit_code, fresh.output) == (0, "")
    (here / "pkg" / "records.py").write_text((here / "pkg" / "records.py").read_text() + "# by hand\n")
    stale = run("generate", "q.yaml", "--out", "pkg", "--check")
    assert stale.exit_code == 1
    assert stale.output == "pkg/records.py is out of date\nRun: accoda generate q.yaml --out pkg\n"
    run("generate", "q.yaml", "--out", "pkg")
    assert run("generate", "q.yaml", "--out", "pkg", "--check").exit_code == 0


def test_a_contract_with_mistakes_writes_nothing(here: Path) -> None:
    (here / "bad.yaml").write_text(GOOD.replace("id: 1", "id: 0").replace("string", "text"))
    result = run("generate", "bad.yaml", "--out", "pkg")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == "Error: bad.yaml:2:9: id must be a whole number from 1 to 2147483647, not '0'"
    assert lines[1].startswith("bad.yaml:5:26: there is no type 'text'; ")
    assert not (here / "pkg").exists()


def test_a_file_that_is_not_there_is_said_to_be_so() -> None:
    for words in (("generate", "none.yaml", "--out", "pkg"), ("contract", "check", "none.yaml")):
        result = run(*words)
        assert result.exit_code == 1
        assert result.output.endswith("none.yaml: cannot be read: No such file or directory\n")


def test_a_folder_that_cannot_be_written_is_said_to_be_so() -> None:
    result = run("generate", "q.yaml", "--out", "q.yaml/pkg")
    assert (result.exit_code, result.output) == (1, "Error: q.yaml/pkg cannot be written: Not a directory\n")
    assert run("generate", "q.yaml", "--out", "q.yaml").exit_code == 2


def test_a_file_in_the_way_is_said_to_be_so_and_nothing_is_left_behind(here: Path) -> None:
    (here / "pkg" / "records.py").mkdir(parents=True)
    result = run("generate", "q.yaml", "--out", "pkg")
    assert result.exit_code == 1
    assert "cannot be written: Is a directory" in result.output
    assert not [file.name for file in (here / "pkg").iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize("content", [b"def mine() -> None: ...\n", b"\xff\xfe"])
def test_code_that_somebody_wrote_is_not_replaced(here: Path, content: bytes) -> None:
    (here / "pkg").mkdir()
    (here / "pkg" / "handlers.py").write_bytes(content)
    result = run("generate", "q.yaml", "--out", "pkg")
    assert result.exit_code == 1
    assert "pkg/handlers.py was not written by accoda generate" in result.output
    assert [file.name for file in (here / "pkg").iterdir()] == ["handlers.py"]
    assert (here / "pkg" / "handlers.py").read_bytes() == content


def test_an_empty_file_is_replaced(here: Path) -> None:
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").touch()
    assert run("generate", "q.yaml", "--out", "pkg").exit_code == 0


def test_several_files_are_checked(here: Path) -> None:
    (here / "two.yaml").write_text(GOOD + GOOD.replace("queues:\n", "").replace("1", "2").replace("emails", "orders"))
    (here / "bad.yaml").write_text("queues: []")
    result = run("contract", "check", "q.yaml", "bad.yaml", "two.yaml")
    assert result.exit_code == 1
    assert sorted(result.output.splitlines()) == [
        "bad.yaml:1:9: queues is empty; there must be at least one queue",
        "q.yaml: 1 queue, no mistakes",
        "two.yaml: 2 queues, no mistakes",
    ]
    assert run("contract", "check", "q.yaml", "two.yaml").exit_code == 0


def test_a_program_reads_the_mistakes_as_json(here: Path) -> None:
    (here / "bad.yaml").write_text("queues: []")
    result = run("contract", "check", "--json", "q.yaml", "bad.yaml", "none.yaml")
    assert result.exit_code == 1
    assert json.loads(result.output) == [
        {
            "file": "bad.yaml",
            "line": 1,
            "column": 9,
            "text": "queues is empty; there must be at least one queue",
        },
        {"text": "none.yaml: cannot be read: No such file or directory"},
    ]
    good = run("contract", "check", "--json", "q.yaml")
    assert (good.exit_code, json.loads(good.output)) == (0, [])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["contract", "chek", "q.yaml"], "No such command 'chek'"),
        (["contract", "check"], "Missing argument 'FILES...'"),
        (["generate", "q.yaml"], "Missing option '--out'"),
        (["generate", "q.yaml", "--out", "pkg", "--chek"], "No such option"),
        (["contract", "diff", "q.yaml"], "Missing argument 'NEW'"),
        (["contract", "export", "no.py"], "write module:app"),
    ],
)
def test_a_slip_of_the_fingers_is_told(words: list[str], expected: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert expected in result.output


@pytest.mark.parametrize(
    "words", [["generate"], ["contract"], *(["contract", name] for name in ("check", "diff", "export", "schema"))]
)
def test_help_fits_a_terminal(words: list[str]) -> None:
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert "..." not in result.output.replace("[ARGS]...", "").replace("FILES...", "")
