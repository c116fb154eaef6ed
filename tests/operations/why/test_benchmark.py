"""The figures of the benchmark are reckoned as it says; what it measures is left to `make bench-why`."""

from xml.etree import ElementTree

from benchmarks.why.report import chart, summary
from benchmarks.why.run import Asked

RIGHT = Asked(1, "emails", "line", 3, 8.0, 10.0, 14.0, 0.0, real=10.0, took=0.002)
LATE = Asked(2, "emails", "line", 3, 1.0, 2.0, 3.0, 0.0, real=4.0, took=0.002)
QUICK = Asked(3, "thumbs", "none", 0, 0.0, 0.05, 1.0, 0.0, real=0.25, took=0.002)


def test_errors_are_shares_of_the_wait_and_of_a_second_at_least() -> None:
    assert (RIGHT.error, LATE.error, round(QUICK.error, 2)) == (0.0, 0.5, 0.2)
    assert (RIGHT.within, LATE.within, QUICK.within) == (True, False, True)


def test_the_summary_counts_what_was_asked() -> None:
    text = summary([RIGHT, LATE, QUICK])
    assert text.startswith("3 estimates: median error 20% of the real wait")
    assert "within low..high in 67%" in text and "| queue | thumbs" in text


def test_the_chart_can_be_drawn() -> None:
    svg = ElementTree.fromstring(chart([RIGHT, LATE, QUICK]))
    circles = [each for each in svg.iter() if each.tag.endswith("circle")]
    assert [each.attrib["class"] for each in circles] == ["dot", "out", "dot"]
