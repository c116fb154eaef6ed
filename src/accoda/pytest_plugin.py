"""The pytest plugin: fixtures that run each test with the app's jobs in memory.

# pyproject.toml
[tool.pytest.ini_options]
accoda_app = "shop.jobs:app"

# test_shop.py
def test_an_order_is_confirmed(client, accoda_jobs):
    client.post("/orders", {"item": "tea"})
    accoda_jobs.assert_enqueued(confirm, Order("tea"))

pytest loads this module in every project that has Accoda installed, so it imports nothing but pytest.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.app_testing import Trial

OPTION = "accoda_app"
MARKER = "accoda(inline=False, now=None): how the fixture accoda_jobs runs jobs, as app.testing(inline=…, now=…) does"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(OPTION, "where the app is for the fixture accoda_jobs, such as shop.jobs:app")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def accoda_app(pytestconfig: pytest.Config) -> App:
    """The app whose jobs `accoda_jobs` keeps in memory: the one that the option `accoda_app` names. Override it for
    an app that a fixture makes."""
    where = str(pytestconfig.getini(OPTION))
    if not where:
        raise pytest.UsageError(
            f'which app? Say so in pyproject.toml, under [tool.pytest.ini_options]: {OPTION} = "shop.jobs:app", '
            f"or define a fixture {OPTION} that returns it, in conftest.py"
        )
    return _load(where)


@pytest.fixture
def accoda_jobs(accoda_app: App, request: pytest.FixtureRequest) -> Iterator[Trial]:
    """The app's jobs in this test: in memory, with a clock that you move. See `accoda.Trial`."""
    with accoda_app.testing(**_marked(request.node)) as jobs:
        yield jobs


def _load(where: str) -> App:
    from accoda.app import App

    if ":" not in where:
        raise pytest.UsageError(f"{OPTION}: write module:app, such as shop.jobs:app, not {where!r}")
    try:
        found = pkgutil.resolve_name(where)
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f'{OPTION} = "{where}": {error}; pythonpath = ["."] may be missing there') from error
    except (AttributeError, ValueError) as error:
        raise pytest.UsageError(f'{OPTION} = "{where}": {error}') from error
    if not isinstance(found, App):
        raise pytest.UsageError(f'{OPTION} = "{where}" is no accoda.App but {found!r:.80}')
    return found


def _marked(node: pytest.Item) -> dict[str, Any]:
    """What the test, its class or its module says with the marker; the nearest word counts."""
    options: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("accoda"))):
        if marker.args or not marker.kwargs.keys() <= {"inline", "now"}:
            raise pytest.UsageError(f"a marker accoda of {node.name} says what it cannot; write pytest.mark.{MARKER}")
        options |= marker.kwargs
    return options
