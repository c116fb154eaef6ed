"""Django, set up for the tests of this folder; and databases for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django.project.settings")

import django
from django.core.management import call_command
from django.db import connections
from django.test.utils import setup_test_environment, teardown_test_environment

django.setup()  # before the tests import models


@pytest.fixture(scope="session", autouse=True)
def django_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Django with an SQLite file of its own for each test process."""
    setup_test_environment()
    file = tmp_path_factory.mktemp("django") / "project.sqlite3"
    with database({"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": {"timeout": 30}}):
        yield
    teardown_test_environment()


@contextmanager
def database(config: dict[str, Any]) -> Iterator[None]:
    """Another default database for a while, migrated."""
    settings = connections.settings["default"]
    before = dict(settings)
    _forget_connections()
    settings.update(config)
    try:
        call_command("migrate", verbosity=0)
        yield
    finally:
        _forget_connections()
        settings.clear()
        settings.update(before)


def _forget_connections() -> None:
    connections.close_all()
    if hasattr(connections._connections, "default"):
        del connections["default"]


def postgres(url: str) -> dict[str, Any]:
    """The settings of a database behind a URL."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": parts.port or 5432,
        "OPTIONS": {},
    }


@pytest.fixture(scope="session")
def project_folder() -> Path:
    return Path(__file__).parent / "project"


@pytest.fixture
def clean_orders() -> Iterator[None]:
    """No rows are left behind by a test that commits."""
    yield
    from tests.django.project.shop.models import Order

    Order.objects.all().delete()
