"""The pytest plugin in small projects of their own, run by pytest as their users run it."""

import sys

import pytest

pytest_plugins = ["pytester"]

JOBS = """
from dataclasses import dataclass

from accoda import App

app = App("sqlite:////nowhere/that/exists.db")


@dataclass
class Order:
    item: str


@app.handler("confirm", keep_for=60)
async def confirm(order: Order) -> str:
    if not order.item:
        raise ValueError("an order of nothing")
    return order.item.upper()


@app.handler("count", keep_for=60)
def count(n: int) -> int:
    return n + 1
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose settings name its app."""
    pytester.makepyprojecttoml(
        """
        [tool.pytest.ini_options]
        accoda_app = "jobs:app"
        pythonpath = ["."]
        asyncio_mode = "auto"
        asyncio_default_fixture_loop_scope = "function"
        filterwarnings = ["error"]
        addopts = "--strict-markers -p no:schemathesis -p no:hypothesispytest -p no:cov"
        """
    )
    pytester.makepyfile(jobs=JOBS)
    return pytester


def test_plain_tests_and_async_tests_have_the_same_words(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from jobs import Order, app, confirm, count

        def test_plain(accoda_jobs):
            confirm.sync.enqueue(Order("tea"), delay=60)
            accoda_jobs.assert_enqueued(confirm, Order("tea"), delay=60)
            assert accoda_jobs.sync.drain() == 0
            accoda_jobs.advance(minutes=1)
            assert accoda_jobs.sync.drain() == 1
            accoda_jobs.refute_enqueued("confirm")

        async def test_async(accoda_jobs):
            await confirm.enqueue(Order("tea"))
            assert await accoda_jobs.drain() == 1
            accoda_jobs.assert_no_failures()

        def test_each_test_begins_with_nothing(accoda_jobs):
            assert accoda_jobs.waiting() == [] and accoda_jobs.runs() == []
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=3)


@pytest.mark.parametrize("library", ["asyncio-strict", "anyio"])
def test_each_way_of_running_async_tests_works(project: pytest.Pytester, library: str) -> None:
    marker = "pytest.mark.anyio" if library == "anyio" else "pytest.mark.asyncio"
    project.makepyfile(
        f"""
        import pytest
        from jobs import Order, confirm, count

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @{marker}
        @pytest.mark.accoda(inline=True)
        async def test_async(accoda_jobs):
            assert await (await confirm.enqueue(Order("tea"))).result() == "TEA"
            assert await (await count.enqueue(1)).result() == 2
            await confirm.enqueue(Order("cup"), delay=5)
            assert await accoda_jobs.drain(with_scheduled=True) == 1
        """
    )
    options = ("-p", "no:asyncio") if library == "anyio" else ("-o", "asyncio_mode=strict")
    if library == "anyio":
        text = (project.path / "pyproject.toml").read_text()
        (project.path / "pyproject.toml").write_text("".join(x for x in text.splitlines(True) if "asyncio_" not in x))
    project.runpytest_subprocess(*options).assert_outcomes(passed=1)


