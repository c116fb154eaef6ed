"""`/health`: a store that does not answer makes the service unready, and not dead."""

from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.service import ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions


def test_a_service_whose_store_is_away_lives_and_is_not_ready() -> None:
    server = need(lambda: RedisServer().start())
    options = ServiceOptions(system_jobs=False, ready_within=0.3)
    try:
        with ServiceRunner(App(server.url), options) as service:
            assert service.get("/health/ready").json()["status"] == "ready"
            server.close()
            away = service.get("/health/ready")
            assert (away.status, away.json()["status"], away.json()["storage"]["latency"]) == (503, "unready", None)
            assert away.json()["storage"]["problem"]
            assert service.get("/health/live").status == 200
    finally:
        server.close()
