"""What is measured: every metric once, with its kind, its labels and how several processes add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from accoda.errors import AccodaError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Kind = Literal["counter", "gauge", "histogram"]
Mode = Literal["livesum", "livemostrecent"]

QUEUE = ("queue", "queue_num")
BUDGET = ("budget",)
TYPE = ("type", "outcome")

# From a cycle on a local store to a batch that is far too long.
CYCLE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# From a job that does next to nothing to one that runs for an hour; fewer, as there is a series for each type.
DURATION = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
# A job may wait for a day, and a millisecond does not matter then.
WAIT = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
# From a chain of a few short jobs to one that waits for a week.
FLOW_DURATION = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)


class Family(Struct, frozen=True):
    """One metric. `mode` says what a gauge of several processes comes to.

    `livesum` adds what each living process has of its own. `livemostrecent` takes the freshest word, for what all
    processes say about the same store: a sum would count every job once for each process.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = QUEUE
    mode: Mode = "livesum"
    buckets: tuple[float, ...] = ()


FAMILIES = (
    Family(
        "queue_job_processor_cycle_duration_seconds",
        "histogram",
        "Length of one cycle of a processor: take, run, settle.",
        buckets=CYCLE,
    ),
    Family("queue_tasks_in_progress", "gauge", "Jobs in handlers now."),
    Family("queue_running_workers", "gauge", "Workers that run.", labels=()),
    Family("queue_running_job_processors", "gauge", "Processors that run.", labels=()),
    Family("queue_jobs", "gauge", "Jobs in the store, by state.", labels=(*QUEUE, "state"), mode="livemostrecent"),
    Family(
        "queue_oldest_ready_job_age_seconds",
        "gauge",
        "Time since the oldest ready job was enqueued; 0 when none is ready.",
        mode="livemostrecent",
    ),
    Family("queue_paused", "gauge", "1 while the queue is paused, else 0.", mode="livemostrecent"),
    Family(
        "queue_expired_leases",
        "gauge",
        "Leases that ended without an outcome since the store was made, of all workers.",
        mode="livemostrecent",
    ),
    Family(
        "queue_job_wait_seconds",
        "histogram",
        "How long the first job of each batch was ready before it was taken.",
        buckets=WAIT,
    ),
    Family("queue_job_outcomes_total", "counter", "Jobs settled, by outcome.", labels=(*QUEUE, "outcome")),
    Family(
        "queue_job_type_outcomes_total", "counter", "Jobs that ended, by type and outcome.", labels=("queue", *TYPE)
    ),
    Family(
        "queue_job_duration_seconds",
        "histogram",
        "How long jobs ran, from the take on, by type and outcome.",
        labels=("queue", *TYPE),
        buckets=DURATION,
    ),
    Family("queue_job_errors_total", "counter", "Runs that failed, whether retried or buried."),
    Family("queue_lost_leases_total", "counter", "Jobs whose lease was lost while they ran here."),
    Family("queue_slow_cycles_total", "counter", "Cycles longer than the setting slow_cycle."),
    *(
        Family(f"queue_budget_{name}", "gauge", text, labels=BUDGET, mode="livemostrecent")
        for name, text in (
            ("tokens_capacity", "Tokens that the budget holds at most."),
            ("tokens_available", "Tokens that an ordinary job could have now."),
            ("tokens_reserved", "Tokens that are reserved for jobs under way."),
            ("tokens_used_today", "Tokens used since midnight UTC, by all workers."),
            ("utilisation", "The share of the tokens of this day that was used."),
            ("closed", "1 while the budget is closed, else 0."),
        )
    ),
    *(
        Family(f"queue_demand_{name}", "gauge", text, labels=("queue", *more), mode="livemostrecent")
        for name, more, text in (
            ("waiting_jobs", ("band",), "Fetches that wait, by the band of their score."),
            ("mean_wait_seconds", (), "Mean age of the fetches that wait."),
            ("hit_ratio", (), "The share of the requests that found a result, fresh or stale."),
            ("events", ("event",), "What was counted since the demand's first use, by all processes."),
        )
    ),
    Family(
        "accoda_flows",
        "gauge",
        "Flows in the store, by state, of at most 10,000.",
        labels=("state",),
        mode="livemostrecent",
    ),
    Family("accoda_flows_ended_total", "counter", "Flows whose end this process saw to, by state.", labels=("state",)),
    Family(
        "accoda_flow_duration_seconds",
        "histogram",
        "Time from the start of a flow to its end, by state.",
        labels=("state",),
        buckets=FLOW_DURATION,
    ),
    Family("queue_budget_tokens_used_total", "counter", "Tokens that jobs of this worker used.", labels=BUDGET),
    Family("queue_budget_refusals_total", "counter", "Calls of this worker that the API refused.", labels=BUDGET),
    Family("queue_budget_waits_total", "counter", "Takes of this worker that had to wait for tokens.", labels=BUDGET),
)

LANE_JOBS = Family(
    "queue_lane_jobs",
    "gauge",
    "Jobs of the lanes with most jobs ready or held, by state.",
    labels=("queue", "lane", "state"),
    mode="livemostrecent",
)
"""On the page only where it is asked for, as it is read from the store then: see `lanes`."""


def load() -> Any:
    """The library, or an error that says how to get it."""
    try:
        import prometheus_client
    except ModuleNotFoundError as error:
        raise AccodaError("metrics need prometheus-client; install it with: pip install 'accoda[metrics]'") from error
    return prometheus_client


def register(registry: CollectorRegistry) -> dict[str, Any]:
    """Every family as a metric of this registry, by name."""
    client = load()
    made: dict[str, Any] = {}
    for family in FAMILIES:
        common = (family.name, family.text, family.labels)
        if family.kind == "histogram":
            made[family.name] = client.Histogram(*common, buckets=family.buckets, registry=registry)
        elif family.kind == "counter":
            made[family.name] = client.Counter(*common, registry=registry)
        else:
            made[family.name] = client.Gauge(*common, registry=registry, multiprocess_mode=family.mode)
    return made
