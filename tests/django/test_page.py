"""docs/django.md: its blocks are the files of a project, and its commands are typed in that project."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
import pytest

from accoda.django import checks
from accoda.django.options import QUEUE_OPTIONS, BackendOptions
from accoda.django.task import CallOptions, TaskOptions

PAGE = (Path(__file__).parents[2] / "docs" / "django.md").read_text()
BLOCKS = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
SETTINGS, *VARIANTS = [code for path, code in BLOCKS if path == "mysite/settings.py"]
COMMANDS = re.findall(r"^\$ python manage\.py (.*)$", PAGE, re.MULTILINE)

MODELS = """
from django.db import models

class Order(models.Model):
    number = models.IntegerField()
    task = models.CharField(max_length=64, default="")
"""
FIRST = """
import django
django.setup()
from shop.tasks import send_receipt
send_receipt.enqueue(0, "nobody@example.com")
"""
"""A job, so that the commands have a store to look at, in whichever order the tests run."""
USE = """
import django
django.setup()
from asgiref.sync import async_to_sync
from django.core import mail
from django.test import RequestFactory
from shop.later import send_tomorrow
from shop.orders import place_order
from shop.results import describe
from shop.tasks import attempt_of, charge, send_receipt
from shop.views import buy

def show(name, id):
    print(name, id, describe(id))

show("first", send_receipt.enqueue(1, "anna@example.com").id)
print("view", buy(RequestFactory().get("/"), 2).status_code)
show("async", async_to_sync(attempt_of.aenqueue)("hello").id)
show("tomorrow", send_tomorrow(3))
one, two = (charge.enqueue(4, "anna", card="4111") for _ in range(2))
print("one job", one.id == two.id)
order = place_order(5)
show("order", order.task)
"""
DESCRIBE = """
import sys, django
django.setup()
from shop.results import describe
print(*(describe(id) for id in sys.argv[1:]), sep="; ")
"""


class Site:
    """A project as `startproject` and `startapp` make it, with the blocks of the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith(("DJANGO_", "ACCODA_"))}
        self._environment["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
        self.python("-m", "django", "startproject", "mysite", ".", settings=None)
        self.python("manage.py", "startapp", "shop")
        (folder / "shop" / "models.py").write_text(MODELS)
        for name in ("tests.py", "views.py"):
            (folder / "shop" / name).unlink()
        self.write("mysite/settings.py", 'INSTALLED_APPS += ["shop"]\n' + SETTINGS)
        if django.VERSION < (6, 1):  # which prints emails in a new project anyway
            self.write("mysite/settings.py", 'EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"\n')
        for path, code in BLOCKS:
            if path != "mysite/settings.py":
                self.write(path, code)
        for number, code in enumerate(VARIANTS):
            self.write(f"mysite/variant_{number}.py", "from mysite.settings import *\n" + code)
        self.python("manage.py", "makemigrations", "shop")
        self.python("manage.py", "migrate")
        self.python("-c", FIRST)

    def write(self, path: str, code: str) -> None:
        """Add to a file. Before Django 6, the backport has the framework, as the page says."""
        if django.VERSION < (6, 0):
            code = code.replace("from django.tasks import", "from django_tasks import")
        with (self.folder / path).open("a") as file:
            file.write(code + "\n")

    def start(self, *words: str, settings: str | None = "mysite.settings") -> subprocess.Popen[str]:
        environment = {**self._environment, "DJANGO_SETTINGS_MODULE": settings or ""}
        if settings is None:
            del environment["DJANGO_SETTINGS_MODULE"]
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def python(self, *words: str, settings: str | None = "mysite.settings", fails: bool = False) -> str:
        """What it prints. Unless it may fail, it has to end well."""
        process = self.start(*words, settings=settings)
        text, _ = process.communicate(timeout=120)
        assert fails or process.returncode == 0, f"{words}: {text}"
        return text

    def results(self, *ids: str) -> list[str]:
        """What the page's own function says of them."""
        return self.python("-c", DESCRIBE, *ids).strip().split("; ")

    @contextmanager
    def worker(self, *words: str) -> Iterator[None]:
        """A worker that stays until it is told to leave, by its command."""
        process = self.start("manage.py", *(words or ("accoda", "worker")))
        assert process.stdout is not None
        try:
            for line in process.stdout:
                assert "rror" not in line, line
                if "running" in line:  # now it listens to signals
                    break
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("page") / "site")


def test_every_block_says_which_file_it_is_a_piece_of() -> None:
    assert len(BLOCKS) == PAGE.count("```python")


def test_the_code_of_the_page_runs(site: Site) -> None:
    said = dict(line.split(" ", 1) for line in site.python("-c", USE).splitlines())
    assert said["view"] == "202" and said["one"] == "job True"
    ids = {name: said[name].split()[0] for name in ("first", "async", "tomorrow", "order")}
    assert {said[name].partition(" ")[2] for name in ids} == {"READY, 0 attempts so far"}
    assert (ids["first"].isdigit(), len(ids["order"])) == (True, 32)
    assert "To: anna@example.com" in site.python("manage.py", "accoda", "worker", "--burst")
    expected = {"first": "returned None", "async": "returned hello: attempt 1", "tomorrow": "READY, 0 attempts so far"}
    with site.worker():  # one that stays moves tasks out of the outbox
        while (order := site.results(ids["order"])) == ["READY, 0 attempts so far"]:
            pass
    assert order == ["returned None"]
    assert site.results(*(ids[name] for name in expected)) == list(expected.values())


def test_its_tests_pass(site: Site) -> None:
    said = site.python("manage.py", "test")
    count = int(re.findall(r"Ran (\d+) tests", said)[0])
    assert count > 60 and "OK" in said


def test_the_fixture_for_pytest_has_what_was_enqueued(site: Site) -> None:
    (site.folder / "shop" / "test_with_pytest.py").write_text(
        "import django\ndjango.setup()\nimport pytest\n"
        "from shop.tasks import send_receipt\n\n"
        "@pytest.fixture\ndef db(): ...\n\n"  # of pytest-django
        "def test_it(tasks):\n    send_receipt.enqueue(1, 'x@example.com')\n    tasks.assert_enqueued(send_receipt)\n"
    )
    assert "1 passed" in site.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "shop/test_with_pytest.py")


@pytest.mark.parametrize("number", range(len(VARIANTS)))
def test_other_settings_of_the_page_pass_their_checks(site: Site, number: int) -> None:
    assert "no issues" in site.python("manage.py", "check", settings=f"mysite.variant_{number}")


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_its_commands_run(site: Site, command: str) -> None:
    words = command.split()
    if "worker" not in words or "--burst" in words:
        # A new project is one for development, of which Django's own checks complain.
        said = site.python("manage.py", *words, fails="--deploy" in words)
        assert re.search(r"accoda\.[EW]\d", said) is None, said
        return
    with site.worker(*words):
        pass


def test_the_page_names_every_option_and_every_check() -> None:
    names = {*BackendOptions.__struct_fields__, *CallOptions.__annotations__, *TaskOptions.__annotations__}
    for name in names | QUEUE_OPTIONS:
        assert f"`{name}`" in PAGE, name
    for name in re.findall(r'"(accoda\.[EW]\d+)"', Path(checks.__file__).read_text()):
        assert f"`{name}`" in PAGE, name
