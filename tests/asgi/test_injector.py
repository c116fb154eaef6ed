"""Dependencies in handlers, without a request and without the web application."""

import asyncio
import functools
import importlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Query, Request
from fastapi.security import OAuth2PasswordBearer

from accoda import App, Batch
from accoda.app_testing import Trial
from accoda.asgi import Injector, Jobs
from accoda.errors import InvalidInput

log: list[str] = []


@pytest.fixture(autouse=True)
def empty_log() -> None:
    log.clear()


class Session:
    """Something that is opened for each run and closed after it."""

    def __init__(self) -> None:
        log.append("opened")

    def add(self, what: object) -> None:
        log.append(f"added {what}")


async def get_session() -> AsyncIterator[Session]:
    session = Session()
    try:
        yield session
    except Exception as error:
        log.append(f"rolled back: {error}")
        raise
    else:
        log.append("committed")
    finally:
        log.append("closed")


def get_mailer(session: Annotated[Session, Depends(get_session)]) -> str:
    session.add("mailer")
    return threading.current_thread().name


@pytest.fixture
def trial() -> Iterator[Trial]:
    with App("memory://").testing() as trial:
        yield trial


@pytest.fixture
def app(trial: Trial) -> App:
    assert isinstance(trial.app, App)
    return trial.app


async def test_dependencies_of_dependencies_are_provided_once_for_a_run(app: App) -> None:
    @app.handler("emails")
    @Injector(app)
    async def send(
        to: str, session: Annotated[Session, Depends(get_session)], mailer: Annotated[str, Depends(get_mailer)]
    ) -> None:
        session.add(to)

    await send.enqueue("anna")
    await send.enqueue("ben")
    await app.run_until_idle()
    assert sorted(log) == sorted(["opened", "added mailer", "committed", "closed"] * 2 + ["added anna", "added ben"])
    assert log.index("added mailer") < log.index("added anna")


async def test_what_is_not_to_be_cached_is_provided_for_each_parameter(app: App) -> None:
    Fresh = Annotated[Session, Depends(get_session, use_cache=False)]
    seen: list[Session] = []

    @app.handler("emails")
    @Injector(app)
    async def send(to: str, one: Fresh, other: Fresh) -> None:
        seen.extend((one, other))

    await send.enqueue("anna")
    await app.run_until_idle()
    assert seen[0] is not seen[1]


async def test_an_exception_of_the_handler_is_raised_in_its_generators_too(app: App, trial: Trial) -> None:
    @app.handler("emails", max_attempts=1)
    @Injector(app)
    async def send(to: str, session: Annotated[Session, Depends(get_session)]) -> None:
        raise ValueError(f"no such address: {to}")

    await send.enqueue("anna")
    await app.run_until_idle()
    assert log == ["opened", "rolled back: no such address: anna", "closed"]
    trial.assert_dead("emails", "no such address")


async def test_a_generator_that_swallows_the_exception_does_not_make_the_job_done(app: App, trial: Trial) -> None:
    async def forgiving() -> AsyncIterator[None]:
        try:
            yield
        except ValueError:
            log.append("swallowed")

    @app.handler("emails", max_attempts=1)
    @Injector(app)
    async def send(to: str, _: Annotated[None, Depends(forgiving)]) -> None:
        raise ValueError("no such address")

    await send.enqueue("anna")
    await app.run_until_idle()
    trial.assert_dead("emails", "no such address")
    assert log == ["swallowed"]


async def test_a_generator_that_fails_at_its_end_fails_the_job(app: App, trial: Trial) -> None:
    async def commits() -> AsyncIterator[None]:
        yield
        raise ConnectionError("the commit was lost")

    @app.handler("emails", max_attempts=1, keep_for=60)
    @Injector(app)
    async def send(to: str, _: Annotated[None, Depends(commits)]) -> str:
        return "sent"

    await send.enqueue("anna")
    await app.run_until_idle()
    trial.assert_dead("emails", "the commit was lost")


async def test_plain_functions_run_in_threads_for_an_async_handler(app: App) -> None:
    where: list[str] = []

    def plain() -> Iterator[str]:
        where.append("opened in " + threading.current_thread().name)
        yield "value"
        where.append("closed in " + threading.current_thread().name)

    @app.handler("emails")
    @Injector(app)
    async def send(to: str, value: Annotated[str, Depends(plain)]) -> None:
        where.append(f"{value} in " + threading.current_thread().name)

    await send.enqueue("anna")
    await app.run_until_idle()
    assert [line.partition(" in ")[0] for line in where] == ["opened", "value", "closed"]
    assert "MainThread" not in where[0] + where[2] and where[1] == "value in MainThread"


