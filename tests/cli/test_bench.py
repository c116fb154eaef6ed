"""`accoda bench`: it measures, says that it writes, and leaves nothing."""

import json

from cli_world import World


def test_every_rate_is_measured_and_nothing_is_left(world: World) -> None:
    told = world.run("bench", "--seconds", "0.2", "--json")
    assert told.exit_code == 0
    assert told.stderr == "Writing to sqlite:///accoda.db for 0.2 s, in the queue accoda.bench …\n"
    rates = json.loads(told.stdout)
    assert len(rates) == 4 and all(rate > 0 for rate in rates.values())
    stats = world.store(lambda app: app.storage.stats()).queues
    assert stats["accoda.bench"].total == 0
    assert stats["emails"].total == 11, "nobody else's jobs are touched"
    assert "accoda.bench" not in world.run("queues").stdout


def test_memory_can_be_measured(world: World) -> None:
    assert world.run("bench", "--seconds", "0.1", "--url", "memory://").exit_code == 0
