"""`accoda doctor`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from accoda import App
from accoda.cli.doctor import doctor


def run(*args: str) -> Result:
    return CliRunner().invoke(doctor, list(args), env={"COLUMNS": "80", "ACCODA_URL": ""})


@pytest.fixture
def url(tmp_path: Path) -> str:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    app = App(url)
    app.sync.enqueue("emails")
    app.sync.close()
    path.chmod(0o600)
    return url


def test_warnings_end_well_unless_it_is_strict(url: str) -> None:
    told = run("--url", url)
    assert told.exit_code == 0 and "start one: accoda worker" in told.output and "1 warning." in told.output
    assert run("--url", url, "--strict").exit_code == 1


def test_problems_end_with_two(tmp_path: Path) -> None:
    told = run("--url", f"sqlite:///{tmp_path / 'none.db'}")
    assert told.exit_code == 2 and "accoda migrate" in told.output
    assert list(tmp_path.iterdir()) == []


def test_no_line_is_longer_than_the_terminal(url: str) -> None:
    lines = run("--url", url).output.splitlines()
    assert max(map(len, lines)) <= 80


def test_json_is_a_list_of_findings(url: str) -> None:
    found = json.loads(run("--url", url, "--json").stdout)
    assert {"level", "what", "found", "advice"} == set(found[0])
    assert {each["level"] for each in found} == {"ok", "warning"}


def test_quiet_leaves_out_what_is_in_order(url: str) -> None:
    told = run("--url", url, "--quiet")
    assert "ok  " not in told.output and "warning" in told.output


def test_an_app_says_where_its_jobs_are(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "doctored_shop.py").write_text(f"from accoda import App\napp = App({url!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    told = run("doctored_shop:app")
    assert told.exit_code == 0 and "emails" in told.output
