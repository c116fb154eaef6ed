"""The model of `make bench-scale`, on costs that are made up, so that every answer can be worked out by hand."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.scale.check import checks, costs_of
from benchmarks.scale.model import (
    Check,
    Costs,
    Crew,
    Line,
    Node,
    Operation,
    Plan,
    crew_rate,
    crowded,
    errors,
    fit,
    limits,
    needs,
    serial_rate,
    share,
)
from benchmarks.scale.record import Record

MICRO = 1e-6
OPERATION = Operation(
    Line(100 * MICRO, 2 * MICRO), Line(50 * MICRO, 4 * MICRO), Line(850 * MICRO), Line(100, 50), Line(0, 80)
)
COSTS = Costs("redis", OPERATION, OPERATION, 3 * MICRO, 200.0, 50, 0.001, True, False, True)
PLAN = Plan(jobs_per_day=86_400_000, peak=2, payload=50, enqueue_batch=10, batch=100, use=0.5)
NODE = Node(cores=4, client_cores=4, memory=1e9, network=1e6, disk=1e6, sessions=5)


def test_a_line_is_found_again_from_its_points() -> None:
    found = fit({batch: 100 / batch + 3 for batch in (1, 10, 100, 1000)})
    assert found.call == pytest.approx(100)
    assert found.job == pytest.approx(3)


def test_no_part_of_a_line_is_below_nothing() -> None:
    assert fit({1: 1.0, 1000: 2.0}).call == 0  # the noise says that a call gives time back
    assert fit({1: 1.0, 10: 0.01}).job == 0
    assert fit({}) == Line() == fit({1: 0.0, 10: -1.0})


def test_one_point_gives_a_line_through_it() -> None:
    assert fit({100: 5.0}).each(100) == pytest.approx(5.0)


def test_one_call_at_a_time_takes_the_sum_of_its_parts() -> None:
    assert serial_rate(OPERATION, 1) == pytest.approx(1e6 / (102 + 54 + 850))
    assert serial_rate(OPERATION, 100) == pytest.approx(1e6 / (3 + 4.5 + 8.5))


def crew(processes: int, under_way: int = 1, cores: int = 100, threads: int = 1) -> Crew:
    return Crew(processes, under_way, 1, cores, threads)


def test_a_lonely_batch_waits_for_nobody() -> None:
    assert crew_rate(crew(1), client=1.0, server=2.0, wait=1.0) == pytest.approx(1 / 4)


def test_two_batches_in_two_equal_places_keep_each_busy_two_thirds_of_the_time() -> None:
    assert crew_rate(crew(1, under_way=2), client=1.0, server=1.0) == pytest.approx(2 / 3)


def test_more_processes_approach_what_the_one_thread_of_the_store_can_do_and_never_pass_it() -> None:
    rates = [crew_rate(crew(processes, under_way=4), client=1.0, server=0.25) for processes in (1, 2, 4, 8, 64)]
    assert rates == sorted(rates)
    assert rates[0] < 1.0
    assert 3.8 < rates[-1] <= 4.0


def test_the_cores_of_the_machine_are_the_upper_bound() -> None:
    assert crew_rate(crew(8, 4, cores=2, threads=8), client=1.0, server=1.0) == pytest.approx(1.0)


def test_a_process_with_the_store_inside_does_one_thing_at_a_time() -> None:
    alone = Crew(1, 4, 1, 100, 1, inside=True)
    assert crew_rate(alone, client=1.0, server=1.0, wait=2.0) == pytest.approx(1 / 2.5)  # four batches share a wait
    assert crew_rate(replace(alone, inside=False), client=1.0, server=1.0, wait=2.0) > 1 / 2


def test_what_a_second_process_adds_is_added_for_each_further_one_that_runs() -> None:
    assert [crowded(10.0, 13.0, processes) for processes in (1, 2, 4)] == [10.0, 13.0, 19.0]
    assert crowded(10.0, 9.0, 4) == 10.0  # it is noise if it costs less


def test_a_job_needs_what_its_enqueue_and_its_run_need() -> None:
    job = share(COSTS, PLAN)
    assert job.client == pytest.approx((10 + 2 + 1 + 2 + 3) * MICRO)
    assert job.server == pytest.approx((5 + 4 + 0.5 + 4) * MICRO)
    assert job.wire == pytest.approx(10 + 50 + 1 + 50)
    assert job.disk == pytest.approx(160)
    assert job.commits == 0
    assert share(replace(COSTS, synced=True), PLAN).commits == pytest.approx(0.11)


def test_parts_saturate_in_their_order_and_the_first_is_what_a_node_carries() -> None:
    found = limits(COSTS, PLAN, NODE, 1)
    assert [what for what, _ in found] == ["memory", "disk bytes", "network", "server core", "client cores"]
    rates = dict(found)
    assert rates["memory"] == pytest.approx(1e9 / 200 / 3600)
    assert rates["disk bytes"] == pytest.approx(1e6 / 160)
    assert rates["server core"] == pytest.approx(0.5 / (13.5 * MICRO))
    assert rates["client cores"] == pytest.approx(4 * 0.5 / (18 * MICRO))


def test_three_nodes_carry_three_times_as_much() -> None:
    one, three = dict(limits(COSTS, PLAN, NODE, 1)), dict(limits(COSTS, PLAN, NODE, 3))
    assert all(three[part] == pytest.approx(3 * one[part]) for part in one)


def test_a_store_that_syncs_is_held_up_by_commits_and_sessions_share_them() -> None:
    lone = replace(COSTS, name="sqlite", synced=True, in_memory=False)
    shared = replace(lone, name="postgres", one_writer=False)
    assert dict(limits(lone, PLAN, NODE, 1))["disk commits"] == pytest.approx(1 / (0.001 * 0.11))
    assert dict(limits(shared, PLAN, NODE, 1))["disk commits"] == pytest.approx(5 / (0.001 * 0.11))
    assert dict(limits(shared, PLAN, NODE, 1))["server cores"] == pytest.approx(4 * 0.5 / (13.5 * MICRO))


def test_what_a_plan_needs_is_counted_at_its_peak_and_backlogs_at_its_average() -> None:
    need = needs(COSTS, PLAN, NODE)
    assert (PLAN.average, PLAN.most) == (1000, 2000)
    assert need.client_cores == pytest.approx(2000 * 18 * MICRO / 0.5)
    assert need.server_cores == pytest.approx(2000 * 13.5 * MICRO / 0.5)
    assert need.nodes == math.ceil(2000 / (1e9 / 200 / 3600)) == 2
    assert need.first == "memory"
    assert need.backlog_hour == pytest.approx(1000 * 3600 * 200)
    assert need.backlog_day == pytest.approx(86_400_000 * 200)


def test_a_larger_payload_is_stored_and_goes_over_the_network_twice() -> None:
    larger = COSTS.with_payload(550)
    assert larger.bytes == 700
    before, after = share(COSTS, PLAN), share(larger, PLAN)
    assert after.wire - before.wire == pytest.approx(1000)
    assert after.disk - before.disk == pytest.approx(500)  # Redis's log tells of the end by the id
    file = replace(COSTS, name="sqlite").with_payload(550)
    assert share(file, PLAN).wire == before.wire
    assert needs(COSTS, replace(PLAN, payload=550), NODE).backlog_day == pytest.approx(86_400_000 * 700)


def test_errors_are_the_median_and_the_worst_whatever_their_sign() -> None:
    found = [Check("a", "redis", 110, 100), Check("b", "redis", 60, 100), Check("c", "redis", 102, 100)]
    assert [round(check.error, 2) for check in found] == [0.1, -0.4, 0.02]
    assert errors(found) == pytest.approx((0.1, 0.4))
    assert errors(found[:2]) == pytest.approx((0.25, 0.4))


def made_up() -> Record:
    """What a run would leave behind where the model is exactly right."""

    def points(client: float, server: float) -> list[dict[str, float]]:
        return [
            {"batch": n, "client": 10 * client / n + client, "server": 10 * server / n + server,
             "wall": 11 * (client + server), "wire": 100 / n + 50, "disk": 0.0}
            for n in (1, 10, 100, 1000)
        ]  # fmt: skip

    run = points(1 * MICRO, 2 * MICRO)
    work = {"processes": 1, "client": 5 * MICRO, "server": 2.2 * MICRO, "rate": 100_000, "memory": 1, "count": 1}
    return Record(
        None,
        {
            "costs": {"payload": 50, "sync_seconds": 0.001, "cores": 2,
                      "redis": {"enqueue": run, "run": run, "bytes": 200.0}},
            "workers": {"batch": 100, "processors": 4, "redis": {"points": [work, {**work, "processes": 8}]}},
            "cluster": {"processes": 2, "batch": 500, "points": [
                {"masters": n, "enqueue_rate": 1e5, "enqueue_client": MICRO, "enqueue_nodes": [3 * MICRO / n] * n,
                 "drain_rate": 1e5, "drain_client": 5 * MICRO, "drain_server": 3 * MICRO} for n in (1, 3)]},
        },
    )  # fmt: skip


def test_what_a_worker_adds_is_the_difference_to_the_bare_calls() -> None:
    costs = costs_of(made_up(), "redis")
    assert costs is not None
    assert costs.run.client.call == pytest.approx(10 * MICRO)
    assert costs.extra == pytest.approx((5 - 1.1) * MICRO)
    assert costs.bytes == 200
    assert costs_of(made_up(), "postgres") is None


def test_every_measured_point_has_a_prediction(tmp_path: Path) -> None:
    rate = {"storage": "redis", "what": "fused", "batch": 10, "waiting": 1000, "accoda": 5000.0}
    others = [{**rate, "waiting": 100_000}, {**rate, "what": "take"}, {**rate, "storage": "memory"}, rate]
    bench = tmp_path / "bench.json"
    bench.write_text(json.dumps({"rates": [rate, *others]}))
    found = checks(made_up(), bench)
    assert [check.what for check in found] == [
        "take + settle, batches of 10",
        "1 worker process",
        "8 worker processes",
        "1 master: enqueue",
        "1 master: drain",
        "3 masters: enqueue",
        "3 masters: drain",
    ]
    assert all(check.predicted > 0 for check in found)
    # Eight processes: the two cores are all used, by 7.2 µs for a job.
    assert found[2].predicted == pytest.approx(2 / (7.2 * MICRO))
    assert len(checks(made_up(), tmp_path / "none.json")) == 6
