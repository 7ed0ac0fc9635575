"""The report's figures: colours by threshold, axes that hold their data, formulas checked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tests.validation.sample_run import healthy, large, link_cut
from validation import report_figures
from validation.report_data import Direction, gather
from validation.report_svg import element, ticks


def direction(share: float | None, *, error: str = "", verified: bool | None = True) -> Direction:
    return Direction("a", "b", 1.0, share, share, share, 1, None, None, verified, error)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, "s6"), (0.95, "s6"), (0.949, "s5"), (0.85, "s4"), (0.849, "s3"), (0.80, "s3"), (0.799, "s2"), (0.05, "s0")],
)
def test_colours_change_at_the_verdicts_thresholds(share: float, expected: str) -> None:
    """0.85 is still clear and 0.80 still marginal; just below, the colour is another."""
    assert report_figures.shade(direction(share)) == expected


def test_no_data_wrong_data_and_cut_are_three_things() -> None:
    """Not measured, nothing arrived and wrong data each have a mark of their own."""
    unknown = report_figures.cell(direction(None))
    cut = report_figures.cell(direction(None, error="timeout"))
    wrong = report_figures.cell(direction(0.94, verified=False))
    assert [(cell.shade, cell.shown) for cell in (unknown, cut, wrong)] == [
        ("unknown", "–"),
        ("cut", "✕"),
        ("wrong", "!"),
    ]


@given(st.floats(0, 1e6), st.floats(1e-9, 1e6), st.integers(2, 8))
def test_an_axis_holds_its_data(low: float, span: float, most: int) -> None:
    """Ticks begin at or below the data, end at or above it, rise evenly and stay few."""
    high = low + span
    marks = ticks(low, high, most)
    step = marks[1] - marks[0]
    assert marks[0] <= low + 1e-6 * step + 1e-9 * abs(low)
    assert marks[-1] >= high - 1e-6 * step - 1e-9 * abs(high)
    assert 2 <= len(marks) <= 2 * most + 2


def test_the_least_communication_time_is_the_ring_formula() -> None:
    """Three nodes, 1.6 MB of gradients: 2·2/3 · 12.8 Mbit over the slowest measured direction."""
    data = gather(healthy().records)
    training = data.ddp[-1]
    slowest = min(d.gbps or 9 for d in data.directions.values() if "head" not in (d.src, d.dst))
    assert report_figures.least_comm_seconds(data, training) == pytest.approx(4 / 3 * 0.0128 / slowest)
    assert report_figures.least_comm_seconds(data, data.ddp[0]) is None


def test_figures_need_something_to_draw() -> None:
    """Without trainings there is no figure instead of an empty one."""
    data = gather(link_cut().records)
    assert report_figures.scaling(data) is None
    assert report_figures.losses(data) is None


def test_step_times_of_many_nodes_show_the_slowest() -> None:
    """Of 199 nodes twelve rows are drawn."""
    drawn = report_figures.step_times(gather(large().records).ddp[-1])
    assert drawn is not None
    assert drawn.count('class="median"') == report_figures.STEP_ROWS


def test_elements_escape_what_they_hold() -> None:
    """A text or an attribute can not end its element; nested elements stay elements."""
    inner = element("title", "<b>&")
    assert inner == Markup("<title>&lt;b&gt;&amp;</title>")
    assert element("rect", inner, class_='"><script>', x=1.0) == (
        '<rect class="&#34;&gt;&lt;script&gt;" x="1"><title>&lt;b&gt;&amp;</title></rect>'
    )
