"""`Metrics`: a monitor that counts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from accoda.budget import BudgetView
from accoda.budget.wallet import Tally
from accoda.demand import DemandView
from accoda.flows.model import FlowState
from accoda.model import QueueStats, Stats
from accoda.runtime.events import BatchReport
from accoda.runtime.metrics.families import load, register

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

log = logging.getLogger("accoda.metrics")

MOST_TYPES = 200
"""Types of a queue that have series of their own."""
OTHER = "other"
"""All further types together."""
_NOTHING = QueueStats()
_NO_TALLY = Tally()


def ten_seconds(queue: str) -> float:
    """The default of the setting `slow_cycle`."""
    return 10.0


def done_jobs(report: BatchReport) -> int:
    """How many jobs of a report are done: `processed` also counts runs whose outcome was refused."""
    stats = report.stats
    return max(0, report.jobs - stats.retried - stats.buried - stats.lost - stats.cancelled)


class Metrics:
    """Counts what one worker tells. Each has a registry of its own, so several workers fit in one process.

    Where several processes share a page (`SharedMetrics`) the numbers are kept by process: one `Metrics` in each.

    `slow_cycle` gives the seconds beyond which a cycle of a queue counts as slow; it is asked for every batch, so a
    setting may change while the worker runs.
    """

    def __init__(
        self, *, slow_cycle: Callable[[str], float] = ten_seconds, registry: CollectorRegistry | None = None
    ) -> None:
        client = load()
        _warn_if_not_shared()
        self.registry: CollectorRegistry = client.CollectorRegistry() if registry is None else registry
        self._slow_cycle = slow_cycle
        self._families = register(self.registry)
        self._workers = self._families["queue_running_workers"]
        self._processors = self._families["queue_running_job_processors"]
        self._queues: dict[tuple[str, int | None], _Queue] = {}
        self._counted: dict[str, Tally] = {}

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None:
        self._of(queue, number).in_progress.inc(jobs)

    def batch_ended(self, report: BatchReport) -> None:
        queue, stats = self._of(report.queue, report.number), report.stats
        queue.in_progress.dec(report.jobs)
        if report.cycle > 0:  # 0: a part of a batch, or jobs that were buried unrun; no cycle of its own
            queue.cycle.observe(report.cycle)
            queue.wait.observe(max(report.waited, 0.0))  # two clocks: the store's may be ahead of ours
        queue.done.inc(done_jobs(report))
        if stats.errors or stats.retried or stats.buried or stats.lost:
            queue.retried.inc(stats.retried)
            queue.buried.inc(stats.buried)
            queue.errors.inc(stats.errors)
            queue.lost.inc(stats.lost)
        queue.count(report)
        if report.cycle > self._slow_cycle(report.queue):  # last: it asks others, and what they raise costs no count
            queue.slow.inc()

    def processors_changed(self, running: int) -> None:
        """A worker counts as running from its first processor to its last."""
        self._processors.set(running)
        self._workers.set(1 if running else 0)

    def depths(self, stats: Stats, numbers: Mapping[str, int | None]) -> None:
        """What the store says, for the queues of `numbers` only: others in the store may be any number."""
        for name, number in numbers.items():
            self._of(name, number).show(stats.queues.get(name, _NOTHING))

    def budgets(self, views: Mapping[str, BudgetView], tallies: Mapping[str, Tally]) -> None:
        """What the budgets of this worker's queues have, and what it counts of them: `tallies` from its start on."""
        for name, tally in tallies.items():
            if (view := views.get(name)) is not None:
                for gauge, number in _levels(view).items():
                    self._families[f"queue_budget_{gauge}"].labels(name).set(number)
            counted = self._counted.get(name, _NO_TALLY)
            self._families["queue_budget_tokens_used_total"].labels(name).inc(tally.used - counted.used)
            self._families["queue_budget_refusals_total"].labels(name).inc(tally.refused - counted.refused)
            self._families["queue_budget_waits_total"].labels(name).inc(tally.waits - counted.waits)
            self._counted[name] = copy(tally)

    def demand(self, view: DemandView) -> None:
        """What a demand has waiting, and what it has counted."""
        for band, jobs in view.waiting.bands.items():
            self._families["queue_demand_waiting_jobs"].labels(view.queue, band).set(jobs)
        self._families["queue_demand_mean_wait_seconds"].labels(view.queue).set(view.waiting.mean_wait)
        self._families["queue_demand_hit_ratio"].labels(view.queue).set(view.counts.hit_rate)
        for event in view.counts.__struct_fields__:
            self._families["queue_demand_events"].labels(view.queue, event).set(getattr(view.counts, event))

    def flows(self, counts: Mapping[FlowState, int]) -> None:
        """How many flows are in each state."""
        for state, count in counts.items():
            self._families["accoda_flows"].labels(state).set(count)

    def flow_ended(self, name: str, state: FlowState, seconds: float) -> None:
        """A flow has ended, and this worker saw to it. Its name is no label: there may be any number of them."""
        self._families["accoda_flows_ended_total"].labels(state).inc()
        self._families["accoda_flow_duration_seconds"].labels(state).observe(seconds)

    def page(self) -> bytes:
        """The page in Prometheus' text format.

        What the program itself registered with the library's default registry follows, and what that registry says of
        the process (memory, processor time): one page for one process.
        """
        client = load()
        page: bytes = client.generate_latest(_Ours(self.registry))
        if self.registry is client.REGISTRY:
            return page
        try:
            theirs: bytes = client.generate_latest(_Others(client.REGISTRY, self._families))
        except Exception as error:  # a collector of the program's must not cost us our numbers
            log.warning("the default registry cannot be read: %s: %s", type(error).__name__, error)
            return page
        return page + theirs

    def _of(self, name: str, number: int | None) -> _Queue:
        key = (name, number)
        queue = self._queues.get(key)
        if queue is None:
            labels = (name, "" if number is None else str(number))
            queue = self._queues[key] = _Queue(self._families, labels)
        return queue


