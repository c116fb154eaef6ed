"""TOML and YAML: errors name the file, the line and what to write instead."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from accoda.errors import SettingsError
from accoda.settings import Settings
from accoda.settings.entries import gather
from accoda.settings.readers import read_toml, read_yaml


def error_of(folder: Path, name: str, text: str, service: str = "shop") -> str:
    (folder / name).write_text(text)
    with pytest.raises(SettingsError) as caught:
        Settings.load(folder / name, service=service, environ={})
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[worker.queue.emails]\n\nbach_size = 3",
            "s.toml:3: unknown setting 'bach_size' in worker/queue/emails, did you mean 'batch_size'?",
        ),
        (
            "[worker.queue.emails]\nbatch_size = 0",
            "s.toml:2: batch_size must be a whole number from 1 to 100000, not 0",
        ),
        (
            "[worker.queue.emails]\nbatch_size = [1]",
            "s.toml:2: batch_size must be a whole number from 1 to 100000, not a list",
        ),
        ("[worker.queue.a]\nx = 1\n[worker.queue.a]", "s.toml:3: not valid TOML: Cannot declare"),
        (
            "[worker.queue.emails\n",
            "s.toml:1: not valid TOML: Expected ']' at the end of a table declaration (column 21)",
        ),
        (
            "[workers.queue.emails]\ntimeout = 3",
            "s.toml:2: unknown setting 'workers/queue/emails/timeout', did you mean",
        ),
        (
            "[worker.queues.emails]\ntimeout = 3",
            "s.toml:2: unknown setting 'worker/queues/emails/timeout', did you mean",
        ),
        ("[shop.wroker.queue.emails]\ntimeout = 3", "did you mean 'worker'?"),
        (
            "[worker.queue]\ntimeout = 3",
            "s.toml:2: unknown setting worker/queue/timeout; the path is worker/queue/{name}",
        ),
        ("[worker.queue.deals.deliver]\ntimeout = 3", 'a name with a dot needs quotes: worker.queue."deals.deliver"'),
        ("[worker.queue.default.queues.emails]\ntimeout = 3", "did you mean 'queue'?"),
        ("[worker.queue.default.queue.emails]\ngrace = 3", "s.toml:2: grace is the worker's, not one queue's"),
        ("worker = 3", "s.toml:1: unknown setting 'worker'"),
        ("[[worker]]\n", "s.toml: unknown setting 'worker'"),
        (".".join("a" * 100) + " = 1", "tables are nested more than 16 deep"),
        (".".join("a" * 100_000) + " = 1", "s.toml:1: the line has more than 8192 characters"),
        ("a = " + "[" * 4000, "s.toml"),
        ("a = " + "9" * 5000, "s.toml"),
    ],
)
def test_a_mistake_in_toml_is_named(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in error_of(tmp_path, "s.toml", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "worker:\n  queue:\n    emails:\n      bach_size: 3",
            "s.yaml:4: unknown setting 'bach_size' in worker/queue/emails",
        ),
        (
            "worker: {queue: {emails: {batch_size: yes}}}",
            "s.yaml:1: batch_size must be a whole number from 1 to 100000",
        ),
        ("worker: {queue: {emails: {batch_size: }}}", "not None"),
        ("worker:\n  queue:\n  queue:", "s.yaml:3: 'queue' is here a second time, first in line 2"),
        ("worker: &a {queue: *a}", "s.yaml:1: aliases (*a) are not read; write the value out"),
        ("a: [1, 2]", "s.yaml:1: a list is no setting"),
        ("- 1", "s.yaml:1: a list is no setting"),
        ("just a text", "s.yaml:1: settings must be tables"),
        ("? {a: b}\n: c", "s.yaml:1: a list or a mapping cannot be a name"),
        ("a: 1\n---\nb: 2", "s.yaml:2: a second document begins here"),
        ("a: !!python/object/apply:os.system [ls]", "s.yaml:1: the tag"),
        ("worker:\n  queue: {", "s.yaml:2: not valid YAML: did not find expected node content"),
        ("a: b: c", "s.yaml:1: not valid YAML: mapping values are not allowed"),
        ("a: \x01", "s.yaml: not valid YAML: "),
        ("{a: " * 50_000, "s.yaml:1: this is nested more than 16 deep"),
    ],
)
def test_a_mistake_in_yaml_is_named(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in error_of(tmp_path, "s.yaml", text)


def test_yaml_without_its_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert error_of(tmp_path, "s.yaml", "a: 1") == (
        "s.yaml: YAML needs PyYAML; install it with: pip install 'accoda[yaml]'"
    )


def test_an_alias_bomb_is_refused_at_its_first_alias(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, 60)]
    assert "s.yaml:2: aliases (*a0) are not read" in error_of(tmp_path, "s.yaml", "\n".join(lines))


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = "[worker.queue.emails]\nbach_size = 3\ntimeout = 'soon'\nmax_attempts = 0"
    assert error_of(tmp_path, "s.toml", text).count("s.toml:") == 3


def test_yaml_scalars_mean_what_they_say(tmp_path: Path) -> None:
    text = """
    worker:
      queue:
        no: {batch_size: 12}
        on: {batch_size: "13"}
        default:
          max_processors: 4
          queue:
            007: {batch_size: 20}
            emails: {timeout: ~, visibility_timeout: 1m30s, max_attempts: none}
    """
    (tmp_path / "s.yml").write_text(text)
    settings = Settings.load(tmp_path / "s.yml", environ={})
    assert settings.queue("no", "batch_size").value == 12
    assert settings.queue("on", "batch_size").value == 13
    assert settings.queue("007", "batch_size").value == 20
    assert settings.queue("emails", "timeout", code=5).value is None
    assert settings.queue("emails", "max_attempts", code=5).value is None
    assert settings.queue("emails", "visibility_timeout").value == 90
    assert settings.worker("max_processors").source == f"{tmp_path}/s.yml:7"


def test_toml_values_have_their_line_in_any_notation() -> None:
    text = '''
note = """
[worker.queue.emails]
batch_size = 99
"""
worker.queue.sms.batch_size = 1
worker.queue.default = { grace = 5, heartbeat = "1s" } # both here
[ "worker" . queue . "deals.deliver" ] # a header with blanks
  "batch_size" = 7
timeout = """
3s"""
'''
    entries = {entry.path[-2:]: entry.source for entry in read_toml(text, "s.toml") if len(entry.path) > 1}
    assert entries == {
        ("sms", "batch_size"): "s.toml:6",
        ("default", "grace"): "s.toml:7",
        ("default", "heartbeat"): "s.toml:7",
        ("deals.deliver", "batch_size"): "s.toml:9",
        ("deals.deliver", "timeout"): "s.toml",
    }


def test_a_file_for_other_services_only_gives_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "s.toml").write_text("[shpo.worker.queue.default]\ngrace = 1")
    settings = Settings.load(tmp_path / "s.toml", service="shop", environ={})
    assert settings.worker("grace").value == 30
    assert "nothing in it is for service 'shop', only for shpo; see ACCODA_SERVICE" in settings.problems[0]
    assert "only for shpo" in caplog.text


@pytest.mark.parametrize(
    ("name", "expected"), [("s.ini", "ends in one of .toml"), ("gone.toml", "cannot be read: No such")]
)
def test_a_missing_or_unknown_file_is_named(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected) as caught:
        Settings.load(environ={"ACCODA_SETTINGS": f"{tmp_path}/{name}"})
    assert name in str(caught.value)


def test_a_folder_a_binary_file_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    names = ["folder.toml", "bytes.toml", "huge.yaml"]
    with pytest.raises(SettingsError) as caught:
        Settings.load([tmp_path / name for name in names], environ={})
    reasons = ["not a file", "not UTF-8: invalid start byte at byte 0", "larger than 1 MB"]
    assert len(caught.value.problems) == 3
    assert all(reason in problem for reason, problem in zip(reasons, caught.value.problems, strict=True))


def test_a_byte_order_mark_and_an_empty_file_are_fine(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"\xef\xbb\xbfworker.queue.default.grace = 1\r\n")
    for name in ("empty.toml", "empty.yaml"):
        (tmp_path / name).write_text("# nothing\n")
    settings = Settings.load([tmp_path / "s.toml", tmp_path / "empty.toml", tmp_path / "empty.yaml"], environ={})
    assert settings.worker("grace").value == 1


@pytest.mark.parametrize("read", [read_toml, read_yaml])
@hypothesis_settings(deadline=None)
@given(text=st.one_of(st.text(), st.text(alphabet="[]{}.:=\"'#-&*!|> \n\tab1")))
def test_no_text_makes_a_reader_raise_another_error(read: object, text: str) -> None:
    try:
        gather(read(text, "s"), ("shop",), "s")  # type: ignore[operator]
    except SettingsError as error:
        assert str(error).startswith("s")


def test_unknown_and_invalid_variables_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings.load(environ={"ACCODA_WORKER_QUEUE_EMAILS_BACH_SIZE": "3", "ACCODA_WORKER_QUEUE_GRACE": "3"})
    assert settings.problems == (
        "environment ACCODA_WORKER_QUEUE_EMAILS_BACH_SIZE: unknown setting, did you mean 'batch_size'?",
        "environment ACCODA_WORKER_QUEUE_GRACE: unknown setting, did you mean 'grace'?",
    )
    assert "did you mean 'batch_size'" in caplog.text
    with pytest.raises(SettingsError, match=r"^environment ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE: batch_size must be"):
        Settings.load(environ={"ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE": "many"})
