"""Which value counts: the strongest source, and within it the most special path."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from accoda.errors import SettingsError
from accoda.settings import KNOBS, Settings, Value
from accoda.settings.knobs import QUEUE_KNOBS, WORKER_KNOBS


def load(folder: Path, text: str = "", *, environ: Mapping[str, str] = {}, **options: Any) -> Settings:
    file = folder / "settings.toml"
    file.write_text(text)
    return Settings.load(file, environ=environ, **options)


def test_without_any_source_every_knob_has_its_default() -> None:
    settings = Settings.load(environ={})
    for knob in WORKER_KNOBS.values():
        assert settings.worker(knob.name) == Value(knob.default, "default")
    for knob in QUEUE_KNOBS.values():
        assert settings.queue("emails", knob.name) == Value(knob.default, "default")


def test_the_defaults_are_those_of_the_design() -> None:
    settings = Settings.load(environ={})
    worker = {name: settings.worker(name).value for name in ("max_processors", "grace", "heartbeat", "stall_after")}
    assert worker == {"max_processors": 1, "grace": 30, "heartbeat": 5, "stall_after": 30}
    queue = {name: settings.queue("q", name).value for name in QUEUE_KNOBS}
    assert queue == {
        "max_processors": None,
        "visibility_timeout": 60,
        "batch_size": 10,
        "concurrency": None,
        "timeout": None,
        "max_attempts": None,
        "max_crashes": None,
        "keep_dead_for": None,
        "slow_cycle": 10,
    }


def test_two_rows_of_one_knob_allow_the_same() -> None:
    for name in WORKER_KNOBS.keys() & QUEUE_KNOBS.keys():
        one, other = WORKER_KNOBS[name], QUEUE_KNOBS[name]
        assert (one.kind, one.low, one.high, one.none) == (other.kind, other.low, other.high, other.none)


def test_every_default_is_a_value_that_could_be_written() -> None:
    for knob in KNOBS:
        if knob.default is not None:
            assert knob.read(knob.default) == knob.default


def test_the_most_special_path_counts(tmp_path: Path) -> None:
    lines = [
        ("worker.queue.default", 1),
        ("worker.queue.emails", 2),
        ("worker.queue.emails.queue.emails", 3),
        ("worker.queue.emails.queue.7", 4),
        ("worker.queue.default.queue.emails", 5),
        ("worker.queue.default.queue.7", 6),
    ]
    for count in range(1, len(lines) + 1):
        text = "\n".join(f"[{table}]\nbatch_size = {size}" for table, size in lines[:count])
        settings = load(tmp_path, text)
        assert settings.queue("emails", "batch_size", number=7).value == lines[count - 1][1]
    assert settings.queue("emails", "batch_size").value == 5
    assert settings.queue("other", "batch_size").value == 1


def test_the_workers_max_processors_is_its_own_and_a_queues_is_a_cap(tmp_path: Path) -> None:
    settings = load(tmp_path, "[worker.queue]\ndefault.max_processors = 8\nemails.max_processors = 2")
    assert settings.worker("max_processors").value == 8
    assert settings.queue("emails", "max_processors").value == 2
    assert settings.queue("other", "max_processors") == Value(None, "default")


def test_another_worker_reads_its_own_path(tmp_path: Path) -> None:
    text = "[worker.queue]\ndefault.grace = 1\nnight.grace = 2\nnight.queue.emails.batch_size = 9"
    settings = load(tmp_path, text, worker="night")
    assert settings.worker("grace").value == 2
    assert settings.queue("emails", "batch_size").value == 9
    assert load(tmp_path, text).queue("emails", "batch_size").value == 10


def test_the_service_in_front_may_be_there_or_not_and_is_the_stronger(tmp_path: Path) -> None:
    text = "[worker.queue.default]\ngrace = 1\nheartbeat = 1\n[shop.worker.queue.default]\ngrace = 2"
    shop = load(tmp_path, text, service="shop")
    assert (shop.worker("grace").value, shop.worker("heartbeat").value) == (2, 1)
    other = load(tmp_path, text, environ={"ACCODA_SERVICE": "mail"})
    assert (other.service, other.worker("grace").value) == ("mail", 1)


def test_a_service_may_be_a_path_or_be_called_worker(tmp_path: Path) -> None:
    nested = load(tmp_path, "[team.shop.worker.queue.default]\ngrace = 2", service="team/shop")
    assert nested.worker("grace").value == 2
    odd = load(
        tmp_path, "[worker.worker.queue.default]\ngrace = 2\n[worker.queue.default]\ngrace = 1", service="worker"
    )
    assert odd.worker("grace").value == 2


def test_a_stronger_source_counts_even_where_its_path_is_more_general(tmp_path: Path) -> None:
    text = "[worker.queue.default.queue.emails]\nbatch_size = 20"
    conf = tmp_path / "shop.conf"
    conf.write_text("/accoda/worker/queue/default/batch_size 30\n#EOF")
    (tmp_path / "settings.toml").write_text(text)
    files = [conf, tmp_path / "settings.toml"]  # the order of kinds is fixed: OnlineConf beats a file of one's own
    environ = {"ACCODA_WORKER_QUEUE_DEFAULT_BATCH_SIZE": "40"}
    seen = [
        load(tmp_path, "").queue("emails", "batch_size", code=15),
        load(tmp_path, text).queue("emails", "batch_size", code=15),
        Settings.load(files, environ={}).queue("emails", "batch_size", code=15),
        Settings.load(files, environ=environ).queue("emails", "batch_size", code=15),
        Settings.load(files, environ=environ, overrides={"batch_size": 50}).queue("emails", "batch_size", code=15),
    ]
    assert seen == [
        Value(15, "handler"),
        Value(20, f"{tmp_path}/settings.toml:2"),
        Value(30, f"onlineconf {conf}:1"),
        Value(40, "environment ACCODA_WORKER_QUEUE_DEFAULT_BATCH_SIZE"),
        Value(50, "command line"),
    ]


def test_of_two_files_of_a_kind_the_later_is_stronger(tmp_path: Path) -> None:
    for name, size in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}.toml").write_text(f"worker.queue.default.batch_size = {size}")
    environ = {"ACCODA_SETTINGS": os.pathsep.join((f"{tmp_path}/one.toml", f"{tmp_path}/two.toml"))}
    assert Settings.load(environ=environ).queue("emails", "batch_size").value == 2
    assert Settings.load((), environ=environ).queue("emails", "batch_size").value == 10


def test_variables_are_found_by_the_name_that_is_asked_for() -> None:
    settings = Settings.load(
        environ={
            "ACCODA_WORKER_QUEUE_DEFAULT_MAX_PROCESSORS": "4",
            "ACCODA_WORKER_QUEUE_DEALS_DELIVER_BATCH_SIZE": "7",
            "ACCODA_WORKER_QUEUE_DEFAULT_QUEUE_3_BATCH_SIZE": "8",
            "ACCODA_WORKER_QUEUE_EMAILS_VISIBILITY_TIMEOUT": "500ms",
            "ACCODA_WORKER_QUEUE_EMAILS_MAX_ATTEMPTS": "",
        }
    )
    assert settings.worker("max_processors").value == 4
    assert settings.queue("deals.deliver", "batch_size").value == 7
    assert settings.queue("deals-deliver", "batch_size").value == 7
    assert settings.queue("sms", "batch_size", number=3).value == 8
    assert settings.queue("emails", "visibility_timeout").value == 0.5
    assert settings.queue("emails-visibility", "timeout").value is None, "the longest knob at the end is meant"
    assert settings.queue("emails", "max_attempts") == Value(None, "default"), "an empty variable is not set"
    assert settings.problems == ()


def test_what_comes_from_code_is_checked_too() -> None:
    settings = Settings.load(environ={})
    assert settings.queue("emails", "visibility_timeout", code=timedelta(minutes=2)) == Value(120.0, "handler")
    with pytest.raises(SettingsError, match="handler of emails: batch_size must be a whole number from 1 to 100000"):
        settings.queue("emails", "batch_size", code=0)


def test_overrides_are_knobs_or_paths_and_none_is_not_given(tmp_path: Path) -> None:
    settings = Settings.load(
        environ={},
        service="shop",
        overrides={"max_processors": 8, "grace": None, "/shop/worker/queue/emails/batch_size": "5"},
    )
    assert settings.worker("max_processors") == Value(8, "command line")
    assert settings.worker("grace").source == "default"
    assert settings.queue("emails", "batch_size").value == 5
    for wrong in ({"max_procesors": 8}, {"workers/x": 1}, {"max_processors": 0}):
        with pytest.raises(SettingsError, match=r"^command line: "):
            Settings.load(environ={}, overrides=wrong)


def test_an_unknown_knob_is_an_error_that_helps() -> None:
    settings = Settings.load(environ={})
    with pytest.raises(SettingsError, match="unknown setting 'graze', did you mean 'grace'"):
        settings.worker("graze")
    with pytest.raises(SettingsError, match=r"'grace' of a queue, is the worker's: ask settings\.worker"):
        settings.queue("emails", "grace")


def test_a_second_question_is_answered_from_memory() -> None:
    settings = Settings.load(environ={})
    assert settings.queue("emails", "batch_size", 5, 7) is settings.queue("emails", "batch_size", 5, 7)
    assert settings.worker("grace") is settings.worker("grace")


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        (30, 30),
        (0.5, 0.5),
        ("30", 30),
        ("30s", 30),
        ("2m", 120),
        ("500ms", 0.5),
        ("1h", 3600),
        ("1m30s", 90),
        (" 5s ", 5),
    ],
)
def test_lengths_of_time_are_written_in_several_ways(raw: object, seconds: float) -> None:
    value = QUEUE_KNOBS["visibility_timeout"].read(raw)
    assert value == pytest.approx(seconds) and type(value) is float


@pytest.mark.parametrize(
    "raw",
    [
        0,
        -1,
        "-1s",
        "30 seconds",
        "",
        "s",
        True,
        None,
        float("nan"),
        float("inf"),
        10**400,
        "9" * 5000,
        [],
        {},
        "1e3",
        "٣",
    ],
)
def test_what_is_no_length_of_time_is_refused(raw: object) -> None:
    with pytest.raises(
        ValueError, match=r"visibility_timeout must be a length of time from 0\.001 to 31622400 seconds"
    ):
        QUEUE_KNOBS["visibility_timeout"].read(raw)


@pytest.mark.parametrize("raw", [0, -1, 1.0, "1.0", "1_0", "ten", "", True, None, 10**400, "9" * 5000, [], {}, "٣"])
def test_what_is_no_count_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match="batch_size must be a whole number from 1 to 100000, not "):
        QUEUE_KNOBS["batch_size"].read(raw)


def test_only_what_may_be_switched_off_takes_none() -> None:
    assert QUEUE_KNOBS["timeout"].read("none") is None
    assert QUEUE_KNOBS["max_attempts"].read(None) is None
    with pytest.raises(ValueError, match="grace must be"):
        WORKER_KNOBS["grace"].read("none")