def _levels(view: BudgetView) -> dict[str, float]:
    return {
        "tokens_capacity": view.capacity,
        "tokens_available": view.available,
        "tokens_reserved": view.reserved,
        "tokens_used_today": view.used_today,
        "utilisation": view.utilisation,
        "closed": 0 if view.closed_until is None else 1,
    }


class _Queue:
    """The metrics of one queue, bound to its labels: to look them up costs more than to count."""

    def __init__(self, families: Mapping[str, Any], labels: tuple[str, str]) -> None:
        def bound(name: str, *more: str) -> Any:
            return families[name].labels(*labels, *more)

        self.cycle = bound("queue_job_processor_cycle_duration_seconds")
        self.wait = bound("queue_job_wait_seconds")
        self.in_progress = bound("queue_tasks_in_progress")
        self.done = bound("queue_job_outcomes_total", "done")
        self.retried = bound("queue_job_outcomes_total", "retried")
        self.buried = bound("queue_job_outcomes_total", "buried")
        self.errors = bound("queue_job_errors_total")
        self.lost = bound("queue_lost_leases_total")
        self.slow = bound("queue_slow_cycles_total")
        self._bound = bound
        self._types: dict[str, dict[str, tuple[Any, Any]]] = {}
        self._counter = families["queue_job_type_outcomes_total"]
        self._duration = families["queue_job_duration_seconds"]
        self._name = labels[0]

    def count(self, report: BatchReport) -> None:
        """What became of jobs of one type. Only the first types of a queue have series of their own."""
        name = report.type or ""
        if name not in self._types and len(self._types) >= MOST_TYPES:
            name = OTHER
        series, stats = self._types.setdefault(name, {}), report.stats
        counts = {"done": done_jobs(report), "retried": stats.retried, "buried": stats.buried, "lost": stats.lost}
        for outcome, jobs in {**counts, "cancelled": stats.cancelled}.items():
            if jobs:
                if outcome not in series:
                    labels = (self._name, name, outcome)
                    series[outcome] = self._counter.labels(*labels), self._duration.labels(*labels)
                counter, duration = series[outcome]
                counter.inc(jobs)
                for _ in range(jobs if stats.duration else 0):  # none: they were not run
                    duration.observe(stats.duration)

    def show(self, stats: QueueStats) -> None:
        """Once in a heartbeat: bound here, so that no depth is on the page before it is known."""
        self._bound("queue_jobs", "ready").set(stats.ready)
        self._bound("queue_jobs", "delayed").set(stats.delayed)
        self._bound("queue_jobs", "held").set(stats.held)
        self._bound("queue_jobs", "taken").set(stats.taken)
        self._bound("queue_jobs", "dead").set(stats.dead)
        self._bound("queue_oldest_ready_job_age_seconds").set(stats.oldest_age if stats.ready else 0.0)
        self._bound("queue_paused").set(1 if stats.paused else 0)
        self._bound("queue_expired_leases").set(stats.expired)


class _Ours:
    """A registry without the moments at which its counters were made: a second series for each that is never read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _Others:
    """A registry without the names that are ours: the same name twice would make the page invalid."""

    def __init__(self, registry: CollectorRegistry, names: Iterable[str]) -> None:
        self._registry = registry
        self._names = {name.removesuffix("_total") for name in names}

    def collect(self) -> Iterable[Metric]:
        return (metric for metric in self._registry.collect() if metric.name not in self._names)


def _warn_if_not_shared() -> None:
    """The library reads the variable when it is imported; set later, the numbers would stay in this process unseen."""
    from prometheus_client import values

    if os.environ.get("PROMETHEUS_MULTIPROC_DIR") and values.ValueClass is values.MutexValue:
        log.warning(
            "PROMETHEUS_MULTIPROC_DIR was set after prometheus_client was imported: this process is not on the shared "
            "page; set it in the environment with which the process is started"
        )
