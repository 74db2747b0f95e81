"""The static pictures: what is drawn where, at which epsilon, in words and units."""

import pytest

from app import charts
from tests.app.seeding import line, samples


@pytest.mark.parametrize("ratio, sign, expected", [
    (1.0, 1, 1.0), (1.5, 1, 1.28), (0.5, 1, 0.5), (1.0, -1, -1.0), (0.5, -1, -0.8), (1.5, -1, -1.5)])
def test_clip_by_hand(ratio, sign, expected):
    """min(ρA, clip(ρ, 0.8, 1.28)A) for A = ±1, Schulman et al. 2017, figure 1."""
    assert charts.clip_surrogate(ratio, sign, 0.2, 0.28) == pytest.approx(expected)


def test_tokens_lie_on_the_curve_of_their_sign():
    figure = charts.surrogate_figure(samples(ratio=1.5), 0.2, 0.2)
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert [len(trace.x) for trace in dots] == [8, 10]
    assert set(dots[0].y) == {1.2} and set(dots[1].y) == {-1.5}


def test_branches_are_counted():
    points = [(1.0, 0.5), (1.3, 0.5), (1.3, -0.5), (0.7, -0.5), (0.7, 0.5), (1.1, 0.0)]
    assert charts.branch_counts(points, 0.2, 0.2) == {"tokens": 6, "clipped": 2, "still": 1, "one": 1}


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_every_axis_has_a_name(kind):
    for figure in (charts.surrogate_figure({}, 0.2, 0.2, kind), charts.line_figure(line(), kind)):
        layout = figure.to_dict()["layout"]
        named = [layout[key].get("title", {}).get("text") for key in layout if key.startswith(("xaxis", "yaxis"))]
        shared = 1 if len(named) == 4 and None in named else 0  # the upper of two pictures shares the lower's axis
        assert sum(name is None for name in named) == shared


def test_the_line_has_all_four_curves_and_both_policies():
    figure = charts.line_figure(line())
    assert len(figure.data) == 4
    assert {note.text for note in figure.layout.annotations} == {"θ_old", "θ_new"}
    assert {shape.x0 for shape in figure.layout.shapes} == {0, 1}
