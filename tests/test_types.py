"""The public API as a type checker sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

GOOD = """
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from accoda import (
    Answer,
    App,
    Batch,
    Demand,
    Draft,
    Chain,
    Enqueued,
    Flow,
    FlowInfo,
    FlowSummary,
    JobCall,
    JobInfo,
    Node,
    NodeInfo,
    Parents,
    Priority,
    Running,
    RunningFlow,
    SyncEnqueued,
    Waiter,
    chain,
    group,
)


@dataclass
class Email:
    to: str


class Row(TypedDict):
    id: int


@contextmanager
def in_tenant(job: Running[Any]) -> Generator[None, None, None]:
    assert_type(job.headers.get("tenant"), str | None)
    yield


def add_tenant(draft: Draft) -> None:
    draft.headers["tenant"] = "acme"


app = App(around=[in_tenant], enqueue_middleware=[add_tenant])


@app.handler
async def bare(email: Email) -> int:
    assert_type(bare.current.payload, Email)
    app.current.enqueue("rows", {"id": 1}, inherit_headers=True)
    return 1


@app.handler("work", type="report", settle="return", concurrency=5, on_dead=bare)
async def typed(month: str) -> list[Email]:
    return []


@app.handler
def nothing() -> bool:
    return True


@app.handler("emails", batch=50, max_attempts=10, lease=60, policy="aging", timeout=5)
async def called(batch: Batch[Email]) -> None:
    for job in batch:
        assert_type(job.payload, Email)


@app.handler("rows", run_in="process")
def sync(row: Row) -> str:
    return ""


deals: Demand[list[int]] = app.demand("deals", cost=5, fresh_for=60)


@deals.fetch(lease=120)
async def fetch(category: str) -> list[int]:
    return [1]


@deals.deliver
def deliver(waiter: Waiter[Email], found: list[int]) -> None:
    assert_type(waiter.data, Email)


async def main() -> None:
    assert_type(await fetch("a"), list[int])
    assert_type(await deals.request("a", Waiter("b", data=Email("c"))), Answer)
    assert_type(await bare(Email("a")), int)
    assert_type(sync({"id": 1}), str)
    assert_type(await bare.enqueue(Email("a"), priority=Priority.HIGH, delay=3), Enqueued[int])
    assert_type(await bare.enqueue(Email("a"), priority="HIGH"), Enqueued[int])
    assert_type(await called.enqueue_many([Email("a")]), list[Enqueued[Any]])
    handle = await typed.enqueue("2030-01", headers={"tenant": "acme"})
    assert_type(await handle.result(timeout=5), list[Email])
    assert_type(await app.result(handle), list[Email])
    assert_type(await app.result(handle.id, type=Email), Email)
    assert_type(await (await nothing.enqueue()).result(), bool)
    assert_type(await deals.get("a"), list[int])
    assert_type(await app.find(1), JobInfo | None)
    assert_type(app.sync.enqueue("emails", 1, cost=3), SyncEnqueued[Any])
    assert_type(sync.sync.enqueue({"id": 1}).result(timeout=3), str)
    assert_type(typed.sync.enqueue_many(["2030-01"])[0].result(), list[Email])
    assert_type(app.sync.result(sync.sync.enqueue({"id": 1})), str)
    assert_type(app.sync.cancel(3), bool)


@app.handler
async def ship() -> None:
    parents = app.current.parents
    assert_type(parents, Parents)
    assert_type(parents["charge"], Any)
    assert_type(parents.get("charge"), Any)
    assert_type(parents.get("charge", type=Email), Email | None)
    assert_type(parents.get("charge", type=list[int]), list[int] | None)
    assert_type(parents.get("charge", "none", type=int), int | str)
    assert_type(app.current.flow, RunningFlow)
    assert_type(app.current.flow.add(bare, Email("a"), name="mail", detached=True), Node)
    assert_type(app.current.flow.map(bare, [Email("a")], after="mail"), list[Node])


async def flows() -> None:
    flow = app.flow("order-17", key="order-17", deadline=60)
    assert_type(flow, Flow)
    first = flow.add(typed, "2030-01", name="first", priority="HIGH", delay=3)
    assert_type(first, Node)
    assert_type(flow.map(bare, [Email("a")], after=[first, "first"]), list[Node])
    flow.add(ship, after=first, when="any_dead")
    flow.add("emails", {"to": "a"}, after=(first,))
    flow.add(("work", "report"), "2030-01")
    assert_type(flow.on_cancel(nothing), Node)
    info = await flow.start()
    assert_type(info, FlowInfo)
    assert_type(info.nodes["first"], NodeInfo)
    assert_type(info.progress, tuple[int, int])
    assert_type(bare.job(Email("a"), name="mail", cost=3), JobCall)
    assert_type(chain(typed.job("2030-01"), group(bare.job(), bare.job(Email("a")))), Chain)
    assert_type(await chain(typed.job("2030-01"), bare.job()).start(), FlowInfo)
    async with app.batch("import", on_done=bare.job(Email("a")), on_ended=typed) as batch:
        await batch.enqueue_many(bare, [Email("a")], priority="LOW")
        assert_type(await batch.info(), FlowInfo)
    assert_type((await app.flows.list(state="failed"))[0], FlowSummary)
    assert_type(await app.flows.get("order-17"), FlowInfo)
    assert_type(app.sync.start(flow), FlowInfo)
    assert_type(app.sync.flows.retry("order-17"), int)
"""

WRONG = """
from accoda import App, Batch

app = App()


@app.handler
async def one(n: int) -> None: ...


@app.handler("many")
async def many(batch: Batch[int]) -> None: ...


async def main() -> None:
    await one.enqueue("text")
    await many.enqueue_many(["text"])
    await one.enqueue(1, prioritty=3)
    one.sync.enqueue("text")
    app.sync.enqueue("one", 1, delay="soon")


@app.handler("x", bach=3)
async def x(n: int) -> None: ...


def flows() -> None:
    one.job("text")
    one.job(1, key="k")
    app.flow("f").add(3)
    app.flow("f").add(one, 1, when="never")
    app.flow("f").add(one, 1, key="k")
    app.flow("f", keyy="k")
    app.batch("b", on_done="report")
"""

WRONG_LINES = {16, 17, 18, 19, 20, 23, *range(28, 35)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a cache that both share: to look at the package is most of the work."""
    return tmp_path_factory.mktemp("types")


def check(folder: Path, code: str) -> str:
    file = folder / "example.py"
    file.write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170)
    return done.stdout


def test_what_is_right_is_accepted_and_keeps_its_types(folder: Path) -> None:
    assert "Success" in check(folder, GOOD)


def test_pyright_in_its_strict_mode_agrees(folder: Path) -> None:
    pytest.importorskip("basedpyright", reason="it is in the extra dev")
    for name, code in (("good.py", GOOD), ("wrong.py", WRONG)):
        (folder / name).write_text(code)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "include": ["good.py", "wrong.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=170)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found}
    assert lines == {("wrong.py", line) for line in WRONG_LINES}, done.stdout


def test_what_is_wrong_is_found(folder: Path) -> None:
    told = check(folder, WRONG)
    lines = {int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line}
    assert lines == WRONG_LINES, told
