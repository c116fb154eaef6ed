"""The page of one job."""

import json

import msgspec
import pytest
from dash import HOSTILE, Dash
from proof.service import ServiceRunner

from accoda import App, Bury, Done, ManualClock, Retry, Waiter


def test_a_job_that_waits_says_why(dash: Dash) -> None:
    id = dash.enqueue("emails", {"to": "anna@example.com"}, name="Welcome", priority=1)
    page = dash.text(f"/jobs/{id}")
    assert "Why it is not running" in page and "Welcome" in page and "&#34;anna@example.com&#34;" in page
    assert "Set priority" in page and ">Cancel<" in page and ">Delete<" in page and " disabled>Retry<" in page


def test_a_job_is_shown_in_every_state(dash: Dash) -> None:
    delayed = dash.enqueue("a", delay=600)
    assert "Start now" in dash.text(f"/jobs/{delayed}")
    running = dash.enqueue("b")
    [job] = dash.take("b")
    page = dash.text(f"/jobs/{running}")
    assert "Attempt 1 running for" in page and "mailer-1" in page and "Set priority" not in page
    dash.settle(Retry(job.lease, delay=60, reason="no route to host"))
    page = dash.text(f"/jobs/{running}")
    assert "Starts again" in page and "no route to host" in page
    assert '<dt>Attempt</dt><dd><span class="num">2</span>' in page and "Retries" not in page
    [dead] = dash.bury("c", "card refused")
    page = dash.text(f"/jobs/{dead}")
    assert (
        "card refused" in page
        and ">Retry<" in page
        and " disabled>" not in page
        and "Why it is not running" not in page
    )
    done = dash.enqueue("d", keep_for=60)
    dash.settle(Done(dash.take("d")[0].lease, result=b"\x81\xa2ok\xc3"))
    page = dash.text(f"/jobs/{done}")
    assert "Result" in page and "&#34;ok&#34;: true" in page


def test_a_job_whose_workers_died_says_so_and_when_it_runs_next() -> None:
    clock = ManualClock()
    with ServiceRunner(App("memory://", clock=clock)) as service:
        dash = Dash(service)
        id = dash.enqueue("a")
        for _ in range(2):
            dash.take("a")
            clock.advance(3600)
            dash.store(lambda store: store.stats())
        page = dash.text(f"/jobs/{id}")
        assert '<dt>Attempt</dt><dd><span class="num" title="Its lease ended 2 times' in page and ">1</span>" in page
        assert "attempt 1; its lease ended 2 times without an outcome" in page and "quarantined: it runs alone" in page
        clock.advance(7200)
        dash.settle(Bury(dash.take("a")[0].lease, "no"))
        page = dash.text(f"/jobs/{id}")  # `why` is not asked about what has ended
    assert "<dt>Lost leases</dt><dd>Its lease ended 2 times without an outcome" in page


def test_secrets_are_not_shown(dash: Dash) -> None:
    id = dash.service.post(
        "/api/v1/jobs", {"queue": "a", "payload": {"card": "4111-1111", "sum": 3}, "secretFields": ["card"]}
    ).json()["id"]
    [job] = dash.take("a")
    dash.settle(Bury(job.lease, "card 4111-1111 refused"))
    page = dash.text(f"/jobs/{id}")
    assert "4111" not in page and "•••" in page


def test_hostile_texts_are_shown_as_texts(dash: Dash) -> None:
    id = dash.enqueue("a", {HOSTILE: [HOSTILE]}, name=HOSTILE, key=HOSTILE)
    [job] = dash.take("a")
    dash.settle(Bury(job.lease, HOSTILE))
    assert "&lt;script&gt;" in dash.text(f"/jobs/{id}")


def test_a_payload_that_is_too_long_is_cut(dash: Dash) -> None:
    payload = {"text": "x" * 200_000}
    id = dash.enqueue("a", payload, keep_for=60)
    page = dash.text(f"/jobs/{id}")
    assert len(page) < 120_000 and "more characters" in page
    assert f"<code>accoda job {id}</code>" in page and f'href="/jobs/{id}/payload"' in page
    reply = dash.get(f"/jobs/{id}/payload")
    assert reply.headers["content-disposition"] == f'attachment; filename="job-{id}-payload.json"'
    assert reply.json() == payload and reply.headers["content-type"] == "application/json"
    assert dash.get("/jobs/999/payload").status == 404
    dash.settle(Done(dash.take("a")[0].lease, result=msgspec.msgpack.encode("y" * 100_000)))
    assert f'href="/jobs/{id}/result"' in dash.text(f"/jobs/{id}")
    assert dash.get(f"/jobs/{id}/result").json() == "y" * 100_000


