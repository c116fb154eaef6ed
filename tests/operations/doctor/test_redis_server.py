"""What a Redis server says of itself, and what that means for jobs."""

import pytest

from accoda.operations.doctor.redis import Server, check_server

GOOD_INFO = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory_policy": "noeviction",
    "maxmemory": "0",
    "used_memory": "1000000",
    "connected_slaves": "0",
    "connected_clients": "3",
}
GOOD_SETTINGS = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxclients": "10000"}


def told(what: str, info: dict[str, str] | None = None, settings: dict[str, str] | None = None) -> tuple[str, str]:
    found = check_server(Server(GOOD_INFO | (info or {}), GOOD_SETTINGS | (settings or {})), 0, several=False)
    [finding] = [each for each in found if each.what == what]
    return finding.level, finding.advice


def test_a_good_server_is_well() -> None:
    found = check_server(Server(GOOD_INFO, GOOD_SETTINGS), 0, several=False)
    assert {each.level for each in found} == {"ok"}


@pytest.mark.parametrize(
    ("what", "info", "settings", "level", "advice"),
    [
        ("server", {"redis_version": "6.0.9"}, {}, "problem", "6.2"),
        ("role", {"role": "slave", "master_host": "h", "master_port": "1"}, {}, "problem", "h:1"),
        (
            "maxmemory-policy",
            {"maxmemory_policy": "allkeys-lru", "maxmemory": "9999999"},
            {},
            "problem",
            "CONFIG SET maxmemory-policy noeviction",
        ),
        ("maxmemory-policy", {"maxmemory_policy": "volatile-lru"}, {}, "warning", "noeviction"),
        ("evicted keys", {"evicted_keys": "3200"}, {}, "warning", "CONFIG RESETSTAT"),
        ("memory", {"maxmemory": "1000000"}, {}, "problem", "CONFIG SET maxmemory"),
        ("memory", {"maxmemory": "1050000"}, {}, "warning", "CONFIG SET maxmemory"),
        ("memory", {"total_system_memory": "1050000"}, {}, "warning", "maxmemory"),
        ("durability", {}, {"appendonly": "no"}, "problem", "CONFIG SET appendonly yes"),
        ("durability", {}, {"appendonly": "no", "save": "3600 1"}, "warning", "CONFIG SET appendonly yes"),
        ("durability", {}, {"appendfsync": "no"}, "warning", "CONFIG SET appendfsync everysec"),
        ("durability", {}, {"appendfsync": "everysec"}, "note", "CONFIG SET appendfsync always"),
        ("disk", {"aof_last_write_status": "err"}, {}, "problem", "space"),
        ("disk", {"rdb_last_bgsave_status": "err"}, {}, "warning", "space"),
        ("connections", {"connected_clients": "9500"}, {}, "warning", "CONFIG SET maxclients 20000"),
        ("replicas", {"connected_slaves": "1"}, {}, "note", "wait_replicas=1"),
    ],
)
def test_each_trouble_names_the_setting_that_ends_it(
    what: str, info: dict[str, str], settings: dict[str, str], level: str, advice: str
) -> None:
    found = told(what, info, settings)
    assert found[0] == level and advice in found[1]


def test_a_url_that_waits_for_replicas_that_are_not_there_is_a_problem() -> None:
    found = check_server(Server(GOOD_INFO, GOOD_SETTINGS), 1, several=True)
    assert [each.level for each in found if each.what == "replicas"] == ["problem"]


def test_with_sentinels_a_master_needs_a_replica() -> None:
    found = check_server(Server(GOOD_INFO, GOOD_SETTINGS), 0, several=True)
    assert [each.level for each in found if each.what == "replicas"] == ["warning"]


def test_settings_that_may_not_be_read_are_made_up_for_from_info() -> None:
    found = check_server(Server(GOOD_INFO | {"aof_enabled": "1"}), 0, several=False)
    assert {each.level for each in found} == {"ok"}
