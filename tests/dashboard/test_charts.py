"""What was recorded, as numbers and lines: nothing is shown that is not so."""

import re

import pytest
from dash import Dash
from proof.service import ServiceRunner

from accoda import App, Done, ManualClock, NewJob
from accoda.dashboard import charts
from accoda.operations.history.reading import Series, SeriesView
from accoda.operations.history.recorder import Recorder, ensure_job
from accoda.operations.history.ring import QUEUE, SHAPES, STEP, Span
from accoda.storage.protocol import Store

START = 1_700_001_000_000
"""A whole half hour, so that slots of every span begin with it."""


def test_a_longer_span_never_has_a_smaller_total() -> None:
    clock, made = ManualClock(START), 0
    with ServiceRunner(App("memory://", clock=clock)) as service:
        dash = Dash(service)

        async def begin(store: Store) -> None:
            await ensure_job(store)
            await Recorder().run_once(store)

        async def live(store: Store) -> None:
            for _ in range(13):
                await store.enqueue([NewJob("emails") for _ in range(7)])
                await store.settle([Done(job.lease) for job in await store.take("emails", 7)])
                clock.advance(STEP / 1000)
                await Recorder().run_once(store)

        dash.store(begin)
        for _ in range(20):  # more than an hour, looked at where no slot of 5 or 30 minutes is over
            dash.store(live)
            made += 13 * 7
            hour, day, week = (total(dash, span) for span in charts.SPANS)
            assert hour <= day <= week == made
            if made <= 240 * 7:
                assert hour == made


def total(dash: Dash, span: Span) -> int:
    (found,) = re.findall(
        rf'class="note">([\d,]+) in {span[:-1]} {span[-1]}<', dash.text(f"/queues/emails?span={span}")
    )
    return int(found.replace(",", ""))


@pytest.mark.parametrize("span", SHAPES)
def test_totals_are_sums_of_counts_and_the_last_slot_has_the_rate_of_its_part(span: Span) -> None:
    shape = SHAPES[span]
    recorded = Series(START, {name: [8.0] * shape.size for name in QUEUE.names}, 15.0)
    found = charts.summary(recorded, span)
    assert found["done"] == 8 * shape.size  # 8 in half an hour are 0.0044 a second: 7.92 in half an hour
    seconds = (shape.size - 1) * shape.step / 1000 + 15
    assert found["rate"] == pytest.approx(8 * shape.size / seconds)
    assert SeriesView.of("emails", span, recorded).done[-1] == pytest.approx(8 / 15, abs=1e-4)


def test_where_nothing_failed_a_sparkline_has_no_area() -> None:
    points = [point.split(",") for point in charts.spark_area([0, 0, 5, 0, 0], top=10).split()]
    zero = points[0][1]
    assert [y for _, y in points] == [zero, zero, zero, "14", zero, zero, zero]
