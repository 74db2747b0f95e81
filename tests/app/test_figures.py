"""The static pictures: what is drawn where, as the worker drew it, in words and units."""

import pytest

from app import charts
from app.charts import Dot
from tests.app.seeding import line, samples, surrogate


def test_tokens_lie_on_the_curve_of_their_sign():
    dots = charts.token_dots(samples(ratio=1.5))
    figure = charts.surrogate_figure(dots, surrogate())
    above, below = (trace for trace in figure.data if trace.mode == "markers")
    assert [len(trace.x) for trace in (above, below)] == [8, 10]
    assert set(above.y) == {1.2} and set(below.y) == {-1.5}
    assert set(above.marker.symbol) == {"circle-open"} and set(below.marker.symbol) == {"circle"}
    assert set(above.text) == {", clipped"} and set(below.text) == {""}


def test_a_token_beyond_the_picture_is_not_drawn():
    figure = charts.surrogate_figure([Dot(9.0, 1.0, "high"), Dot(1.0, 1.0, "")], surrogate())
    above, _ = (trace for trace in figure.data if trace.mode == "markers")
    assert above.x == (1.0,)


def test_the_ratio_is_the_algorithm_s_own_and_earlier_files_have_no_dots():
    of_sequence = {"ratio": [1.0, 2.0], "own_ratio": [1.5, 1.5], "advantages": [1.0, None], "cut": ["high", "high"]}
    assert charts.token_dots({"groups": [{"completions": [of_sequence]}]}) == [Dot(1.5, 1.0, "high")]
    earlier = {"ratio": [1.0], "advantages": [1.0]}
    assert charts.token_dots({"groups": [{"completions": [earlier]}]}) == charts.token_dots({}) == []


def test_dots_are_counted():
    dots = [Dot(1.0, 0.5, ""), Dot(1.3, 0.5, "high"), Dot(1.3, -0.5, ""), Dot(0.7, -0.5, "low"), Dot(1.1, 0.0, "")]
    assert charts.counts_of(dots) == {"tokens": 5, "cut": 2, "still": 1, "one": 1}


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_every_axis_has_a_name(kind):
    for figure in (charts.surrogate_figure([], surrogate(), kind), charts.line_figure(line(), kind)):
        layout = figure.to_dict()["layout"]
        named = [layout[key].get("title", {}).get("text") for key in layout if key.startswith(("xaxis", "yaxis"))]
        shared = 1 if len(named) == 4 and None in named else 0  # the upper of two pictures shares the lower's axis
        assert sum(name is None for name in named) == shared


@pytest.mark.parametrize("bounds, ends, words", [
    ([0.8, 1.2], [0.35, 1.65], ("0.8", "1", "1.2")), ([0.99, 1.02], [0.93, 1.07], ("1−ε", "1", "1+ε")),
    ([], [0.35, 1.65], None), ([0.99, 1.02], [0.8, 1.2], None)])
def test_the_ticks_are_the_bounds_where_there_is_room(bounds, ends, words):
    curve = {"ratio": ends, "positive": [0, 1], "negative": [0, 1], "bounds": bounds}
    figure = charts.surrogate_figure([], curve)
    assert figure.layout.xaxis.range == tuple(curve["ratio"])
    assert figure.layout.xaxis.ticktext == words and (words is None) == (figure.layout.xaxis.nticks == 4)
    assert {shape.x0 for shape in figure.layout.shapes} == set(bounds)


def test_the_line_has_all_four_curves_and_both_policies():
    figure = charts.line_figure(line())
    assert len(figure.data) == 4
    assert {note.text for note in figure.layout.annotations} == {"θ_old", "θ_new"}
    assert {shape.x0 for shape in figure.layout.shapes} == {0, 1}


def test_the_line_has_the_algorithm_s_own_surrogate_as_well():
    own = [2 * value for value in line()["cpi"]]
    drawn = charts.line_figure(line() | {"soft_gate": own}).data
    assert [list(each.y) for each in drawn if each.name == "Surrogate, soft gate"] == [own] and len(drawn) == 5