def test_a_file_holds_no_secrets_and_needs_the_scope_read(dashes: dict[str, Dash]) -> None:
    body = {"queue": "a", "payload": {"card": "4111-1111"}, "secretFields": ["card"]}
    admin = {"Authorization": f"Bearer {dashes['admin'].token}"}
    id = dashes["admin"].service.post("/api/v1/jobs", body, **admin).json()["id"]
    assert b"4111" not in dashes["read"].get(f"/jobs/{id}/payload").body
    assert dashes["read"].service.get(f"/jobs/{id}/payload").status == 303  # to the login


def test_texts_from_right_to_left_stay_where_they_are_in_json(dash: Dash) -> None:
    key, value = "\u05e9\u05dd", "\u05d0\u05e0\u05d4 <b>"
    id = dash.enqueue("a", {key: value, "plain": 1})
    for path in (f"/jobs/{id}", "/jobs"):
        page = dash.text(path)
        assert f"<bdi>&#34;{key}&#34;</bdi>: <bdi>&#34;\u05d0\u05e0\u05d4 &lt;b&gt;&#34;</bdi>" in page
        assert "&#34;plain&#34;: 1" in page


def test_progress_is_a_bar(dash: Dash) -> None:
    id = dash.enqueue("a")
    dash.take("a")
    dash.store(lambda store: store.write(f"progress/{id}", json.dumps({"fraction": 0.5, "message": "half"}).encode()))
    page = dash.text(f"/jobs/{id}")
    assert 'value="0.5"' in page and "50 %" in page and "half" in page


def test_who_waits_for_a_shared_job_is_named() -> None:
    app = App("memory://")
    deals = app.demand("deals", cost=5)

    @deals.fetch
    async def fetch(key: str) -> int:
        return 1

    with ServiceRunner(app) as service:
        dash = Dash(service)
        answer = dash.run(lambda app: app.demands["deals"].request("toys", Waiter("automation-7", tier="pro")))
        page = dash.text(f"/jobs/{answer.id}")
    assert "automation-7" in page and "pro" in page and 'href="/demands/deals"' in page and "Set priority" not in page
    assert '5</span> <span class="unit">tokens' in page


def test_webhook_calls_are_shown_and_sent_again(dash: Dash) -> None:
    from accoda.envelope import Hook
    from accoda.webhooks.call import QUEUE, Facts, call_job

    body = {"queue": "a", "webhookUrl": "https://example.com/hook"}
    id = dash.service.post("/api/v1/jobs", body).json()["id"]
    assert "Not called yet" in dash.text(f"/jobs/{id}")
    [job] = dash.take("a")
    dash.settle(Bury(job.lease, "no"))
    facts = Facts(id=id, queue="a", attempts=0, created_at=job.created_at)
    call = call_job(Hook("https://example.com/hook"), "job.dead", facts)
    dash.store(lambda store: store.enqueue([call]))
    [sent] = dash.take(QUEUE)
    dash.settle(Bury(sent.lease, "answered 500"))
    page = dash.text(f"/jobs/{id}")
    assert "answered 500" in page and "Send again" in page
    assert dash.done(f"/do/deliveries/{sent.id}/again", back=f"/jobs/{id}")[0] == f"/jobs/{id}"
    assert dash.state(sent.id) == "ready"


def test_retry_and_start_now(dash: Dash) -> None:
    [dead] = dash.bury("a", "x")
    assert dash.done(f"/do/jobs/{dead}/retry") == (f"/jobs/{dead}", f"Job {dead} is ready.")
    delayed = dash.enqueue("a", delay=600)
    dash.done(f"/do/jobs/{delayed}/retry")
    assert dash.state(delayed) == "ready"
    refused = dash.do(f"/do/jobs/{delayed}/retry")
    assert refused.status == 409 and b"runs as soon as a worker is free" in refused.body


