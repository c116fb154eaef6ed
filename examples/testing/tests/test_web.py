import pytest
from fastapi.testclient import TestClient
from shop.jobs import Order, charge
from shop.web import web

from accoda import Trial


@pytest.fixture
def client() -> TestClient:
    return TestClient(web)


@pytest.mark.accoda(inline=True)
def test_an_order_is_paid(client: TestClient, accoda_jobs: Trial) -> None:
    assert client.post("/orders/tea").json() == {"cents": 450}
    assert accoda_jobs.payloads(charge) == [Order(1, "tea")]


@pytest.mark.accoda(inline=True)
def test_a_price_is_asked_for(client: TestClient) -> None:
    assert client.get("/prices/cup").json() == {"cents": 790}