async def test_a_plain_handler_and_its_dependencies_share_its_thread(app: App) -> None:
    threads: list[int] = []

    def session() -> Iterator[str]:
        threads.append(threading.get_ident())
        yield "session"
        threads.append(threading.get_ident())

    @app.handler("emails", keep_for=60)
    @Injector(app)
    def send(to: str, session: Annotated[str, Depends(session)]) -> str:
        threads.append(threading.get_ident())
        return f"{to} by {session}"

    sent = await send.enqueue("anna")
    await app.run_until_idle()
    assert await sent.result() == "anna by session"
    assert len(set(threads)) == 1 and threads[0] != threading.get_ident()


async def test_batches_have_dependencies_too(app: App) -> None:
    @app.handler("emails")
    @Injector(app)
    async def send(batch: Batch[str], session: Annotated[Session, Depends(get_session)]) -> None:
        session.add([job.payload for job in batch])

    await send.enqueue_many(["anna", "ben"])
    await app.run_until_idle()
    assert log == ["opened", "added ['anna', 'ben']", "committed", "closed"]


async def test_the_overrides_of_the_web_application_reach_handlers(app: App) -> None:
    inject = Injector(app)
    web = FastAPI()
    web.dependency_overrides = inject.dependency_overrides

    @app.handler("emails")
    @inject
    async def send(to: str, mailer: Annotated[str, Depends(get_mailer)]) -> None:
        log.append(mailer)

    web.dependency_overrides[get_mailer] = lambda: "a fake mailer"
    await send.enqueue("anna")
    await app.run_until_idle()
    assert log == ["a fake mailer"]


async def test_an_override_of_an_inner_dependency_counts(app: App) -> None:
    inject = Injector(app)

    @app.handler("emails")
    @inject
    async def send(to: str, mailer: Annotated[str, Depends(get_mailer)]) -> None: ...

    inject.dependency_overrides[get_session] = Session
    await send.enqueue("anna")
    await app.run_until_idle()
    assert log == ["opened", "added mailer"]


async def test_an_async_override_in_a_plain_handler_is_refused_in_words(app: App, trial: Trial) -> None:
    inject = Injector(app)

    @app.handler("emails", max_attempts=1)
    @inject
    def send(to: str, session: Annotated[Session, Depends(Session)]) -> None: ...

    inject.dependency_overrides[Session] = get_session
    await send.enqueue("anna")
    await app.run_until_idle()
    trial.assert_dead("emails", "get_session is async, and the plain handler cannot await it; override with a `def`")


async def test_the_app_itself_can_be_had(app: App) -> None:
    async def producer(jobs: Jobs) -> App:
        return jobs

    seen: list[App] = []

    @app.handler("emails")
    @Injector(app)
    async def send(to: str, jobs: Jobs, same: Annotated[App, Depends(producer)]) -> None:
        seen.extend((jobs, same))

    await send.enqueue("anna")
    await app.run_until_idle()
    assert seen == [app, app]


class Settings:
    def __init__(self, session: Annotated[Session, Depends(get_session)], limit: int = 3) -> None:
        self.limit = limit


class Callable:
    async def __call__(self, session: Session = Depends(get_session)) -> str:  # noqa: B008 - FastAPI's other way
        return "called"


async def test_classes_and_objects_that_are_called_are_dependencies_too(app: App) -> None:
    seen: list[Any] = []

    @app.handler("emails")
    @Injector(app)
    async def send(
        to: str, settings: Annotated[Settings, Depends()], called: Annotated[str, Depends(Callable())]
    ) -> None:
        seen.extend((settings.limit, called))

    await send.enqueue("anna")
    await app.run_until_idle()
    assert seen == [3, "called"]


class Service:
    """What it makes is called by the handler, not by the injector."""

    async def __call__(self, to: str) -> str:
        return f"sent to {to}"


async def test_a_class_whose_objects_are_called_is_still_a_class(app: App) -> None:
    @app.handler("emails", keep_for=60)
    @Injector(app)
    async def send(to: str, service: Annotated[Service, Depends()]) -> str:
        return await service(to)

    sent = await send.enqueue("anna")
    await app.run_until_idle()
    assert await sent.result() == "sent to anna"


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@decorated
async def decorated_coroutine(session: Annotated[Session, Depends(get_session)]) -> str:
    session.add("by a coroutine")
    return "coroutine"


@decorated
async def decorated_generator() -> AsyncIterator[str]:
    yield "generator"


@decorated
def decorated_plain_generator() -> Iterator[str]:
    yield "plain generator"