def test_cancel_and_delete_lead_to_the_jobs_of_the_queue(dash: Dash) -> None:
    first, second = dash.enqueue("a"), dash.enqueue("a")
    assert dash.done(f"/do/jobs/{first}/cancel", back=f"/jobs/{first}") == (
        "/jobs?queue=a",
        f"Job {first} was cancelled.",
    )
    assert dash.done(f"/do/jobs/{second}/delete", back="/jobs?state=ready")[0] == "/jobs?state=ready"
    assert dash.state(first) is None and dash.state(second) is None
    [dead] = dash.bury("a", "x")
    assert dash.do(f"/do/jobs/{dead}/cancel").status == 409 and dash.state(dead) == "dead"


def test_a_cancelled_job_that_is_kept_says_so_on_its_page(dash: Dash) -> None:
    id = dash.service.post("/api/v1/jobs", {"queue": "a", "keepFor": 600}).json()["id"]
    assert dash.done(f"/do/jobs/{id}/cancel", back=f"/jobs/{id}")[0] == f"/jobs/{id}"
    page = dash.text(f"/jobs/{id}")
    assert "It was cancelled" in page and "and will not run. It is kept for" in page
    assert f"/do/jobs/{id}/cancel" not in page
    assert f"/jobs/{id}" in dash.text("/jobs?state=cancelled")


def test_the_priority_of_a_job_that_waits_is_changed(dash: Dash) -> None:
    id = dash.enqueue("a")
    assert dash.done(f"/do/jobs/{id}/priority", level="CRITICAL")[0] == f"/jobs/{id}"
    assert "level critical" in dash.text(f"/jobs/{id}")
    assert dash.do(f"/do/jobs/{id}/priority", level="SOON").status == 422
    dash.take("a")
    assert dash.do(f"/do/jobs/{id}/priority", level="LOW").status == 409


@pytest.mark.parametrize("id", ["999", "abc", "-1", "9" * 30, "1%2F2", "%3Cscript%3E"])
def test_what_is_no_job_is_told(dash: Dash, id: str) -> None:
    assert dash.get(f"/jobs/{id}").status in (404, 422)
    assert dash.do(f"/do/jobs/{id}/retry").status in (404, 422)


def test_actions_need_the_scope_admin(dashes: dict[str, Dash]) -> None:
    id = dashes["admin"].enqueue("a")
    page = dashes["read"].text(f"/jobs/{id}")
    assert "/do/" not in page
    for action in ("retry", "cancel", "delete", "priority"):
        assert dashes["read"].do(f"/do/jobs/{id}/{action}", level="LOW").status == 403
    assert dashes["admin"].state(id) == "ready"


def test_a_schedules_own_job_leads_to_the_schedule(dash: Dash) -> None:
    dash.service.post("/api/v1/schedules", {"name": "report", "queue": "reports", "every": 60})
    page = dash.text("/jobs/1")
    assert 'href="/schedules/report"' in page and "/do/" not in page


def test_failed_runs_are_told_with_their_tracebacks(dash: Dash) -> None:
    @dash.app.handler("letters", max_attempts=1)
    async def write(payload: dict[str, str]) -> None:
        raise ValueError("no ink " + payload["ink"])

    id = dash.enqueue("letters", {"ink": HOSTILE})
    dash.run(lambda app: app.run_until_idle(["letters"]))
    page = dash.text(f"/jobs/{id}")
    assert "no ink" in page and "&lt;script&gt;" in page


def test_a_read_only_service_shows_no_buttons_and_does_nothing() -> None:
    from accoda.http.options import ServiceOptions
    from accoda.http.security import Security

    options = ServiceOptions(system_jobs=False, policy=Security(no_auth=True, read_only=True))
    with ServiceRunner(App("memory://"), options) as service:
        dash = Dash(service)
        id = dash.enqueue("a")
        for path in ("/jobs", f"/jobs/{id}", "/dead", "/workers", "/schedules", "/budgets", "/demands", "/bulk"):
            assert "/do/" not in dash.text(path)
        assert dash.do(f"/do/jobs/{id}/delete").status == 403 and dash.state(id) == "ready"


def test_every_page_lives(dash: Dash) -> None:
    id = dash.enqueue("a")
    for path in ("/jobs", f"/jobs/{id}", "/dead", "/workers", "/schedules", "/budgets", "/demands"):
        assert '<section id="live" data-live' in dash.text(path)
