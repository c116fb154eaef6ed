"""Log lines: their form, what they may hold, and how many there are."""

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from accoda import App, Batch, Bury, Lease, NewJob, Outcome, Retry
from accoda.envelope import JobMetadata, wrap
from accoda.errors import InvalidInput, StorageUnavailable
from accoda.payload import encode
from accoda.runtime.events import BatchReport, Explanation, HandlerStats, Monitor
from accoda.runtime.logs import HumanFormatter, JsonFormatter, LogMonitor, configure
from accoda.runtime.logs.job_lines import with_lines
from accoda.runtime.logs.setup import CHATTY, wants_colour
from accoda.runtime.options import WorkerOptions
from accoda.runtime.unhandled_types import REASON
from accoda.runtime.worker import Worker

HOSTILE = 'a\nb\r\n\x1b[31m\x00 \x7f \x9b2J \u2028 \u202e \ud800 "quoted" \\ é 日本'
PAGE = Path(__file__).parents[2] / "docs" / "logs.md"
LOGGER = logging.getLogger("accoda")
TOLD = Explanation(attempt=4, traceback="Traceback (most recent call last):\nValueError: no such user\n")


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def report(
    jobs: int = 50, *failed: Outcome, queue: str = "emails", lost: int = 0, cancelled: int = 0, told: Explanation = TOLD
) -> BatchReport:
    retried = sum(isinstance(outcome, Retry) for outcome in failed)
    stats = HandlerStats(
        jobs - len(failed) - lost, len(failed), retried, len(failed) - retried, lost, 0.1, cancelled=cancelled
    )
    return BatchReport(queue, 1, jobs, stats, 0.1234, 0.004, failed, lambda outcome: told)


def retry(id: int, reason: str = "ValueError: no such user") -> Retry:
    return Retry(Lease("emails", id, 3, 0), delay=1.0, reason=reason)


def lines(out: io.StringIO) -> list[str]:
    return out.getvalue().splitlines()


def objects(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().split("\n")[:-1]]


