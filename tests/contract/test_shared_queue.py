"""Several kinds of job of a contract share one queue: each has its type."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from accoda import App, ContractError
from accoda.contract.diff import compare, count_broken
from accoda.contract.export import export
from accoda.contract.generator import generate
from accoda.contract.loader import parse
from accoda.envelope import type_of
from accoda.model import Lanes

SHARED = """
queues:
  - {id: 1, name: report, queue: work, policy: aging, batch: 5, lanes: {limit: 2, shared: shop},
     fields: [{name: month, type: string}]}
  - {id: 2, name: refresh, queue: work, type: cache.refresh, max_attempts: 3, fields: [{name: key, type: int}]}
  - {id: 3, name: emails, fields: [{name: to, type: string}]}
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "shared_queues"
    folder.mkdir()
    for name, text in generate(parse(SHARED)).items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shared_queues")
    for name in [name for name in sys.modules if name.startswith("shared_queues")]:
        del sys.modules[name]


class Mine:
    async def handle_report(self, ctx: Any, storage: Any, jobs: Any) -> None: ...

    async def handle_refresh(self, ctx: Any, storage: Any, jobs: Any) -> None: ...

    async def handle_emails(self, ctx: Any, storage: Any, jobs: Any) -> None: ...


async def test_producers_and_handlers_say_the_queue_and_the_type(made: Any) -> None:
    producer = App("memory://")  # knows no handler
    queues = made.Queues(producer)
    await queues.report.enqueue(month="2030-01")
    await queues.refresh.enqueue_many([made.RefreshJob(key=7)])
    jobs = await producer.storage.take("work", 2)
    assert [type_of(job.data) for job in jobs] == ["report", "cache.refresh"]
    assert all(job.rank > 1e12 for job in jobs)  # the queue's policy holds for each

    mine = Mine()
    app = made.dispatcher(made.Handlers(mine, mine, mine), App("memory://"))
    work = app.handlers["work"]
    assert list(work.by_type) == ["report", "cache.refresh"] and app.handlers["emails"].find(None) is not None
    assert (work.options.number, work.options.batch, work.options.policy) == (1, 5, "aging")
    assert work.options.lanes == Lanes(limit=2, shared="shop")
    assert [handler.options.max_attempts for handler in work.by_type.values()] == [None, 3]
    assert work.options.settle == "explicit" == app.handlers["emails"].options.settle
    assert work.by_type["cache.refresh"].codec.open(jobs[1]).key == 7
    text, _ = export(app.handlers)
    assert (
        '    queue: work\n    type: "cache.refresh"' in text
        and parse(text).sharing("work")[1].type_name == "cache.refresh"
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "{id: 4, name: other, queue: work, type: report, fields: [{name: a, type: int}]}",
            "other has the type 'report'",
        ),
        ("{id: 4, name: work, queue: emails, type: '', fields: [{name: a, type: int}]}", "type must be 1 to 200"),
        (
            "{id: 4, name: b, queue: work, policy: strict, fields: [{name: a, type: int}]}",
            "policy is strict here and aging",
        ),
        (
            "{id: 4, name: b, queue: work, lanes: 3, fields: [{name: a, type: int}]}",
            'lanes is {"limit": 3} here and {"limit": 2, "shared": "shop"} in report; it holds for the whole queue',
        ),
        (
            "{id: 4, name: b, queue: emails, lanes: {fair: true}, fields: [{name: a, type: int}]}\n"
            "  - {id: 5, name: c, queue: emails, policy: aging, fields: [{name: a, type: int}]}",
            "lanes cannot be fair with policy='aging'",
        ),
    ],
)
def test_what_contradicts_in_one_queue_is_refused_with_its_line(line: str, says: str) -> None:
    with pytest.raises(ContractError, match=f"7:.*{re.escape(says)}"):
        parse(f"{SHARED}  - {line}\n")


async def test_a_diff_counts_the_jobs_of_its_own_type(made: Any) -> None:
    app = App("memory://")
    queues = made.Queues(app)
    await queues.report.enqueue(month="2030-01")
    for key in (1, 2):
        await queues.refresh.enqueue(key=key)
    before = parse(SHARED)
    after = parse(SHARED.replace("{name: key, type: int}", "{name: key, type: string}"))
    [change] = await count_broken(compare(before, after), before, after, app.storage)
    assert (change.queue, change.stored) == ("refresh", 2)
    moved = parse(SHARED.replace("type: cache.refresh, ", ""))
    [change] = await count_broken(compare(before, moved), before, moved, app.storage)
    assert (
        change.stored == 2
        and "with the type refresh now, were in the queue work with the type cache.refresh" in change.text
    )
