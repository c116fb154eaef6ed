"""Log lines: their form, what they may hold, and how many there are."""

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accoda import Bury, Lease, Outcome, Retry
from accoda.errors import InvalidInput
from accoda.runtime.events import BatchReport, HandlerStats, Monitor
from accoda.runtime.logs import HumanFormatter, JsonFormatter, LogMonitor, configure
from accoda.runtime.logs.lines import wants_colour

HOSTILE = 'a\nb\r\n\x1b[31m\x00 \x7f \x9b2J \u2028 \u202e \ud800 "quoted" \\ é 日本'
PAGE = Path(__file__).parents[2] / "docs" / "logs.md"
LOGGER = logging.getLogger("accoda")


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def report(jobs: int = 50, *failed: Outcome, queue: str = "emails", lost: int = 0) -> BatchReport:
    retried = sum(isinstance(outcome, Retry) for outcome in failed)
    buried = len(failed) - retried
    stats = HandlerStats(jobs - len(failed) - lost, len(failed), retried, buried, lost, 0.1)
    return BatchReport(queue, 1, jobs, stats, 0.1234, 0.004, failed)


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

    def test_other_loggers_are_not_touched(self, out: io.StringIO) -> None:
        root = logging.getLogger()
        before = list(root.handlers), root.level
        configure("human", "debug", out)
        logging.getLogger("shop").warning("mine")
        assert (list(root.handlers), root.level) == before
        assert out.getvalue() == ""

    @pytest.mark.parametrize(("format", "level", "field"), [("xml", "info", "format"), ("json", "loud", "level")])
    def test_what_is_unknown_is_refused_with_the_choices(self, format: str, level: str, field: str) -> None:
        with pytest.raises(InvalidInput, match=rf"{field}: must be one of .*(human|debug)"):
            configure(format, level)  # type: ignore[arg-type]

    def test_the_library_alone_says_nothing(self) -> None:
        code = "import accoda.runtime.logs, logging; logging.getLogger('accoda.worker').error('hidden')"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stdout, run.stderr) == (0, "", "")

    def test_the_example_of_the_documentation_runs(self) -> None:
        example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
        run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        said = [json.loads(line) for line in run.stderr.splitlines()]
        assert [(line["logger"], line["message"]) for line in said] == [
            ("shop", "low on stock"),
            ("accoda.worker", "8 processors running"),
        ]


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
        assert len(out.getvalue().splitlines()) == 2
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

    def test_a_message_whose_arguments_do_not_fit_is_not_lost(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        logging.getLogger("accoda.worker").info("%d jobs", "many")
        assert "%d jobs ('many',)" in lines(out)[0]


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

    def test_only_type_and_message_are_logged(self, out: io.StringIO) -> None:
        self.log("info", "human", out)
        assert lines(out)[0].endswith(r"handler failed (ValueError: no such user\nreally (7))")
        assert len(lines(out)) == 1

    def test_json_has_them_as_a_field(self, out: io.StringIO) -> None:
        self.log("info", "json", out)
        (line,) = objects(out)
        assert line["error"] == "ValueError: no such user\nreally (7)"
        assert "traceback" not in line

    def test_at_debug_the_traceback_follows_and_looks_like_no_line_of_the_log(self, out: io.StringIO) -> None:
        self.log("debug", "human", out)
        assert len(lines(out)) > 3
        assert all(line.startswith("    | ") for line in lines(out)[1:])
        assert "payload" not in re.sub(r'secret = "payload"', "", out.getvalue())

    def test_at_debug_json_has_it_in_a_field(self, out: io.StringIO) -> None:
        self.log("debug", "json", out)
        (line,) = objects(out)
        assert str(line["traceback"]).startswith("Traceback")


class TestFailures:
    def test_ids_and_reasons_stand_in_the_line(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        failed = (retry(7), retry(9), Bury(Lease("emails", 12, 0, 0), "KeyError: 'to'\n  at line 3"))
        LogMonitor().batch_ended(report(50, *failed))
        expected = (
            "WARN  emails  50 jobs in 0.12 s: 47 done, 2 retried, 1 buried"
            " – jobs 7, 9: ValueError: no such user; job 12: KeyError: 'to'"
        )
        assert lines(out)[0][9:] == expected

    def test_machines_get_them_as_fields(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        LogMonitor().batch_ended(report(50, retry(7), Bury(Lease("emails", 12, 0, 0), "poison")))
        (line,) = objects(out)
        assert line["level"] == "warning"
        assert (line["queue"], line["queue_num"], line["done"], line["retried"]) == ("emails", 1, 48, 1)
        assert line["failed"] == [
            {"id": 7, "attempts": 3, "outcome": "retried", "reason": "ValueError: no such user"},
            {"id": 12, "attempts": 0, "outcome": "buried", "reason": "poison"},
        ]

    def test_a_thousand_failures_are_still_one_line(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        LogMonitor().batch_ended(report(1000, *(retry(n, f"reason {n % 5} " + "x" * 5000) for n in range(1000))))
        (line,) = objects(out)
        assert "and 190 more" in str(line["message"])
        assert "and 2 other reasons" in str(line["message"])
        assert (len(line["failed"]), line["failed_left_out"]) == (100, 900)  # type: ignore[arg-type]
        assert len(out.getvalue()) < 40_000

    def test_lost_leases_are_a_warning(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        LogMonitor().batch_ended(report(5, lost=2))
        assert "WARN  emails  5 jobs in 0.12 s: 3 done, 2 lost" in lines(out)[0]

    def test_jobs_buried_before_they_ran_have_no_duration(self, out: io.StringIO) -> None:
        configure("human", "info", out)
        buried = Bury(Lease("emails", 7, 5, 0), "poison")
        LogMonitor().batch_ended(BatchReport("emails", 1, 1, HandlerStats(errors=1, buried=1), 0.0, 0.0, (buried,)))
        assert lines(out)[0].endswith("1 job: 1 buried – job 7: poison")


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

    def test_failures_are_always_written_and_in_no_sum(self, out: io.StringIO) -> None:
        configure("json", "info", out)
        monitor = LogMonitor(now=lambda: 100.0)
        for _ in range(5):
            monitor.batch_ended(report(10, retry(7)))
            monitor.batch_ended(report(10))
        monitor.flush()
        levels = [line["level"] for line in objects(out)]
        assert (levels.count("warning"), levels.count("info")) == (5, 2)
        assert objects(out)[-1]["jobs"] == 40

    def test_at_debug_every_batch_has_its_lines(self, out: io.StringIO) -> None:
        configure("json", "debug", out)
        monitor = LogMonitor(now=lambda: 100.0)
        for _ in range(5):
            monitor.batch_started("emails", 1, 10)
            monitor.batch_ended(report(10))
        assert len(objects(out)) == 10

    def test_at_warning_good_batches_are_silent(self, out: io.StringIO) -> None:
        configure("json", "warning", out)
        monitor = LogMonitor()
        monitor.batch_ended(report(10))
        monitor.flush()
        assert out.getvalue() == ""

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


def test_formatters_can_be_used_by_others() -> None:
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "low on %s", ("stock",), None)
    assert HumanFormatter().format(record).endswith("INFO  shop    low on stock")
    assert json.loads(JsonFormatter().format(record))["message"] == "low on stock"
