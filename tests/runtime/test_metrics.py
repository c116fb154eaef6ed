"""The metrics of one worker: names, labels, values, and what they cost in series."""

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families
from tests.runtime.running import running

from accoda import App, Bury, Done, Lease, QueueStats, Retry
from accoda.budget import BudgetView
from accoda.budget.wallet import Tally
from accoda.flows.model import FlowState
from accoda.model import Stats
from accoda.runtime.events import BatchReport, HandlerStats, Monitor
from accoda.runtime.metrics import FAMILIES, Metrics
from accoda.runtime.metrics.families import LANE_JOBS
from accoda.runtime.metrics.monitor import MOST_TYPES

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
OURS = {family.name for family in FAMILIES}


def report(queue: str = "emails", number: int | None = 1, jobs: int = 10, **more: object) -> BatchReport:
    stats = more.pop("stats", HandlerStats(processed=jobs))
    return BatchReport(queue, number, jobs, stats, more.pop("cycle", 0.12), more.pop("waited", 0.5), **more)  # type: ignore[arg-type]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_it_is_a_monitor(metrics: Metrics) -> None:
    monitor: Monitor = metrics
    monitor.batch_started("emails", 1, 10)
    monitor.batch_ended(report())
    monitor.processors_changed(3)


def test_the_names_of_the_design_are_there_with_their_labels(metrics: Metrics) -> None:
    metrics.batch_started("emails", 1, 10)
    metrics.batch_ended(report())
    metrics.processors_changed(3)
    both = {"queue": "emails", "queue_num": "1"}
    assert value(metrics, "queue_job_processor_cycle_duration_seconds_count", **both) == 1
    assert value(metrics, "queue_job_processor_cycle_duration_seconds_sum", **both) == pytest.approx(0.12)
    assert value(metrics, "queue_tasks_in_progress", **both) == 0
    assert value(metrics, "queue_running_workers") == 1
    assert value(metrics, "queue_running_job_processors") == 3


def test_jobs_are_in_progress_between_start_and_end(metrics: Metrics) -> None:
    both = {"queue": "emails", "queue_num": ""}
    metrics.batch_started("emails", None, 10)
    metrics.batch_started("emails", None, 5)
    assert value(metrics, "queue_tasks_in_progress", **both) == 15
    metrics.batch_ended(report(number=None, jobs=10))
    assert value(metrics, "queue_tasks_in_progress", **both) == 5


def test_a_batch_reported_in_parts_is_one_cycle(metrics: Metrics) -> None:
    both = {"queue": "emails", "queue_num": "1"}
    metrics.batch_started("emails", 1, 10)
    metrics.batch_ended(report(jobs=4, cycle=0.0))
    metrics.batch_ended(report(jobs=6, cycle=2.0))
    assert value(metrics, "queue_tasks_in_progress", **both) == 0
    assert value(metrics, "queue_job_processor_cycle_duration_seconds_count", **both) == 1
    assert value(metrics, "queue_job_wait_seconds_count", **both) == 1
    assert value(metrics, "queue_job_outcomes_total", **both, outcome="done") == 10


def test_jobs_are_counted_and_timed_by_type_and_only_so_many_types_have_series(metrics: Metrics) -> None:
    def ended(type: str | None, **stats: int | float) -> None:
        jobs = int(sum(stats.get(name, 0) for name in ("processed", "retried", "buried")))
        metrics.batch_ended(report(jobs=jobs, type=type, stats=HandlerStats(**stats)))  # type: ignore[arg-type]

    ended(None, processed=3, duration=0.2)
    ended("mail", retried=1, duration=2.0)
    ended("mail", buried=1)
    labels = {"queue": "emails", "type": "mail"}
    assert value(metrics, "queue_job_type_outcomes_total", queue="emails", type="", outcome="done") == 3
    assert value(metrics, "queue_job_duration_seconds_count", queue="emails", type="", outcome="done") == 3
    assert value(metrics, "queue_job_duration_seconds_sum", **labels, outcome="retried") == 2.0
    assert value(metrics, "queue_job_duration_seconds_count", **labels, outcome="buried") == 0, "it was not run"
    for number in range(MOST_TYPES + 50):
        ended(f"type-{number}", processed=1)
    assert value(metrics, "queue_job_type_outcomes_total", queue="emails", type="other", outcome="done") == 52
    assert value(metrics, "queue_job_type_outcomes_total", queue="emails", type="type-0", outcome="done") == 1
    ended("type-0", processed=1)
    assert value(metrics, "queue_job_type_outcomes_total", queue="emails", type="type-0", outcome="done") == 2


