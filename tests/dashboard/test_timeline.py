"""What has happened to a job, in order."""

from typing import Any

from accoda.dashboard.pages.timeline import timeline
from accoda.operations.attempt_text import attempt_text
from accoda.operations.jobs import RunView
from accoda.operations.views import JobView

AT = "2030-01-01T09:00:0{}.000Z"


def job(state: str, **more: Any) -> JobView:
    fields = {"id": 7, "queue": "a", "created_at": AT.format(0), "scheduled_at": AT.format(1)} | more
    return JobView(state=state, **fields)  # type: ignore[arg-type]


def kinds(view: JobView, *runs: RunView) -> list[str]:
    return [step.kind for step in timeline(view, runs)]


def test_a_new_job_was_created_and_waits() -> None:
    assert kinds(job("ready")) == ["created", "waits"]
    assert kinds(job("delayed")) == ["created", "waits"]
    assert timeline(job("delayed", schedule="report"), [])[0].title == "Enqueued by the schedule report"


def test_a_job_that_ends_says_how() -> None:
    assert kinds(job("done", ended_at=AT.format(2))) == ["created", "done"]
    assert kinds(job("cancelled", ended_at=AT.format(2))) == ["created", "cancelled"]
    last = timeline(job("dead", reason="no", ended_at=AT.format(2)), [])[-1]
    assert (last.kind, last.error) == ("dead", "no")
    assert timeline(job("taken", taken_at=AT.format(3), worker="w"), [])[-1].worker == "w"


def test_attempts_that_nobody_wrote_down_are_told_as_a_gap() -> None:
    steps = timeline(job("ready", attempts=3, reason="no route"), [])
    assert [step.kind for step in steps] == ["created", "gap", "waits"]
    assert "3 times" in steps[1].title and steps[1].error == "no route"


def run(attempt: int, outcome: str = "retry", tries: int | None = None) -> RunView:
    at = AT.format(attempt + 2)
    fields = {"worker": "w", "started_at": at, "ended_at": at, "ran_for": 1.5, "error": "no", "traceback": "Traceback"}
    text = attempt_text(attempt if tries is None else tries)
    return RunView(attempt=attempt, attempt_text=text, outcome=outcome, **fields)  # type: ignore[arg-type]


def test_failed_runs_are_shown_one_by_one() -> None:
    steps = timeline(job("dead", attempts=1, reason="no"), [run(0), run(1, "bury")])
    assert [step.kind for step in steps] == ["created", "failed", "failed", "dead"]
    assert steps[1].title == "Attempt 1 failed, will retry" and steps[1].traceback == "Traceback"
    assert steps[2].title == "Attempt 2 failed, no retries left"
    assert steps[3].error == ""  # the run has told it


def test_of_some_that_are_not_on_record_the_number_is_told() -> None:
    steps = timeline(job("delayed", attempts=12), [run(5), run(6)])
    assert [step.kind for step in steps] == ["created", "gap", "failed", "failed", "waits"]
    assert "10 times" in steps[1].title


def test_an_attempt_has_the_same_number_as_everywhere_else() -> None:
    # Its lease ended twice without an outcome, so the run that failed came with the fencing number 2.
    steps = timeline(job("taken", attempts=3, tries=1, crashes=2, attempt_text="attempt 2 of 3"), [run(2, tries=0)])
    assert [step.title for step in steps[1:]] == [
        "Lease ended 2 times without an outcome",
        "Attempt 1 failed, will retry",
        "Attempt 2 of 3 running for",
    ]