def test_a_marker_says_how_jobs_run_and_the_nearest_counts(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from datetime import UTC, datetime

        import pytest
        from jobs import count

        pytestmark = pytest.mark.accoda(inline=True, now=datetime(2030, 1, 1, tzinfo=UTC))

        def test_the_module_s(accoda_jobs):
            assert count.sync.enqueue(1).result() == 2
            assert accoda_jobs.now == datetime(2030, 1, 1, tzinfo=UTC)

        @pytest.mark.accoda(inline=False)
        def test_its_own(accoda_jobs):
            count.sync.enqueue(1)
            assert accoda_jobs.assert_enqueued(count).starts_at == datetime(2030, 1, 1, tzinfo=UTC)

        @pytest.mark.accoda(inlin=True)
        def test_a_typo(accoda_jobs): ...
        """
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*marker accoda of test_a_typo*pytest.mark.accoda(inline=False, now=None)*"])


def test_test_cases_of_unittest_have_the_jobs(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import unittest

        import pytest
        from jobs import app, count

        class WithTheFixture(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _jobs(self, accoda_jobs):
                self.jobs = accoda_jobs

            def test_it(self):
                count.sync.enqueue(1)
                self.jobs.assert_enqueued(count, 1)
                self.assertEqual(self.jobs.sync.drain(), 1)

        class Plain(unittest.TestCase):
            def setUp(self):
                self.jobs = self.enterContext(app.testing(inline=True))

            def test_it(self):
                self.assertEqual(count.sync.enqueue(1).result(), 2)

        class Async(unittest.IsolatedAsyncioTestCase):
            async def test_it(self):
                async with app.testing() as jobs:
                    await count.enqueue(1)
                    self.assertEqual(await jobs.drain(), 1)
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=3)
    done = project.run(sys.executable, "-m", "unittest", "-q", "test_test_cases_of_unittest_have_the_jobs.Plain")
    done.stderr.fnmatch_lines(["OK"])


def test_a_client_that_runs_the_web_app_in_another_thread_sees_results(project: pytest.Pytester) -> None:
    pytest.importorskip("fastapi", reason="it is in the extra dev")
    project.makepyfile(
        web="""
        from fastapi import FastAPI
        from jobs import Order, confirm, count

        web = FastAPI()

        @web.post("/orders/{item}")
        async def order(item: str) -> str:
            return await (await confirm.enqueue(Order(item))).result()

        @web.post("/count/{n}")
        def plain(n: int) -> int:
            return count.sync.enqueue(n).result()
        """
    )
    project.makepyfile(
        """
        import asyncio

        import pytest
        from fastapi.testclient import TestClient
        from jobs import Order, confirm, count
        from web import web

        @pytest.mark.accoda(inline=True)
        def test_results(accoda_jobs):
            with TestClient(web) as client:
                assert client.post("/orders/tea").json() == "TEA"
                assert client.post("/count/1").json() == 2
            accoda_jobs.assert_no_failures()

        def test_what_was_enqueued(accoda_jobs):
            accoda_jobs.inline = True
            with TestClient(web) as client:
                client.post("/orders/tea")
            assert accoda_jobs.payloads(confirm) == [Order("tea")]

        @pytest.mark.accoda(inline=True)
        async def test_in_the_loop_of_the_test(accoda_jobs):
            from httpx2 import ASGITransport, AsyncClient

            async with AsyncClient(transport=ASGITransport(web), base_url="http://shop") as client:
                answers = await asyncio.gather(*(client.post(f"/orders/{n}") for n in range(5)))
                assert [answer.json() for answer in answers] == ["0", "1", "2", "3", "4"]
                assert (await client.post("/count/1")).json() == 2
        """
    )
    project.runpytest_subprocess("-W", "default").assert_outcomes(passed=3)


def test_tests_run_side_by_side_in_processes(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from jobs import count

        @pytest.mark.parametrize("n", range(20))
        def test_alone(accoda_jobs, n):
            assert count.sync.enqueue(n).id == 1
            assert accoda_jobs.sync.drain() == 1
        """
    )
    project.runpytest_subprocess("-n", "2").assert_outcomes(passed=20)


def test_a_project_may_define_the_app_itself(project: pytest.Pytester) -> None:
    project.makepyprojecttoml("")
    project.makeconftest(
        """
        import pytest
        from accoda import App

        @pytest.fixture(scope="session")
        def accoda_app():
            return App("memory://")

        @pytest.fixture(autouse=True)
        def jobs(accoda_jobs):
            return accoda_jobs
        """
    )
    project.makepyfile(
        """
        def test_it(jobs, accoda_app):
            accoda_app.sync.enqueue("emails", {"to": "anna"}, lane="acme")
            assert jobs.assert_enqueued("emails", lane="acme").payload == {"to": "anna"}
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("", '*which app? Say so in pyproject.toml*accoda_app = "shop.jobs:app"*or define a fixture accoda_app*'),
        ("jobs", "*write module:app, such as shop.jobs:app, not 'jobs'*"),
        ("nothing:app", "*\"nothing:app\": No module named 'nothing'; pythonpath*"),
        ("jobs:ap", "*\"jobs:ap\": module 'jobs' has no attribute 'ap'*"),
        ("jobs:Order", '*"jobs:Order" is no accoda.App but*'),
    ],
)
def test_an_app_that_is_not_found_is_an_error_that_says_what_to_do(
    project: pytest.Pytester, option: str, message: str
) -> None:
    project.makepyfile("def test_it(accoda_jobs): ...")
    result = project.runpytest_subprocess("-o", f"accoda_app={option}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_a_failed_assertion_shows_the_line_of_the_test_and_what_there_is(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from jobs import Order, confirm

        def test_it(accoda_jobs):
            confirm.sync.enqueue(Order("cup"))
            accoda_jobs.assert_enqueued(confirm, Order("tea"))
        """
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>       accoda_jobs.assert_enqueued(confirm, Order("tea"))',
            "E       AssertionError: no job of confirm with payload Order(item='tea') waits; waiting in confirm:",
            "E         job 1: Order(item='cup')",
        ]
    )
    result.stdout.no_fnmatch_line("*trial.py:*")


def test_the_plugin_imports_nothing_of_accoda_before_a_test_asks_for_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.partition(".")[0] in ("accoda", "msgspec", "apsw")}
            assert loaded == {"accoda", "accoda.pytest_plugin"}
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)
