"""`/api/v1/schedules` of services that know the handler and of some that do not: the secrets stay hidden."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proof.service import ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions
from accoda.schedules import get

PATH = "/api/v1/schedules/daily"
CARD = {"number": "4111", "owner": {"phone": "06", "name": "Anna"}}
DAILY = {"queue": "cards", "cron": "0 7 * * *", "payload": CARD}
SHOWN = {"number": "•••", "owner": {"phone": "•••", "name": "Anna"}}


def knowing(url: str) -> App:
    app = App(url)

    @app.handler("cards", secret=("number", "owner.phone"))
    async def charge(card: dict[str, Any]) -> None: ...

    return app


@pytest.fixture(params=[True, False], ids=["with the handler", "without"])
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServiceRunner]:
    """It has the schedule `daily`, from a service that knows the handler; this one may not."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    options = ServiceOptions(system_jobs=False)
    with ServiceRunner(knowing(url), options) as first:
        assert first.post("/api/v1/schedules", {"name": "daily", **DAILY}).json()["payload"] == SHOWN
    with ServiceRunner(knowing(url) if request.param else App(url), options) as service:
        yield service


async def stored(service: ServiceRunner) -> Any:
    async with App(service.app.url) as app:
        view = await get(app.storage, "daily", secrets=True)
    assert view.schedule is not None
    return view.schedule.payload


async def test_a_schedule_can_be_sent_back_as_it_is_shown(service: ServiceRunner) -> None:
    view = service.get(PATH).json()
    assert view["payload"] == SHOWN
    mine = {name: view[name] for name in DAILY} | {"cron": "0 8 * * *"}
    changed = service.request("PUT", PATH, mine)
    assert (changed.status, changed.json()["payload"], changed.json()["cron"]) == (200, SHOWN, "0 8 * * *")
    assert await stored(service) == CARD


async def test_a_payload_that_does_not_fit_is_refused_if_the_handler_is_known(service: ServiceRunner) -> None:
    knows = "cards" in service.app.handlers
    for method, path in (("PUT", PATH), ("PUT", "/api/v1/schedules/new"), ("PATCH", PATH)):
        body = {**DAILY, "payload": [1]} if method == "PUT" else {"payload": [1]}
        assert service.request(method, path, body).status == (422 if knows else 200)


async def test_a_partial_change_keeps_the_secrets_with_or_without_a_payload(service: ServiceRunner) -> None:
    assert service.request("PATCH", PATH, {"tz": "Europe/Rome"}).json()["payload"] == SHOWN
    assert await stored(service) == CARD
    owner = {"phone": "•••", "name": "Berta"}
    assert service.request("PATCH", PATH, {"payload": {"number": "4222", "owner": owner}}).status == 200
    assert await stored(service) == {"number": "4222", "owner": {"phone": "06", "name": "Berta"}}
    assert service.request("PATCH", PATH, {"queue": "letters"}).json()["payload"]["number"] == "•••"


async def test_a_hidden_value_in_a_place_without_a_value_is_refused(service: ServiceRunner) -> None:
    service.request("PATCH", PATH, {"payload": {"number": "4111"}})
    for method, body in (("PUT", {**DAILY, "payload": SHOWN}), ("PATCH", {"payload": SHOWN})):
        refused = service.request(method, PATH, body)
        assert (refused.status, refused.json()["field"]) == (422, "payload")
        assert "payload.owner.phone says '•••'" in refused.json()["detail"] and "06" not in refused.json()["detail"]
    assert await stored(service) == {"number": "4111"}


def test_a_trigger_that_makes_no_new_job_is_200_with_the_old_one() -> None:
    with ServiceRunner(App("memory://")) as service:
        for overlap, what in (("skip", "kept"), ("replace", "replaced")):
            service.request("PUT", f"/api/v1/schedules/{overlap}", {"queue": "q", "every": 60, "overlap": overlap})
            first, second = (service.post(f"/api/v1/schedules/{overlap}/trigger") for _ in range(2))
            assert (first.status, first.json()["what"]) == (201, "created")
            assert (second.status, second.json()["what"]) == (200, what)
            assert second.headers["location"] == first.headers["location"]


def test_a_queue_of_a_demand_is_refused_if_the_app_knows_it() -> None:
    app = App("memory://")
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(category: str) -> list[str]:
        return [category]

    with ServiceRunner(app) as service:
        service.request("PUT", PATH, {"queue": "free", "every": 60})
        for method, body in (("PUT", {"queue": "deals", "every": 60}), ("PATCH", {"queue": "deals.deliver"})):
            refused = service.request(method, PATH, body)
            assert (refused.status, refused.json()["field"]) == (422, "queue")
            assert "belongs to a demand" in refused.json()["detail"]
