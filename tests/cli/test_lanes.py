"""`accoda lanes`, and held jobs in the other commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_lanes import build_lanes
from cli_world import World, visit

from accoda.operations import lanes


@pytest.fixture
def mailings(prepared: Path, tmp_path: Path) -> Iterator[World]:
    with visit(build_lanes(prepared, tmp_path / "with-lanes"), tmp_path / "there") as world:
        yield world


def held(world: World) -> int:
    return int(world.store(lambda app: lanes.get(app, "mailings")).held)


def test_lanes_are_listed_with_rules_and_shares(mailings: World) -> None:
    told = mailings.run("lanes", "mailings")
    assert told.exit_code == 0 and "2 of a lane in line or running at once" in told.stdout
    titles, first, *_, last = told.stdout.partition("\n\n")[2].splitlines()
    assert titles.startswith("lane ") and titles.endswith("limit  weight  share  last hour  runs")
    lane, ready, held, running, *rest = first.split()
    assert (lane, int(ready) + int(running), held, rest) == ("customer-7", 2, "7", ["2", "3", "56%", "41%", "612"])
    assert last.split() == ["customer-21", "0", "0", "0", "2", "1", "0%", "14%", "204"], "it only ran"
    assert mailings.run("lanes", "mailings", "--limit-rows", "1").stderr == "3 more lanes: add --limit-rows 4\n"


def test_a_limit_of_one_lane_is_changed_and_reset(mailings: World) -> None:
    before = held(mailings)
    assert (
        "customer-7: limit 4, weight 3"
        in mailings.run("lanes", "mailings", "--lane", "customer-7", "--limit", "4").stdout
    )
    assert held(mailings) == before - 2
    mailings.run("lanes", "mailings", "--lane", "customer-7", "--no-limit")
    assert held(mailings) == before - 7
    mailings.run("lanes", "mailings", "--reset", "--lane", "customer-7", "--yes")
    assert held(mailings) == before


def test_the_rules_of_the_queue_are_changed_and_reset(mailings: World) -> None:
    before = held(mailings)
    words = ("--limit", "0", "--no-fair", "--by-cost", "--total", "10", "--json", "--limit-rows", "0")
    told = json.loads(mailings.run("lanes", "mailings", *words).stdout)
    assert (told["rules"]["limit"], told["rules"]["fair"], told["rules"]["byCost"], told["rules"]["total"]) == (
        0, False, True, 10,
    )  # fmt: skip
    assert json.loads(mailings.run("lanes", "mailings", "--no-total", "--json").stdout)["rules"]["total"] is None
    mailings.run("lanes", "mailings", "--reset", "--yes")
    assert held(mailings) == before


def test_limits_are_shared_and_no_longer(mailings: World) -> None:
    told = mailings.run("lanes", "mailings", "--shared", "shop").stdout
    assert "shared     as shop, with no other queue yet" in told
    told = mailings.run("lanes", "emails", "--shared", "shop", "--limit-rows", "0")
    assert "shared  as shop, with mailings: the lowest limit holds" in told.stdout and told.stderr == ""
    assert "shared" not in mailings.run("lanes", "mailings", "--no-shared").stdout


def test_a_lane_is_paused_and_its_jobs_say_so(mailings: World) -> None:
    mailings.run("lanes", "mailings", "--lane", "anna's shop", "--limit", "0")
    id = mailings.run("enqueue", "mailings", "1", "--lane", "anna's shop", "--json")
    told = mailings.run("why", str(json.loads(id.stdout)["id"]))
    assert "lane anna's shop is paused: its limit is 0" in told.stdout
    assert "accoda lanes mailings --lane 'anna'\"'\"'s shop' --limit 1" in " ".join(told.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lane", "a"), "what of this lane? Add --limit, --no-limit, --weight or --reset."),
        (("--weight", "2"), "--weight is for one lane: add --lane LANE"),
        (("--limit", "1", "--no-limit"), "give either --limit or --no-limit"),
        (("--total", "1", "--no-total"), "give either --total or --no-total"),
        (("--shared", "a", "--no-shared"), "give either --shared or --no-shared"),
        (("--shared", "no name"), "shared: must be"),
        (("--limit", "many"), "Invalid value for '--limit': 'many' is not a whole number"),
        (("--limit", "10001"), "Invalid value for '--limit': 10001 is not in the range"),
        (("--lane", "a\tb", "--limit", "1"), "lane: must be 1 to 128 printable characters"),
        (("--reset", "--fair"), "--reset goes with --lane alone"),
        (("--reset",), "Forget what was changed in the rules for the lanes of mailings? Add --yes"),
        (("--lmit", "1"), "No such option '--lmit'"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(mailings: World, words: tuple[str, ...], said: str) -> None:
    told = mailings.run("lanes", "mailings", *words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith(f"Error: {said}") and told.stderr.count("\n") == 1


def test_a_typo_is_no_queue(mailings: World) -> None:
    told = mailings.run("lanes", "mailngs", "--limit", "1")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == "Error: there is no queue 'mailngs'; did you mean mailings or emails?\n"
    assert mailings.store(lambda app: app.storage.lanes("mailngs")).rules is None


def test_a_queue_without_lanes_says_so(mailings: World) -> None:
    told = mailings.run("lanes", "emails")
    assert "none: a job of a lane waits as any other" in told.stdout
    assert told.stderr == "No job of a lane waits or runs.\n"


def test_held_jobs_have_a_column_only_where_there_are_any(mailings: World, prepared: Path) -> None:
    held_ones = mailings.run(
        "jobs", "--queue", "mailings", "--lane", "customer-12", "--state", "held"
    ).stdout.splitlines()
    assert len(held_ones) == 3 and held_ones[0].split()[:3] == ["id", "queue", "lane"]
    assert mailings.run("queues").stdout.splitlines()[0].split()[:5] == ["queue", "ready", "delayed", "held", "running"]
    assert "held" in mailings.run("top", "--once").stdout
    mailings.run("lanes", "mailings", "--no-limit")
    mailings.run("lanes", "mailings", "--lane", "customer-12", "--no-limit")
    assert "held" not in mailings.run("queues").stdout + mailings.run("top", "--once").stdout
    assert "lane      customer-7" in mailings.run("job", "20").stdout
