"""Nothing that is stored, read or received is ever executed or imported: a look at the source, and a try."""

import ast
import asyncio
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import accoda
from accoda import App, Job, Lease, NewJob, SettingsError
from accoda.runtime.heartbeat import read_heartbeats
from accoda.runtime.manager import Manager
from accoda.runtime.runners import wire
from accoda.runtime.runners.raised import Raised
from accoda.settings import Settings

SOURCE = Path(accoda.__file__).parent

FORBIDDEN_MODULES = frozenset(
    ("pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "copyreg", "imp")
)
FORBIDDEN_CALLS = frozenset(("eval", "exec", "compile", "__import__", "import_module", "load_module", "unsafe_load"))
YAML_LOADS = frozenset(("load", "load_all", "full_load", "full_load_all"))

SUSPICIOUS = re.compile(rf"(?<!re\.)\b({'|'.join((*FORBIDDEN_MODULES, *FORBIDDEN_CALLS, 'yaml'))})\b")

ALLOWED = {
    ("__init__.py", "import_module"): "imports a module of ours, by a table, when one of its names is asked for",
    ("cli/commands.py", "import_module"): "imports a command of ours, by a table, when it is run",
    ("cli/common.py", "import_module"): "imports what the user typed on the command line",
    ("dashboard/routes.py", "import_module"): "imports the pages, by a table",
    (
        "operations/doctor/examine.py",
        "import_module",
    ): "imports the module of ours that looks at this kind of store, by a table",
    ("operations/doctor/tarantool.py", "eval"): "asks the server for its settings with an expression of ours",
    ("http/__init__.py", "import_module"): "imports a module of ours, by a table, when one of its names is asked for",
    ("http/extra.py", "import_module"): "looks whether the libraries of the extra are there",
    ("http/table.py", "import_module"): "imports the resources, by a table",
    ("webhooks/sender_loop.py", "import_module"): "imports a module of ours beside the event loop, at the first call",
    (
        "runtime/runners/child.py",
        "import_module",
    ): "a child imports the handler's module; its parent process says which",
    (
        "storage/tarantool/application.py",
        "eval",
    ): "the server runs our own installation script, which is a file of ours",
}


def found_in(path: Path) -> Iterator[str]:
    """Every forbidden name that a file uses: as an import, as a call, as an attribute."""
    text = path.read_text()
    if not SUSPICIOUS.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
                yield str(node.module)
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_CALLS | FORBIDDEN_MODULES:
            yield node.id
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner == "re" and node.attr == "compile":
                continue
            if node.attr in FORBIDDEN_CALLS or (owner == "yaml" and node.attr in YAML_LOADS):
                yield node.attr


def test_the_source_uses_nothing_that_executes_data() -> None:
    used = {(str(path.relative_to(SOURCE)), name) for path in SOURCE.rglob("*.py") for name in found_in(path)}
    # What our tools for tests do to themselves is not reached by data.
    surprising = {use for use in used - ALLOWED.keys() if not use[0].startswith("testing/")}
    assert not surprising
    assert {use for use in ALLOWED if use not in used} == set(), "an exception that is no longer needed"


def test_the_look_at_the_source_finds_what_it_looks_for(tmp_path: Path) -> None:
    bad = ["import pickle as p", "from marshal import loads", "eval('1')", "yaml.load(x)", "importlib.import_module(n)"]
    (tmp_path / "bad.py").write_text("\n".join([*bad, "re.compile('a')"]))
    assert sorted(found_in(tmp_path / "bad.py")) == ["eval", "import_module", "load", "marshal", "pickle"]


class Trap:
    """Runs code when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> Any:
        return (Path.touch, (self.sentinel,))


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[Path]:
    """A file that is there only if something was executed; a module that is loaded only if something was imported."""
    path = tmp_path / "executed"
    (tmp_path / "hostile_trap.py").write_text(f"import pathlib\npathlib.Path({str(path)!r}).touch()\n")
    sys.path.insert(0, str(tmp_path))
    yield path
    sys.path.remove(str(tmp_path))
    assert not path.exists(), "something was executed"
    assert "hostile_trap" not in sys.modules, "something was imported"


def hostile_values(sentinel: Path) -> list[bytes]:
    """Things that other systems have executed."""
    pickled = pickle.dumps(Trap(sentinel))
    texts = [
        "hostile_trap",
        "hostile_trap:app",
        "hostile_trap.run",
        f"__import__('pathlib').Path({str(sentinel)!r}).touch()",
        f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{sentinel}]]",
        f"cpathlib\nPath\n(S'{sentinel}'\ntR.",
    ]
    json = [
        {"py/object": "hostile_trap.Trap", "py/reduce": [{"py/function": "hostile_trap.run"}]},
        {"__class__": "hostile_trap.Trap", "__module__": "hostile_trap", "type": "hostile_trap.Trap"},
        {"task": "hostile_trap.run", "queue": "hostile_trap", "worker": "hostile_trap", "id": "hostile_trap"},
    ]
    values = [pickled, pickle.dumps(Trap(sentinel), 0), *(text.encode() for text in texts)]
    values += [
        msgspec.msgpack.encode(value)
        for value in (*texts, *json, {"pickled": pickled}, msgspec.msgpack.Ext(1, pickled))
    ]
    return [*values, *(msgspec.json.encode(value) for value in json)]


def test_the_trap_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


async def test_stored_payloads_keys_and_results_are_only_data(sentinel: Path) -> None:
    app = App("memory://")
    seen: list[Any] = []

    @app.handler("any", keep_for=60)
    async def any_value(value: Any) -> Any:
        seen.append(value)
        return value

    values = hostile_values(sentinel)
    async with app.testing():
        jobs = [NewJob("any", value, key=f"hostile_trap.{n}", keep_for=60) for n, value in enumerate(values)]
        ids = [enqueued.id for enqueued in await app.storage.enqueue(jobs)]
        await app.run_until_idle()
        states = [info.state for id in ids if (info := await app.find(id)) is not None]
        assert len(states) == len(values)
        assert set(states) == {"done", "dead"}
        for id in ids:
            if (await app.find(id)).state == "done":  # type: ignore[union-attr]
                await app.result(id)
    assert seen


async def test_stored_documents_are_only_data(sentinel: Path) -> None:
    app = App("memory://")
    async with app.testing():
        store = app.storage
        for number, value in enumerate(hostile_values(sentinel)):
            for name in (
                f"worker/{number}",
                "progress/1",
                "manager/leader",
                "manager/assignment",
                "settings/hostile_trap",
            ):
                await store.write(name, value)
            assert await app.progress_of(1) is None or number >= 0
            assert await read_heartbeats(store) == []
            await Manager(store, "w1").run_once()


@pytest.mark.parametrize("suffix", [".toml", ".yaml", ".cdb", ".conf"])
def test_settings_files_are_only_data(suffix: str, sentinel: Path, tmp_path: Path) -> None:
    file = tmp_path / f"settings{suffix}"
    for value in hostile_values(sentinel):
        file.write_bytes(value)
        with pytest.raises(SettingsError):
            Settings.load(file, environ={})


def test_tags_in_yaml_are_refused_by_name(sentinel: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("worker:\n  queue: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(
        SettingsError, match=r"settings.yaml:2: the tag 'tag:yaml.org,2002:python/object/apply:os.system'"
    ):
        Settings.load(file, environ={})


def test_what_a_child_process_says_is_only_data(sentinel: Path) -> None:
    for value in hostile_values(sentinel):
        with pytest.raises(wire.Garbled):
            wire.decode_in_worker(value)
        with pytest.raises(wire.Garbled):
            wire.decode_in_child(value)
    names = ["hostile_trap.Trap", "os.system", "builtins.eval", "eval", "accoda.testing.Thing", "\0", ""]
    for name in names:
        raised = Raised([name, "builtins.exec"], "x", "trace", args=["hostile_trap"])
        result = wire.result_of(wire.Said(1, None, raised))
        assert str(result.error) == "x"  # type: ignore[union-attr]


def test_a_job_in_a_message_is_only_data(sentinel: Path) -> None:
    job = Job(1, "q", pickle.dumps(Trap(sentinel)), 0.0, 0, "hostile_trap", 0, 1, 2, None, 0, Lease("q", 1, 0, 0))
    assert wire.decode_in_child(wire.encode(wire.Work("q", [job]))) == wire.Work("q", [job])


def test_the_environment_and_urls_are_only_data(sentinel: Path) -> None:
    for text in ("hostile_trap", "hostile_trap:app", "__import__('hostile_trap')"):
        with pytest.raises(SettingsError):
            Settings.load(environ={"ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE": text})
        with pytest.raises(accoda.InvalidInput):
            asyncio.run(accoda.open_storage(f"{text}://host/hostile_trap"))
