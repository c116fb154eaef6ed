"""What a job costs in a transaction: the samples are taken in turns, and the report says what was added."""

from pathlib import Path

import pytest
from benchmarks.transactions.__main__ import COUNT, in_turns, settings_of
from benchmarks.transactions.callers import BY_SQLITE, CASES, IN_SQLITE, Variant, opened_app
from benchmarks.transactions.django_tasks import DjangoRate
from benchmarks.transactions.report import Cost, show


async def test_the_variants_take_turns() -> None:
    asked: list[Variant] = []

    async def sample(variant: Variant, count: int) -> float:
        asked.append(variant)
        return count * {"order": 1e-4, "row": 2e-4, "job": 4e-4}[variant]

    times = await in_turns(sample, 0.01)
    assert asked[:6] == ["order", "row", "job"] * 2
    cost = Cost.of("psycopg", "PostgreSQL", {name: [each / COUNT for each in found] for name, found in times.items()})
    assert cost.ratio == pytest.approx(3.0)


@pytest.mark.parametrize("goes", [IN_SQLITE, BY_SQLITE])
async def test_a_sample_writes_what_it_says(goes: str, tmp_path: Path) -> None:
    (opener,) = (opener for _, where, opener in CASES if where == goes)
    url = f"sqlite:///{tmp_path}/bench.db"
    async with opened_app(goes, url) as app, opener(url, app) as sample:
        for variant in ("order", "row", "job"):
            assert await sample(variant, 2) > 0
        await app.run_until_idle()
        assert (await app.storage.stats()).queues["emails"].ready == 2


def test_the_report_names_what_a_job_adds() -> None:
    costs = [Cost("asyncpg", "PostgreSQL", 1e-3, 1.1e-3, 1.3e-3, 20)]
    rates = [DjangoRate("accoda", "SQLite", 1000.0, 2000.0, 1000.0)]
    text = show(costs, rates, ["django-tasks-db was not measured: no network"])
    assert (
        "| asyncpg | PostgreSQL |   1,000 |          909 |          769 |         100 |         300 |   3.0 |" in text
    )
    assert "|          500 |" in text
    assert text.endswith("no network")


def test_a_database_of_django_is_that_of_the_url() -> None:
    assert settings_of("sqlite:////tmp/a.db")["NAME"] == "/tmp/a.db"
    assert settings_of("postgresql://me@127.0.0.1:5433/shop")["PORT"] == 5433