async def test_decorated_dependencies_are_what_they_are_without_the_decorator(app: App) -> None:
    @app.handler("emails", keep_for=60)
    @Injector(app)
    async def send(
        to: str,
        one: Annotated[str, Depends(decorated_coroutine)],
        two: Annotated[str, Depends(decorated_generator)],
        three: Annotated[str, Depends(decorated_plain_generator)],
    ) -> list[str]:
        return [one, two, three]

    sent = await send.enqueue("anna")
    await app.run_until_idle()
    assert await sent.result() == ["coroutine", "generator", "plain generator"]


def test_what_cannot_be_called_is_refused_when_the_handler_is_declared() -> None:
    called = get_session()

    async def calls_it(to: str, session: Annotated[Session, Depends(called)]) -> None: ...
    async def says_no_type(to: str, session=Depends()) -> None: ...  # type: ignore[no-untyped-def] # noqa: B008

    for function in (calls_it, says_no_type):
        with pytest.raises(InvalidInput, match=r"'session' of .*no function or class; write Depends\(get_session\)"):
            Injector(App("memory://"))(function)


def needs_request(request: Request) -> str:
    raise NotImplementedError


def needs_query(page: Annotated[int, Query()] = 1) -> int:
    raise NotImplementedError


def needs_text(text: str) -> str:
    raise NotImplementedError


def deep(inner: Annotated[str, Depends(needs_request)]) -> str:
    raise NotImplementedError


async def wants_request(to: str, request: Request) -> None: ...
async def wants_query(to: str, page: Annotated[int, Depends(needs_query)]) -> None: ...
async def wants_text(to: str, text: Annotated[str, Depends(needs_text)]) -> None: ...
async def wants_deep(to: str, deep: Annotated[str, Depends(deep)]) -> None: ...
async def wants_token(to: str, token: Annotated[str, Depends(OAuth2PasswordBearer("token"))]) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameter"),
    [
        (wants_request, "'request' of wants_request"),
        (wants_query, "'page' of wants_query → needs_query"),
        (wants_text, "'text' of wants_text → needs_text"),
        (wants_deep, "'request' of wants_deep → deep → needs_request"),
        (wants_token, "'request' of wants_token → "),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_needs_a_request_is_refused_when_the_handler_is_declared(function: Any, parameter: str) -> None:
    with pytest.raises(InvalidInput, match="would come from a web request, and a job has none") as refused:
        Injector(App("memory://"))(function)
    assert parameter in str(refused.value) and "Annotated[…, Depends(…)]" in str(refused.value)


def test_a_plain_handler_with_an_async_dependency_is_told_what_to_do() -> None:
    def send(to: str, session: Annotated[Session, Depends(get_session)]) -> None: ...

    with pytest.raises(InvalidInput, match=r"get_session, which send depends on, is async.*`async def`"):
        Injector(App("memory://"))(send)


def test_a_forgotten_inject_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"@inject: see accoda\.asgi\.Injector"):

        @App("memory://").handler("emails")
        async def send(to: str, session: Annotated[Session, Depends(get_session)]) -> None: ...


def test_the_payload_comes_first() -> None:
    async def nightly(session: Annotated[Session, Depends(get_session)]) -> None: ...

    with pytest.raises(InvalidInput, match=r"first parameter of nightly has to be the payload.*`_: None`"):
        Injector(App("memory://"))(nightly)


async def test_a_handler_without_a_payload_says_so(app: App) -> None:
    @app.every("1h", name="nightly")
    @Injector(app)
    async def nightly(_: None, session: Annotated[Session, Depends(get_session)]) -> None:
        session.add("nothing")

    await nightly.enqueue()
    await app.run_until_idle()
    assert "added nothing" in log


async def test_what_a_thread_opens_is_closed_although_the_run_was_cancelled_meanwhile(app: App) -> None:
    opening, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Iterator[None]:
        opening.set()
        go_on.wait(10)
        yield
        closed.set()

    @Injector(app)
    async def send(to: str, _: Annotated[None, Depends(slow)]) -> None:
        raise AssertionError("it was cancelled")

    run = asyncio.ensure_future(send("anna"))
    await asyncio.to_thread(opening.wait, 10)
    run.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert closed.is_set()


MODULE = """
import os
from typing import Annotated
from fastapi import Depends
from accoda import App
from accoda.asgi import Injector

app = App()
inject = Injector(app)

def process() -> int:
    return os.getpid()

@app.handler("emails", run_in="process", keep_for=60)
@inject
def send(to: str, process: Annotated[int, Depends(process)]) -> int:
    return process
"""


def test_a_handler_in_a_process_of_its_own_has_its_dependencies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "injected_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("ACCODA_URL", f"sqlite:///{tmp_path}/jobs.db")
    module = importlib.import_module("injected_module")

    async def run() -> int:
        async with module.app:
            sent = await module.send.enqueue("anna")
            await module.app.run_until_idle()
            return int(await sent.result())

    assert asyncio.run(run()) != os.getpid()