class TestConfigure:
    def test_a_line_for_people_is_short_and_aligned(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        LogMonitor().batch_ended(report(50))
        (line,) = lines(out)
        assert re.fullmatch(r"\d\d:\d\d:\d\d INFO  emails  50 jobs in 0\.12 s: 50 done", line)

    def test_lines_stand_below_each_other(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        for logger, level in (("accoda.worker", logging.INFO), ("accoda.manager", logging.WARNING)) * 2:
            logging.getLogger(logger).log(level, "X")
        assert {line.index("X") for line in lines(out)[1:]} == {24}

    def test_json_has_the_moment_the_level_the_logger_and_the_message(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        logging.getLogger("accoda.worker").info("%d processors", 8, extra={"processors": 8, "level": "x"})
        (line,) = objects(out)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("ts")))
        expected = {"level": "info", "logger": "accoda.worker", "message": "8 processors"}
        assert line == expected | {"processors": 8, "level_": "x"}

    def test_a_second_call_replaces_the_first(self, out: io.StringIO) -> None:
        configure("human", "info", io.StringIO())
        configure("json", "warning", out)
        logging.getLogger("accoda.worker").info("not this")
        logging.getLogger("accoda.worker").warning("this")
        assert [line["message"] for line in objects(out)] == ["this"]

    def test_lines_of_other_loggers_and_warnings_appear_with_the_whole_name(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        logging.getLogger("shop.stock").info("mine")
        logging.getLogger("shop.stock").debug("not this")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)  # again: pytest puts its own in the place while a test runs
            warnings.warn("old API", stacklevel=1)
        first, second = lines(out)
        assert first.endswith("INFO  shop.stock  mine")
        assert re.search(r"WARN  py\.warnings  \S+test_logs\.py:\d+: UserWarning: old API$", second)

    def test_libraries_that_log_each_request_do_so_from_warning_on(self, out: io.StringIO) -> None:
        logging.getLogger("httpx").setLevel(logging.INFO)  # the app wants these
        try:
            configure("human", "debug", out)
            for name in CHATTY:
                logging.getLogger(f"{name}.requests").info("a request")
            assert [line.split()[2:] for line in lines(out)] == [["httpx.requests", "a", "request"]]
        finally:
            for name in CHATTY:
                logging.getLogger(name).setLevel(logging.NOTSET)

    def test_handlers_that_the_program_has_put_up_get_all_lines_unless_a_format_is_chosen(
        self, out: io.StringIO
    ) -> None:
        mine = io.StringIO()
        own = logging.StreamHandler(mine)
        logging.root.addHandler(own)
        try:
            configure(None, "info", out)
            logging.getLogger("accoda.worker").info("theirs")
            logging.getLogger("shop").info("below the level of the root")
            assert (mine.getvalue(), out.getvalue()) == ("theirs\n", "")
            configure("human", "info", out)
            logging.getLogger("accoda.worker").info("both")
            assert (mine.getvalue(), len(lines(out))) == ("theirs\nboth\n", 1)
        finally:
            logging.root.removeHandler(own)

    @pytest.mark.parametrize(("format", "level", "field"), [("xml", "info", "format"), ("json", "loud", "level")])
    def test_what_is_unknown_is_refused_with_the_choices(self, format: str, level: str, field: str) -> None:
        with pytest.raises(InvalidInput, match=rf"{field}: must be one of .*(human|debug)"):
            configure(format, level)  # type: ignore[arg-type]

    def test_the_library_alone_says_nothing(self) -> None:
        code = "import accoda.runtime.logs, logging; logging.getLogger('accoda.worker').error('hidden')"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stdout, run.stderr) == (0, "", "")

    def test_the_example_of_the_documentation_runs(self) -> None:
        example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
        run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stderr) == (0, "WARNING shop [-/-] low on stock\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestColour:
    @pytest.fixture(autouse=True)
    def plain_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")

    def test_a_terminal_gets_it(self) -> None:
        out = Terminal()
        configure("human", "info", out)
        logging.getLogger("accoda.worker").warning("careful")
        assert "\x1b[33mWARN \x1b[0m worker  careful" in out.getvalue()

    def test_a_pipe_does_not(self, out: io.StringIO) -> None:
        assert not wants_colour(out)

    def test_nor_a_terminal_whose_user_said_no(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        assert not wants_colour(Terminal())

    def test_nor_one_that_knows_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        assert not wants_colour(Terminal())


class Nasty:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class TestHostileText:
    def test_a_line_for_people_stays_one_line_that_no_terminal_obeys(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        logging.getLogger("accoda.worker").info("%s", HOSTILE)
        LogMonitor().batch_ended(report(1, retry(7, "x\x1b[2J" + HOSTILE)))
        assert len(out.getvalue().splitlines()) == 5
        assert all(line.isprintable() for line in lines(out))
        assert r"a\nb\r\n\x1b[31m\x00" in lines(out)[0]

    def test_json_stays_one_line_and_says_the_same(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        text = HOSTILE.replace("\ud800", "")
        logging.getLogger("accoda.worker").info("%s", text, extra={"queue": text})
        assert len(out.getvalue().splitlines()) == 1
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028]", lines(out)[0])
        (line,) = objects(out)
        assert line["message"] == line["queue"] == text

    def test_json_survives_what_it_cannot_hold(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        circle: list[object] = []
        circle.append(circle)
        extra = {"a": circle, "b": {(1, 2): 3}, "c": Nasty(), "d": 10**30, "e": float("nan"), "f": Lease("q", 1, 0, 0)}
        logging.getLogger("accoda.worker").info("%s", HOSTILE, extra=extra | {"jobs": 5, "\ud800": 1})
        (line,) = objects(out)
        assert line["jobs"] == 5
        assert "no such" not in str(line)
        assert "RuntimeError" in str(line["c"])

    def test_a_message_whose_arguments_do_not_fit_is_not_lost(self) -> None:
        record = logging.LogRecord("accoda.worker", logging.INFO, __file__, 1, "%d jobs", ("many",), None)
        assert "%d jobs ('many',)" in HumanFormatter().format(record)


def fail() -> None:
    secret = "payload"
    raise ValueError(f"no such user\nreally ({len(secret)})")


class TestErrors:
    def log(self, level: str, format: str, out: io.StringIO) -> None:
        configure(format, level, out)  # type: ignore[arg-type]
        try:
            fail()
        except ValueError:
            logging.getLogger("accoda.worker").exception("handler failed")

    def test_the_traceback_follows_and_looks_like_no_line_of_the_log(self, out: io.StringIO) -> None:
        self.log("info", "human", out)
        assert lines(out)[0].endswith("handler failed")
        assert len(lines(out)) > 3
        assert all(line.startswith("    | ") for line in lines(out)[1:])
        assert "payload" not in re.sub(r'secret = "payload"', "", out.getvalue())

    def test_json_has_error_and_traceback_in_fields(self, out: io.StringIO) -> None:
        self.log("info", "json", out)
        (line,) = objects(out)
        assert line["error"] == "ValueError: no such user\nreally (7)"
        assert str(line["traceback"]).startswith("Traceback")

    def test_an_error_of_accoda_says_enough_by_itself(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        try:
            raise StorageUnavailable("the store is away")
        except StorageUnavailable:
            logging.getLogger("accoda.worker").exception("a chore failed")
        assert [line[9:] for line in lines(out)] == [
            "ERROR worker  a chore failed (StorageUnavailable: the store is away)"
        ]


class TestFailures:
    def test_each_has_a_line_with_its_traceback_an_error_if_the_job_is_dead(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        buried = Bury(Lease("emails", 12, 0, 0), "failed: KeyError: 'to'\n  at line 3")
        told = Explanation("welcome", 4, traceback=TOLD.traceback)
        LogMonitor().batch_ended(report(50, retry(7), buried, told=told))
        trace = ["    | Traceback (most recent call last):", "    | ValueError: no such user"]
        assert [line if line.startswith(" ") else line[9:] for line in lines(out)] == [
            "WARN  emails  welcome, job 7, attempt 4: failed, runs again in 1 s: ValueError: no such user",
            *trace,
            "ERROR emails  welcome, job 12, attempt 4: buried: failed: KeyError: 'to'",
            *trace,
            "INFO  emails  50 jobs in 0.12 s: 48 done, 1 retried, 1 buried",
        ]

    def test_machines_get_the_same_as_fields(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        LogMonitor().batch_ended(report(50, retry(7)))
        failed, batch = objects(out)
        failed.pop("ts")
        assert failed == {
            "level": "warning",
            "logger": "accoda.jobs",
            "message": "failed, runs again in 1 s: ValueError: no such user",
            "traceback": TOLD.traceback.strip(),
            "queue": "emails",
            "queue_num": 1,
            "job_id": 7,
            "attempt": 4,
            "outcome": "retried",
            "reason": "ValueError: no such user",
        }
        assert (batch["level"], batch["queue"], batch["queue_num"], batch["done"], batch["retried"]) == (
            "info", "emails", 1, 49, 1,
        )  # fmt: skip

    def test_other_formatters_show_the_traceback_too(self, out: io.StringIO) -> None:
        own = logging.StreamHandler(out)
        own.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        LOGGER.addHandler(own)
        LogMonitor().batch_ended(report(1, retry(7)))
        assert out.getvalue().startswith("WARNING failed, runs again in 1 s: ValueError: no such user\nTraceback (most")

    def test_of_a_thousand_ten_have_a_line_and_the_rest_are_in_the_sum(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        LogMonitor().batch_ended(report(1000, *(retry(n, f"reason {n % 5} " + "x" * 5000) for n in range(1000))))
        *failed, line = objects(out)
        assert len(failed) == 10
        assert line["level"] == "warning"
        assert "and 10 more" in str(line["message"])
        assert "and 2 other reasons; and 890 more jobs" in str(line["message"])
        assert (len(line["not_done"]), line["not_done_left_out"]) == (100, 890)  # type: ignore[arg-type]
        assert len(out.getvalue()) < 40_000

    def test_a_job_that_its_handler_or_its_worker_gave_back_has_not_failed(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        given_back = Retry(Lease("emails", 7, 0, 0), reason="WorkerStopped: the worker stopped", counts=False)
        monitor = LogMonitor(now=iter((100.0, 100.0, 200.0, 200.0)).__next__)
        monitor.batch_ended(report(2, given_back))
        monitor.batch_ended(report(2, retry(9, "RetryLater: busy"), told=Explanation(asked=True)))
        assert [line[9:] for line in lines(out)] == [
            "INFO  emails  2 jobs in 0.12 s: 1 done, 1 retried – job 7: WorkerStopped: the worker stopped",
            "INFO  emails  2 jobs in 0.12 s: 1 done, 1 retried – job 9: RetryLater: busy",
        ]

    def test_jobs_of_types_that_nobody_handles_are_left_to_the_line_about_their_type(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        given_back = Retry(Lease("emails", 7, 0, 0), reason=f"{REASON} the type new", counts=False)
        monitor = LogMonitor(now=iter((100.0, 200.0, 200.0)).__next__)
        monitor.batch_ended(report(1, given_back))
        monitor.batch_ended(report(2, given_back))
        assert [line[9:] for line in lines(out)] == ["INFO  emails  2 jobs in 0.12 s: 1 done, 1 retried"]

    def test_lost_leases_are_a_warning(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        LogMonitor().batch_ended(report(5, lost=2))
        assert "WARN  emails  5 jobs in 0.12 s: 3 done, 2 lost" in lines(out)[0]

    def test_a_cancelled_job_is_not_lost(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        LogMonitor().batch_ended(report(1, cancelled=1))
        assert "INFO  emails  1 job in 0.12 s: 1 cancelled" in lines(out)[0]

    def test_jobs_buried_before_they_ran_have_no_duration(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        buried = Bury(Lease("emails", 7, 5, 0), "poison")
        LogMonitor().batch_ended(BatchReport("emails", 1, 1, HandlerStats(errors=1, buried=1), 0.0, 0.0, (buried,)))
        assert lines(out)[0].endswith("ERROR emails  job 7: buried: poison")
        assert lines(out)[1].endswith("INFO  emails  1 job: 1 buried")


class TestHowMany:
    """A clock moved by hand; the timer of the loop has a test of its own."""

    def test_it_is_a_monitor(self) -> None:
        monitor: Monitor = LogMonitor()
        monitor.batch_started("emails", 1, 1)

    def test_many_good_batches_of_a_second_are_one_line_with_their_sum(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        now = 100.0
        monitor = LogMonitor(now=lambda: now)
        for tick in range(301):
            now = 100.0 + tick / 100
            monitor.batch_ended(report(100))
        first, *sums = objects(out)
        assert first["message"] == "100 jobs in 0.12 s: 100 done"
        assert [line["message"] for line in sums] == ["in the last second: 100 batches, 10,000 jobs"] * 3
        assert [(line["batches"], line["jobs"], line["done"]) for line in sums] == [(100, 10_000, 10_000)] * 3

    def test_batches_that_come_slowly_have_a_line_each(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        now = 100.0
        monitor = LogMonitor(now=lambda: now)
        for _ in range(3):
            monitor.batch_ended(report(1))
            now += 1.0
        assert [line[23:] for line in lines(out)] == ["1 job in 0.12 s: 1 done"] * 3

    def test_queues_are_counted_apart(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        monitor = LogMonitor(now=lambda: 100.0)
        for queue in ("emails", "movies"):
            monitor.batch_ended(report(1, queue=queue))
        assert len(lines(out)) == 2

    def test_failures_are_written_at_once_and_counted_in_the_sum(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        monitor = LogMonitor(now=lambda: 100.0)
        for _ in range(5):
            monitor.batch_ended(report(10, retry(7)))
            monitor.batch_ended(report(10))
        monitor.flush()
        levels = [line["level"] for line in objects(out)]
        assert (levels.count("warning"), levels.count("info")) == (5, 2)
        assert objects(out)[-1]["message"] == "in the last second: 9 batches, 90 jobs: 86 done, 4 retried"

    def test_at_debug_every_batch_has_its_lines(self, out: io.StringIO) -> None:
        configure("json", "debug", out)
        monitor = LogMonitor(now=lambda: 100.0)
        for _ in range(5):
            monitor.batch_started("emails", 1, 10)
            monitor.batch_ended(report(10))
        assert len(objects(out)) == 10

    def test_at_warning_good_batches_are_silent(self, out: io.StringIO) -> None:
        configure("json", "warning", out)
        now = 100.0
        monitor = LogMonitor(now=lambda: now)
        monitor.batch_ended(report(10))
        monitor.batch_ended(report(10))
        now = 200.0
        monitor.batch_ended(report(10, lost=1))
        monitor.flush()
        assert [line["message"] for line in objects(out)] == ["10 jobs in 0.12 s: 9 done, 1 lost"]

    def test_what_is_held_back_is_written_when_the_last_processor_goes(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        monitor = LogMonitor(now=lambda: 100.0)
        for _ in range(2):
            monitor.batch_ended(report(10))
        monitor.processors_changed(0)
        assert [line["message"] for line in objects(out)] == ["10 jobs in 0.12 s: 10 done"] * 2 + [
            "0 processors running"
        ]

    def test_the_number_of_processors_is_written_when_it_changes(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        monitor = LogMonitor()
        for running in (1, 1, 8, 8, 0):
            monitor.processors_changed(running)
        assert [line["processors"] for line in objects(out)] == [1, 8, 0]

    async def test_what_is_held_back_is_written_when_the_second_is_over(self) -> None:
        written = asyncio.Event()
        told: list[str] = []

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                told.append(record.getMessage())
                if len(told) == 2:
                    written.set()

        LOGGER.addHandler(Handler())
        LOGGER.setLevel("INFO")
        monitor = LogMonitor(window=0.05)
        for _ in range(3):
            monitor.batch_ended(report(10))
        await asyncio.wait_for(written.wait(), 10)
        assert told == ["10 jobs in 0.12 s: 10 done", "in the last second: 2 batches, 20 jobs"]


async def test_what_ends_a_whole_batch_has_its_traceback_once(out: io.StringIO) -> None:
    app = App("memory://")

    @app.handler("sums", retry=3600)
    async def sums(batch: Batch[int]) -> None:
        batch.retry(batch[0], delay=60, reason="busy")
        raise ValueError("no sum")

    configure("json", "info", out)
    async with app:
        await sums.enqueue_many([1, 2, 3])
        await Worker(app, WorkerOptions(burst=True, managed=False, monitors=(LogMonitor(),))).run()
    *failed, batch = [line for line in objects(out) if line.get("queue") == "sums"]
    assert [(line["job_id"], line["reason"], "traceback" in line) for line in failed] == [
        (2, "ValueError: no sum", True),
        (3, "ValueError: no sum", False),
    ]
    assert "3 retried – job 1: RetryLater: busy" in str(batch["message"])


async def test_a_job_that_cannot_be_run_has_its_type_and_its_attempt_in_its_line(out: io.StringIO) -> None:
    app = App("memory://")

    @app.handler("sums", type="add")
    async def sums(numbers: list[int]) -> None: ...

    configure("human", "info", out)
    async with app:
        await app.storage.enqueue([NewJob("sums", wrap(encode("x"), JobMetadata(type="add")))])
        await Worker(app, WorkerOptions(burst=True, managed=False, monitors=(LogMonitor(),))).run()
    (line,) = [line[9:] for line in lines(out) if "ERROR" in line]
    assert line.startswith("ERROR sums    add, job 1, attempt 1: buried: UnreadablePayload: ")


async def test_starts_and_ends_are_written_only_if_their_logger_is_set_to_info(out: io.StringIO) -> None:
    async def call(payload: str) -> str:
        if payload == "stop":
            raise asyncio.CancelledError
        return payload

    configure("human", "debug", out)
    assert with_lines(call) is call, "no cost"
    configure("human", "info", out, jobs=True)
    logged = with_lines(call)
    assert await logged("done") == "done"
    with pytest.raises(asyncio.CancelledError):
        await logged("stop")
    words = [re.sub(r"[\d.]+ s", "T", line[9:]) for line in lines(out)]
    assert words == [f"INFO  jobs    {what}" for what in ("started", "done in T", "started", "stopped after T")]


def test_the_page_names_the_libraries_that_are_kept_quiet() -> None:
    assert f"{', '.join(CHATTY)}." in " ".join(PAGE.read_text().split())


def test_formatters_can_be_used_by_others() -> None:
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "low on %s", ("stock",), None)
    assert HumanFormatter().format(record).endswith("INFO  shop    low on stock")
    assert json.loads(JsonFormatter().format(record))["message"] == "low on stock"
