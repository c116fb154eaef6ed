"""The command line, as a person types it."""

import os
import subprocess
import sys
from pathlib import Path


def accoda(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from accoda.cli import main; main()", *words]
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)


def test_migrate_creates_a_store_and_may_be_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        told = accoda("migrate", "sqlite:///jobs.db", folder=tmp_path)
        assert (told.returncode, told.stdout, told.stderr) == (0, "The store is up to date.\n", "")
    assert (tmp_path / "jobs.db").exists()


def test_a_wrong_url_is_one_line_that_says_what_to_write(tmp_path: Path) -> None:
    told = accoda("migrate", "sqllite:///jobs.db", folder=tmp_path)
    assert told.returncode == 2
    assert told.stderr.startswith("Error: url: there is no storage for sqllite://; use one of memory://, sqlite://")
    assert told.stderr.count("\n") == 1


def test_a_store_of_a_newer_version_says_what_to_do(tmp_path: Path) -> None:
    accoda("migrate", "sqlite:///jobs.db", folder=tmp_path)
    import apsw

    raw = apsw.Connection(str(tmp_path / "jobs.db"))
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    told = accoda("migrate", "sqlite:///jobs.db", folder=tmp_path)
    assert told.returncode == 3
    assert "was written by a newer Accoda" in told.stderr and "pip install --upgrade accoda" in told.stderr


def test_no_url_is_a_question_of_usage(tmp_path: Path) -> None:
    told = accoda("migrate", folder=tmp_path)
    assert told.returncode == 2
    assert "Missing argument 'URL'" in told.stderr
