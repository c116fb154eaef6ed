"""Headers: added by a middleware when jobs are made, inherited by follow-ups, read-only in the handler."""

import pytest

from accoda import App, Batch, Draft, InvalidInput
from accoda.envelope import unwrap


def add_trace(draft: Draft) -> None:
    draft.headers["trace"] = f"{draft.queue}/{draft.type}/{draft.payload}"


async def headers_in(app: App, queue: str) -> list[dict[str, str]]:
    jobs = await app.storage.browse(queue, "ready", order="id")
    return [unwrap(job.data)[0].headers for job in jobs]


async def test_it_sees_every_job_that_the_app_makes() -> None:
    app = App("memory://", enqueue_middleware=[add_trace])

    @app.handler("a")
    async def a(n: int) -> None:
        app.current.enqueue("b", n + 1, type="t")

    await a.enqueue(1)
    await app.enqueue_many("c", [5, 6], headers={"tenant": "acme"})
    await app.run_until_idle()
    assert await headers_in(app, "b") == [{"trace": "b/t/2"}]
    assert await headers_in(app, "c") == [{"tenant": "acme", "trace": f"c/None/{n}"} for n in (5, 6)]


async def test_a_follow_up_inherits_headers_by_choice_and_its_own_win() -> None:
    app = App("memory://")

    @app.handler("a")
    async def a(batch: Batch[int]) -> None:
        for job in batch:
            with pytest.raises(TypeError):
                job.headers["tenant"] = "changed"  # type: ignore[index]
            job.enqueue("plain", 1)
            job.enqueue("same", 1, inherit_headers=True)
            job.enqueue("mixed", 1, inherit_headers=True, headers={"locale": "it"})

    await a.enqueue(1, headers={"tenant": "acme", "locale": "de"})
    await app.run_until_idle()
    assert await headers_in(app, "plain") == [{}]
    assert await headers_in(app, "same") == [{"tenant": "acme", "locale": "de"}]
    assert await headers_in(app, "mixed") == [{"tenant": "acme", "locale": "it"}]


async def test_what_it_adds_is_checked_and_what_it_raises_goes_to_the_caller() -> None:
    def bad(draft: Draft) -> None:
        draft.headers["n"] = 7  # type: ignore[assignment]

    with pytest.raises(InvalidInput, match="headers: the value of 'n' must be valid text, not 7"):
        await App("memory://", enqueue_middleware=[bad]).enqueue("a", 1)

    def refuses(draft: Draft) -> None:
        raise PermissionError("not you")

    with pytest.raises(PermissionError):
        await App("memory://", enqueue_middleware=[refuses]).enqueue_many("a", [1])

    async def waits(draft: Draft) -> None: ...

    with pytest.raises(InvalidInput, match=r"enqueue_middleware: .*waits is async; pass a plain function"):
        App("memory://", enqueue_middleware=[waits])  # type: ignore[list-item]
