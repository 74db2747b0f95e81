"""The tab of a reward model: what its figures hold, by hand."""

import json

import pytest

from app.llm import reward_figures as figures
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import Step

SCORES, GOLD = [[2.0, 0.0], [0.5, 1.5], [1.0, 1.0], [-1.0, -4.0]], [[0.9, 0.1], [0.5, 0.5], [0.3, 0.5], [0.7, 0.1]]
BINS = [{"predicted": 0.6, "right": 0.5, "pairs": 4.0}, {"predicted": 0.9, "right": 1.0, "pairs": 16.0}]


def texts(figure):
    return [each.text for each in figure.layout.annotations]


def test_a_tie_agrees_by_half():
    assert figures.agreement(SCORES) == 2.5 / 4 and figures.agreement([]) is None


def test_accuracy_has_chance_the_gold_score_and_the_step_shown():
    steps = [Step(1, 0, 0, 0.1, {"accuracy": 0.4, "eval_accuracy": 0.5}), Step(2, 0, 0, 0.2, {"accuracy": 0.7})]
    figure = figures.accuracy_figure(steps, 1, 0.875, "light")
    batch, held_out = figure.data
    assert (batch.x, held_out.x, held_out.y) == ((1, 2), (1,), (0.5,))
    assert texts(figure) == ["held out", "chance 0.50", "gold score 0.88"]
    assert [shape.x0 for shape in figure.layout.shapes] == [0, 0, 1], "the last one is at the step that is shown"


def test_calibration_has_its_counts_and_the_standard_error_of_a_share():
    figure = figures.calibration_figure(BINS, "dark")
    points = figure.data[1]
    assert points.error_y.array == pytest.approx((0.25, 0.0)) and texts(figure) == ["4", "16"]
    assert points.marker.size[0] == pytest.approx(5 + 13 / 2) and points.marker.size[1] == 18


def test_margins_are_counted_once_each():
    right, wrong = figures.margin_figure(SCORES, "light").data
    assert sum(right.y) == 3 and sum(wrong.y) == 1
    assert right.y[-1] == 1 and right.y[0] == 1 and right.x[0] == pytest.approx(3 / 24)  # 3 at the edge, 0 at 0


def test_scores_lie_over_their_gold():
    chosen, rejected = figures.gold_figure(SCORES, GOLD, "light").data
    assert chosen.customdata == (0.9, 0.5, 0.3, 0.7) and chosen.y == (2.0, 0.5, 1.0, -1.0)
    assert rejected.customdata == (0.1, 0.5, 0.5, 0.1)


@pytest.mark.parametrize(("gold", "end"), [(GOLD, "The labels are noisy: the gold score itself agrees with 62 % of "
                                            "them."), ([[1, 0]] * 4, "chance is 50 %."), (None, "chance is 50 %.")])
def test_words_say_how_good_it_could_be(gold, end):
    held_out = {"scores": SCORES} | ({} if gold is None else {"gold": gold})
    assert figures.words({"held_out": held_out}).endswith(end)


def test_the_tab_comes_first_and_says_so_where_a_file_is_older(page, lab):
    run_id = lab.store.create(make(algorithm_key="reward_model", task_key="reviews", steps=5), mine=True)
    lab.store.set_state(run_id, "running")
    lab.store.append(run_id, Record(1, 10, {"accuracy": 0.4, "eval_accuracy": 0.5}), 1.0)
    test = page("llm", run=run_id)
    assert test.tabs[0].label == "Reward model"
    assert any("measured after the first step" in each.value for each in test.caption)
    path = run_folder(run_id) / "samples" / "step-000001.json"
    path.parent.mkdir(parents=True)
    whole = {"held_out": {"scores": SCORES, "gold": GOLD}}
    for held_out, said in (({}, "earlier version"), (whole, "4 held-out pairs")):
        path.write_text(json.dumps({"step": 1, "calibration": BINS, "scored": [], **held_out}))
        test.run()
        assert not test.exception and any(said in each.value for each in test.caption)
        path.unlink()
