"""The page of workers."""

from dash import HOSTILE, Dash

from accoda.model import Head, NewJob
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode
from accoda.storage.protocol import Store

TYPES: dict[str, list[str | None]] = {"a": [None], "b": ["mail", "report <b>", None]}


def beat(dash: Dash, id: str = "w1", problem: str = "", busy: bool = True) -> None:
    async def work(store: Store) -> None:
        now = (await store.look(Head("a"))).at
        states = (ProcessorState("a", 3, 7, now - 2000), ProcessorState()) if busy else (ProcessorState(),)
        value = Heartbeat(
            id, "mailer", "host-7", 4711, now - 60_000, now, ("a", "b"), 2, states, problem=problem, types=TYPES
        )
        await store.write(f"worker/{id}", encode(value), ttl=60)

    dash.store(work)


def test_without_a_worker_it_says_how_to_start_one(dash: Dash) -> None:
    assert "accoda worker app:app" in dash.text("/workers")


def test_what_runs_where_is_shown(dash: Dash) -> None:
    beat(dash)
    page = dash.text("/workers")
    assert "mailer" in page and "host-7" in page and 'href="/jobs/7"' in page and "and 2 more" in page
    assert "(mail, report &lt;b&gt; and others)" in page and page.count("and others)") == 1
    assert 'class="state busy"' in page and "Drain" in page


def test_trouble_is_told_and_shown_as_text(dash: Dash) -> None:
    beat(dash, problem="the store is slow " + HOSTILE)
    page = dash.text("/workers")
    assert "the store is slow" in page and 'class="state trouble"' in page and "&lt;script&gt;" in page


def test_a_worker_is_drained_and_let_go_on(dash: Dash) -> None:
    dash.store(lambda store: store.enqueue([NewJob("a")]))
    beat(dash)
    assert dash.done("/do/workers/w1/drain") == ("/workers", "mailer finishes what it runs and takes nothing more.")
    assert dash.store(lambda store: store.read("drain/w1")) is not None
    assert dash.done("/do/workers/w1/undrain") == ("/workers", "mailer takes jobs again.")
    assert dash.do("/do/workers/none/drain").status == 404


def test_actions_need_the_scope_admin(dashes: dict[str, Dash]) -> None:
    beat(dashes["admin"])
    assert "/do/" not in dashes["read"].text("/workers")
    for action in ("drain", "undrain"):
        assert dashes["read"].do(f"/do/workers/w1/{action}").status == 403
