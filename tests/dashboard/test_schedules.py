"""The pages of schedules."""

from typing import Any

from dash import HOSTILE, Dash


def make(dash: Dash, name: str = "report", **more: Any) -> None:
    token = {} if dash.token is None else {"Authorization": f"Bearer {dash.token}"}
    body = {"name": name, "queue": "reports", "every": 60} | more
    assert dash.service.post("/api/v1/schedules", body, **token).status == 201


def test_without_schedules_it_says_how_to_make_one(dash: Dash) -> None:
    assert "accoda schedules add" in dash.text("/schedules")


def test_schedules_are_told_in_words(dash: Dash) -> None:
    make(dash)
    make(dash, "weekly", every=None) if False else make(dash, "hourly", every=3600)
    page = dash.text("/schedules")
    assert "every minute" in page.lower() and "/schedules/report" in page and "Run now" in page and "Pause" in page


def test_one_schedule_is_shown_with_its_next_ticks_rules_and_jobs(dash: Dash) -> None:
    make(dash, payload={"x": HOSTILE}, jobName=HOSTILE, overlap="skip", catchUp="all")
    page = dash.text("/schedules/report")
    assert page.count("data-exact") == 5 and "Missed runs: run each, up to 100." in page
    assert "Overlapping runs: skip a run while" in page and "&lt;script&gt;" in page
    to, _ = dash.done("/do/schedules/report/trigger")
    assert f'href="{to}"' in dash.text("/schedules/report")
    assert 'href="/schedules/report"' in dash.text(to)
    assert dash.get("/schedules/none").status == 404


def test_a_trigger_that_must_not_overlap_says_so(dash: Dash) -> None:
    make(dash, overlap="skip")
    to, _ = dash.done("/do/schedules/report/trigger", back="/schedules")
    again = dash.done("/do/schedules/report/trigger", back="/schedules")
    assert to == "/jobs/2" and again[0] == "/schedules" and "has not finished" in again[1]


def test_pause_resume_and_delete(dash: Dash) -> None:
    make(dash)
    assert dash.done("/do/schedules/report/pause", back="/schedules")[0] == "/schedules"
    assert 'class="state paused"' in dash.text("/schedules") and "None until" in dash.text("/schedules/report")
    dash.done("/do/schedules/report/resume", back="/schedules")
    assert 'class="state active"' in dash.text("/schedules")
    assert dash.done("/do/schedules/report/delete", back="/schedules/report")[0] == "/schedules"
    assert "No schedules" in dash.text("/schedules")
    for action in ("pause", "resume", "delete", "trigger"):
        assert dash.do(f"/do/schedules/report/{action}").status == 404


def test_actions_need_the_scope_admin(dashes: dict[str, Dash]) -> None:
    make(dashes["admin"])
    assert "/do/" not in dashes["read"].text("/schedules") and "/do/" not in dashes["read"].text("/schedules/report")
    for action in ("pause", "resume", "delete", "trigger"):
        assert dashes["read"].do(f"/do/schedules/report/{action}").status == 403
    assert 'class="state active"' in dashes["read"].text("/schedules")
