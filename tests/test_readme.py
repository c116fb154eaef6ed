"""What the README shows is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from accoda import App, ById, Done, NewJob, open_storage

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
PLAIN = [text for language, text in BLOCKS if not language]


def environment(url: str | None) -> dict[str, str]:
    made = {key: value for key, value in os.environ.items() if key != "ACCODA_URL"}
    made["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{made['PATH']}"
    made["PYTHONUNBUFFERED"] = "1"
    return made if url is None else {**made, "ACCODA_URL": url}


def run(words: list[str], folder: Path, url: str | None = None) -> str:
    done = subprocess.run(words, cwd=folder, env=environment(url), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def type_the_example(folder: Path, url: str | None) -> None:
    """The first example, typed as printed; the worker is stopped as a person would, when it has printed all."""
    (folder / "jobs.py").write_text(PYTHON[0])
    first, second, *expected = PLAIN[1].splitlines()
    assert run(first.removeprefix("$ ").split(), folder, url) == ""
    words = second.removeprefix("$ ").split()
    options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=folder, env=environment(url), **options) as worker:
        assert worker.stdout is not None
        printed = [worker.stdout.readline().rstrip("\n") for _ in expected]
        worker.terminate()
        rest, errors = worker.communicate(timeout=60)
    assert sorted(printed) == sorted(expected) and printed[0] == expected[0], errors  # a slow start may find all ready
    assert (worker.returncode, rest) == (0, ""), errors


def test_the_first_example_runs_as_printed_on_sqlite(tmp_path: Path) -> None:
    type_the_example(tmp_path, None)
    assert (tmp_path / "accoda.db").exists()


def test_the_first_example_runs_on_redis_by_changing_the_url_alone(tmp_path: Path) -> None:
    server = need(lambda: RedisServer().start())
    try:
        type_the_example(tmp_path, server.url)
    finally:
        server.stop()


def test_the_example_of_types_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(PYTHON[1] + "\n\nimport asyncio\nasyncio.run(main())\n")
    assert run([sys.executable, "example.py"], tmp_path) == "7\n"


def test_the_example_of_a_batch_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(PYTHON[2] + "\n\nimport asyncio\nasyncio.run(main())\n")
    assert run([sys.executable, "example.py"], tmp_path) == "sent 1\n"


def test_the_example_of_demand_delivers_to_all_thirty(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(PYTHON[3] + "\n\nimport asyncio\nasyncio.run(main())\n")
    printed = run([sys.executable, "example.py"], tmp_path).splitlines()
    assert sorted(printed) == sorted(f"user-{n} ['computers: keyboard -30%']" for n in range(30))


async def test_the_example_of_a_flow_ships() -> None:
    async with App("memory://") as app, app.testing():

        @app.handler
        async def charge(order: int) -> str:
            return f"charge {order}"

        @app.handler
        async def reserve(city: str) -> None: ...

        @app.handler
        async def ship(order: int) -> str:
            return str(app.current.parents["charge"])

        @app.handler
        async def refund(order: int) -> None: ...

        body = "\n".join("    " + line for line in PYTHON[4].splitlines())
        scope = {"app": app, "charge": charge, "reserve": reserve, "ship": ship, "refund": refund}
        exec(f"async def example():\n{body}\n    return info", scope)
        info = await scope["example"]()
        await app.run_until_idle()
        assert await app.flows.result(info.id) == "charge 17"


def test_the_example_of_a_transaction_ships_what_was_committed(tmp_path: Path) -> None:
    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    app = App(f"sqlite:///{tmp_path}/accoda.db", outbox=f"sqlite:///{tmp_path}/shop.db")
    shipped: list[int] = []

    @app.handler
    async def ship(order: int) -> None:
        shipped.append(order)

    try:
        Base.metadata.create_all(engine)
        app.sync.run_until_idle()  # makes the outbox's table
        scope = {"engine": engine, "Session": Session, "ship": ship}
        exec(PYTHON[5], scope | {"order": Order()})  # the database gives its id
        with pytest.raises(IntegrityError):  # 1 is there already
            exec(PYTHON[5], scope | {"order": Order(id=1)})
        app.sync.run_until_idle()
        assert shipped == [1]
    finally:
        app.sync.close()
        engine.dispose()


async def test_the_example_of_schedules_ticks() -> None:
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(PYTHON[6], "README.md", "exec"), scope)
    app: App = scope["app"]
    async with app.testing() as trial:
        await app.run_until_idle()
        trial.advance(minutes=5)
        await app.run_until_idle()
        assert len(trial.runs("sync_stock")) == 1
        trial.advance(days=7)
        await app.run_until_idle()
        assert len(trial.runs("sync_stock")) == 2
        assert len(trial.runs("morning_report")) == 1


def test_the_example_of_the_storage_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(PYTHON[7])
    assert run([sys.executable, "example.py"], tmp_path) == "['password reset', 'report', 'newsletter']\n"


async def test_the_example_of_shared_jobs_does_what_it_says() -> None:
    async with await open_storage("memory://") as store:
        body = "\n".join("    " + line for line in PYTHON[8].splitlines())
        scope = {"store": store, "NewJob": NewJob, "Done": Done, "ById": ById}
        exec(f"async def example():\n{body}\n    return names", scope)
        assert await scope["example"]() == (b"anna", b"ben")
        assert (await store.stats()).queues["deals.deliver"].ready == 2


def test_every_link_of_the_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+?)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
        if page.name == "architecture.md":
            for path in re.findall(
                r"^\| `((?:src|proof|benchmarks|docs|tests|examples)/[^`]+)`", page.read_text(), re.MULTILINE
            ):
                assert (ROOT / path).exists(), f"architecture.md names {path}"