def test_outcomes_errors_and_lost_leases_are_counted(metrics: Metrics) -> None:
    # Three of the runs that went well were refused, so `processed` is more than what is done.
    stats = HandlerStats(processed=7, errors=3, retried=2, buried=1, lost=3)
    metrics.batch_started("emails", 1, 10)
    metrics.batch_ended(report(stats=stats))
    both = {"queue": "emails", "queue_num": "1"}
    outcomes = {
        outcome: value(metrics, "queue_job_outcomes_total", **both, outcome=outcome)
        for outcome in ("done", "retried", "buried")
    }
    assert outcomes == {"done": 4, "retried": 2, "buried": 1}
    assert value(metrics, "queue_job_errors_total", **both) == 3
    assert value(metrics, "queue_lost_leases_total", **both) == 3


def test_a_cycle_is_slow_beyond_the_setting_of_its_queue_as_it_is_now() -> None:
    limits = {"emails": 10.0, "movies": 60.0}
    metrics = Metrics(slow_cycle=limits.__getitem__)
    for queue in limits:
        metrics.batch_ended(report(queue=queue, cycle=11.0))
        metrics.batch_ended(report(queue=queue, cycle=10.0))
    assert value(metrics, "queue_slow_cycles_total", queue="emails", queue_num="1") == 1
    assert value(metrics, "queue_slow_cycles_total", queue="movies", queue_num="1") == 0
    limits["movies"] = 5.0
    metrics.batch_ended(report(queue="movies", cycle=6.0))
    assert value(metrics, "queue_slow_cycles_total", queue="movies", queue_num="1") == 1


def test_by_default_a_cycle_is_slow_after_ten_seconds(metrics: Metrics) -> None:
    metrics.batch_ended(report(cycle=10.0))
    metrics.batch_ended(report(cycle=10.1))
    assert value(metrics, "queue_slow_cycles_total", queue="emails", queue_num="1") == 1


def test_a_wait_below_zero_of_clocks_that_differ_counts_as_none(metrics: Metrics) -> None:
    metrics.batch_ended(report(waited=-4.0))
    assert value(metrics, "queue_job_wait_seconds_sum", queue="emails", queue_num="1") == 0


def test_the_worker_runs_until_its_last_processor_is_gone(metrics: Metrics) -> None:
    for processors, workers in ((1, 1), (8, 1), (0, 0)):
        metrics.processors_changed(processors)
        assert value(metrics, "queue_running_workers") == workers
        assert value(metrics, "queue_running_job_processors") == processors


def test_depths_are_those_of_the_store(metrics: Metrics) -> None:
    stats = QueueStats(total=31, ready=1, delayed=2, taken=4, dead=8, held=16, oldest_age=2.5, paused=True, expired=6)
    metrics.depths(Stats({"emails": stats}), {"emails": 1})
    both = {"queue": "emails", "queue_num": "1"}
    states = {s: value(metrics, "queue_jobs", **both, state=s) for s in ("ready", "delayed", "held", "taken", "dead")}
    assert states == {"ready": 1, "delayed": 2, "held": 16, "taken": 4, "dead": 8}
    assert value(metrics, "queue_oldest_ready_job_age_seconds", **both) == 2.5
    assert value(metrics, "queue_paused", **both) == 1
    assert value(metrics, "queue_expired_leases", **both) == 6
    metrics.depths(Stats({"emails": QueueStats()}), {"emails": 1})
    assert value(metrics, "queue_jobs", **both, state="ready") == 0
    assert value(metrics, "queue_paused", **both) == 0


def test_flows_are_counted_by_state_and_their_ends_are_timed_without_a_label_for_each(metrics: Metrics) -> None:
    metrics.flows({"running": 3, "done": 2, "failed": 0, "cancelled": 0, "expired": 0})
    metrics.flows({"running": 1, "done": 4, "failed": 0, "cancelled": 0, "expired": 0})
    for number in range(10):
        metrics.flow_ended(f"order-{number}", "done", 2.0)
    metrics.flow_ended("order-11", "failed", 0.2)
    assert value(metrics, "accoda_flows", state="running") == 1
    assert value(metrics, "accoda_flows", state="failed") == 0
    assert value(metrics, "accoda_flows_ended_total", state="done") == 10
    assert value(metrics, "accoda_flow_duration_seconds_count", state="failed") == 1
    assert value(metrics, "accoda_flow_duration_seconds_sum", state="done") == pytest.approx(20.0)
    assert b"order-" not in metrics.page()


async def test_a_worker_tells_its_metrics_of_flows(metrics: Metrics) -> None:
    app = App("memory://")
    counted = asyncio.Event()
    ended = asyncio.Event()

    @app.handler("stock")
    async def reserve(part: int) -> None: ...

    def show(counts: Mapping[FlowState, int]) -> None:
        metrics.flows(counts)
        counted.set()

    def end(name: str, state: FlowState, seconds: float) -> None:
        metrics.flow_ended(name, state, seconds)
        ended.set()

    async with app:
        flow = app.flow("order")
        flow.add(reserve, 1)
        await flow.start()
        async with running(app, on_flows=show, on_flow_end=end), asyncio.timeout(30):
            await counted.wait()
            await ended.wait()
    assert value(metrics, "accoda_flows_ended_total", state="done") == 1
    assert value(metrics, "accoda_flow_duration_seconds_count", state="done") == 1


