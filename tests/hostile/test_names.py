"""Names of queues and workers obey one rule, and a name that breaks it gets the same message everywhere."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from accoda import App, Done, InvalidInput, Lease, NewJob, SettingsError, Worker, WorkerOptions
from accoda.cli.commands import accoda as command
from accoda.limits import NAME_RULE
from accoda.settings import Settings
from accoda.storage.memory import MemoryStorage

BAD = ["", "a b", "über", ".a", "-a", "a/b", "a\n", "a\0", "x" * 129, "{a}", "a:b"]


def queue_words(name: str) -> str:
    shown = repr(name)
    return f"queue: {NAME_RULE}, not {shown if len(shown) <= 80 else shown[:77] + '...'}"


@pytest.mark.parametrize("name", BAD)
def test_handlers_and_jobs_refuse_it(name: str) -> None:
    app = App("memory://")
    ways: list[Callable[[], object]] = [
        lambda: app.handler(name),
        lambda: NewJob(name),
        lambda: app.new_job(name, None, {}),
    ]
    for way in ways:
        with pytest.raises(InvalidInput) as caught:
            way()
        assert str(caught.value) == queue_words(name)


@pytest.mark.parametrize("name", BAD)
async def test_calls_refuse_it(name: str) -> None:
    async with App("memory://") as app, MemoryStorage() as store:
        for call in (
            app.enqueue(name, 1),
            app.enqueue_many(name, [1]),
            store.take(name, 1),
            store.wait([name], 0.0),
            store.pause(name, None),
            store.purge(name, "dead"),
            store.browse(name, "ready"),
        ):
            with pytest.raises(InvalidInput) as caught:
                await call
            assert str(caught.value) == queue_words(name)
        assert await store.settle([Done(Lease(name, 1, 0, 0))]) != [], "a lease is looked up, not made: it is lost"


@pytest.mark.parametrize("name", ["a b", "über", ".a", "-a", "x" * 129, "{a}", "a:b"])
def test_settings_refuse_it_with_the_same_rule(name: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'[worker.queue."{name}"]\nbatch_size = 5\n')
    with pytest.raises(SettingsError) as caught:
        Settings.load(file, environ={})
    assert f"settings.toml:2: queue: {NAME_RULE}, not {name[:60]!r}" in str(caught.value)
    with pytest.raises(SettingsError, match="command line: queue: must be 1 to 128 letters"):
        Settings.load(environ={}, overrides={f"worker/queue/{name}/batch_size": 5})
    with pytest.raises(SettingsError, match="command line: queue: must be 1 to 128 letters"):
        Settings.load(environ={}, overrides={f"worker/queue/default/queue/{name}/batch_size": 5})


@pytest.mark.parametrize("name", ["a b", "über", ".a", "a:b"])
def test_a_worker_refuses_to_serve_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "names_app.py").write_text("from accoda import App\napp = App('memory://')\napp.handler('q')(print)\n")
    monkeypatch.syspath_prepend(tmp_path)
    answer = CliRunner().invoke(command, ["worker", "names_app:app", "-q", name])
    assert answer.exit_code == 2
    assert queue_words(name) in answer.output


@pytest.mark.parametrize("name", ["", "a b", "über", "a/b"])
def test_a_worker_refuses_it(name: str) -> None:
    words = f"worker: {NAME_RULE}, not {name!r}"
    with pytest.raises(InvalidInput) as caught:
        Settings.load(worker=name, environ={})
    assert str(caught.value) == words
    app = App("memory://")
    app.handler("q")(lambda: None)
    with pytest.raises(InvalidInput) as caught:
        Worker(app, WorkerOptions(name=name))
    assert str(caught.value) == words
    answer = CliRunner().invoke(command, ["settings", "--worker", name])
    assert answer.exit_code == 2
    assert answer.output == f"Error: {words}\n"


def test_good_names_are_good_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for name in ("a", "A-1_b.c", "deals.deliver", "7", "x" * 128, "_"):
        assert NewJob(name).queue == name
        file.write_text(f'[worker.queue."{name}"]\nbatch_size = 5\n')
        assert Settings.load(file, worker=name, environ={}).queue(name, "batch_size").value == 5


async def test_a_document_name_is_printable_text_of_bounded_length() -> None:
    async with MemoryStorage() as store:
        for name in ("", "x" * 513, "a\0", "a\n", "\ud800"):
            with pytest.raises(InvalidInput, match="name: must be 1 to 512 printable characters"):
                await store.write(name, b"")
            with pytest.raises(InvalidInput, match="name: must be 1 to 512 printable characters"):
                await store.read(name)