def test_only_queues_that_the_worker_serves_become_series(metrics: Metrics) -> None:
    others = {f"of-another-app-{n}": QueueStats(ready=1) for n in range(100)}
    metrics.depths(Stats(others), {"emails": 1})
    assert b"of-another-app" not in metrics.page()
    # A queue that never had a job is not in the store's statistics; it is served, and empty.
    assert value(metrics, "queue_jobs", queue="emails", queue_num="1", state="ready") == 0


def test_two_workers_of_a_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.batch_started("emails", 1, 10)
    assert value(one, "queue_tasks_in_progress", queue="emails", queue_num="1") == 10
    assert value(other, "queue_tasks_in_progress", queue="emails", queue_num="1") is None


@pytest.fixture
def users_counter() -> Iterator[Counter]:
    counter = Counter("mails_sent", "What a handler counts for itself")
    yield counter
    REGISTRY.unregister(counter)


def test_what_the_program_counts_itself_is_on_the_page_too(metrics: Metrics, users_counter: Counter) -> None:
    users_counter.inc(3)
    names = {metric.name for metric in text_string_to_metric_families(metrics.page().decode())}
    assert {"mails_sent", "queue_jobs", "python_info"} <= names


class _Broken:
    def collect(self) -> Iterator[object]:
        raise RuntimeError("no sensor")
        yield


def test_a_broken_collector_of_the_program_does_not_take_our_page_away(
    metrics: Metrics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("accoda"), "propagate", True)
    broken = _Broken()
    REGISTRY._collector_to_names[broken] = []  # type: ignore[index]  # a collector that breaks after it was registered
    try:
        page = metrics.page()
    finally:
        del REGISTRY._collector_to_names[broken]  # type: ignore[arg-type]
    assert b"queue_running_workers 0.0" in page
    assert "RuntimeError: no sensor" in caplog.text


def test_a_registry_of_ones_own_can_be_used() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    metrics.processors_changed(2)
    assert registry.get_sample_value("queue_running_job_processors") == 2


def test_the_page_holds_nothing_of_a_job(metrics: Metrics) -> None:
    lease = Lease("emails", 4711, 3, 0)
    failed = (Retry(lease, reason="secret"), Bury(lease, "secret"), Done(lease, result=b"secret"))
    metrics.batch_ended(report(stats=HandlerStats(errors=2, last_error="secret"), failed=failed))
    assert b"secret" not in metrics.page()
    assert b"4711" not in metrics.page()


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name, kind and labels of each row of the tables of docs/metrics.md."""
    rows = re.findall(r"^\| `((?:queue|accoda)_\w+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_documentation_lists_every_metric_with_its_kind_and_labels(metrics: Metrics) -> None:
    assert documented() == {family.name: (family.kind, family.labels) for family in (*FAMILIES, LANE_JOBS)}
    registered = {metric.name + ("_total" if metric.type == "counter" else "") for metric in metrics.registry.collect()}
    assert registered == OURS


def test_the_example_of_the_documentation_runs() -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "queue_running_workers 1.0" in run.stdout


def test_without_the_library_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
from accoda import AccodaError
from accoda.runtime.metrics import Metrics, serve
serve(0).close()  # health needs no library
try:
    Metrics()
except AccodaError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'accoda[metrics]'" in run.stdout, run.stderr


def test_a_budget_shows_its_account_and_what_this_worker_counts(metrics: Metrics) -> None:
    view = BudgetView(
        name="keepa",
        capacity=20,
        left=12,
        reserved=5,
        available=3,
        at=1,
        closed_until=9,
        next_refill=None,
        used_today=40,
        refused_today=1,
        utilisation=0.5,
        pace=1.0,
        observed_left=None,
        observed_at=None,
        reservations={},
        claims={},
    )
    tally = Tally(used=8.0, refused=1, waits=2)
    metrics.budgets({"keepa": view, "of-another-app": view}, {"keepa": tally})
    tally.used, tally.waits = 11.0, 3
    metrics.budgets({"keepa": view}, {"keepa": tally})
    names = ("tokens_capacity", "tokens_available", "tokens_reserved", "tokens_used_today", "utilisation", "closed")
    shown = [value(metrics, f"queue_budget_{name}", budget="keepa") for name in names]
    assert shown == [20, 3, 5, 40, 0.5, 1]
    counted = [f"queue_budget_{name}_total" for name in ("tokens_used", "refusals", "waits")]
    assert [value(metrics, name, budget="keepa") for name in counted] == [11, 1, 3]
    assert b"of-another-app" not in metrics.page()
