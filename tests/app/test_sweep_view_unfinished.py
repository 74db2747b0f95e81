"""The view of a sweep of which some settings did not finish: hollow marks, and neither in lines nor on the front."""

import pytest

from app.compare.sweep import figures
from labcore.analysis.compare import frontier
from labcore.analysis.compare.best import standing
from labcore.catalog.metrics import METRICS
from tests.app.test_sweep_view import REWARDS, done, front, go, looks, of, queued, told


@pytest.fixture
def half(lab):
    """A sweep of β of which one setting stopped early and another has a seed that never began."""
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1, 0.2, 0.3]}, seeds=[0, 1])
    for run in lab.store.sweep_runs(sweep_id):
        beta, seed = run.spec.knobs["beta"], run.spec.seed
        if beta == 0.2:
            go(lab.store, run, 0.9, "stopped", steps=1 + seed, kl=0.05)
        elif (beta, seed) == (0.3, 1):
            lab.store.ask(run.id, "stop")
        else:
            go(lab.store, run, 0.5 - beta, kl=0.3 - beta)
    return sweep_id


def test_settings_that_did_not_finish_are_hollow_and_not_in_the_line(lab, half):
    made, grid = of(lab.store, half)
    hollow = figures.unfinished(made)
    assert list(hollow.values()) == ["seed 0: step 1 of 3, stopped<br>seed 1: step 2 of 3, stopped",
                                     "seed 1: step 0 of 3, stopped"]
    seeds, line, begun = figures.by_value(grid, made, looks(made), standing(made, "reward"), METRICS["reward"],
                                          "light", hollow).data
    assert line.x == (0.0, 0.1) and line.marker.symbol == "circle"
    assert (begun.x, begun.mode, begun.marker.symbol) == ((0.2, 0.3), "markers", "circle-open")
    assert begun.text[0].endswith("not finished:<br>seed 0: step 1 of 3, stopped<br>seed 1: step 2 of 3, stopped")
    assert "not finished" not in "".join(line.text) and 0.3 not in seeds.x  # it would fill the open marker


def test_the_front_is_made_of_settings_that_finished(lab, half, monkeypatch):
    made, _ = of(lab.store, half)
    hollow = figures.unfinished(made)
    points = frontier.points(made, beside=hollow)
    panel, = front(made, points, monkeypatch, open=hollow)["panels"]
    assert panel["lines"]["front"]["x"] == pytest.approx([0.2, 0.3])  # β 0.2 would beat both
    means = [panel["lines"][f"{place}:centre"] for place in range(4)]
    assert [mean["hollow"] for mean in means] == [False, False, True, True]
    assert ["not finished" in mean["text"][0] for mean in means] == [False, False, True, True]


def test_a_map_and_dots_show_what_did_not_finish(lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1], "group_size": [4, 8]}, seeds=[0])
    *rest, last = lab.store.sweep_runs(sweep_id)
    for run in rest:
        go(lab.store, run, 0.5)
    go(lab.store, last, 0.1, "stopped", steps=2)
    made, grid = of(lab.store, sweep_id)
    hollow = figures.unfinished(made)
    heat, words = figures.by_value(grid, made, looks(made), standing(made, "reward"), METRICS["reward"], "light",
                                   hollow).data
    assert heat.z == ([0.5, 0.5], [0.5, None])
    assert (words.x, words.y, words.text) == (("0.1",), ("8",), ("○ 0.100",)) and "step 2 of 3" in words.hovertext[0]
    both = queued(lab.store, {}, seeds=[0], algorithms=("grpo", "rloo"))
    for run, state in zip(lab.store.sweep_runs(both), ("finished", "failed"), strict=True):
        go(lab.store, run, 0.5, state)
    made, grid = of(lab.store, both)
    figure = figures.by_value(grid, made, looks(made), standing(made, "reward"), METRICS["reward"], "light",
                              figures.unfinished(made))
    assert {trace.y[0]: trace.marker.symbol for trace in figure.data if trace.text} == {
        "GRPO": "circle", "RLOO": "circle-open"}


@pytest.mark.long
def test_hollow_and_the_front_are_explained_only_where_they_are_drawn(page, lab, half):
    said = told(page("compare", sweep=half, view="sweep"))  # at equal tokens all are judged where all have been
    assert "hollow" not in said and "No verdict at the end: β 0 used 300 tokens, β 0.2 150" in said
    late = queued(lab.store, {"beta": list(REWARDS)}, seeds=[0])
    for run in lab.store.sweep_runs(late):  # stopped so late that its end is compared
        stopped = run.spec.knobs["beta"] == 0.0
        go(lab.store, run, REWARDS[run.spec.knobs["beta"]], "stopped" if stopped else "finished", 19 if stopped else 20,
           kl=0.3 - run.spec.knobs["beta"])
    said = told(page("compare", sweep=late, view="sweep", by="final"))
    assert said.count("hollow: not all of its runs finished") == 2 and "dotted: the Pareto front" in said
    whole = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, whole)
    said = told(page("compare", sweep=whole, view="sweep"))
    assert "hollow" not in said and "dotted: the Pareto front" in said
    for run in lab.store.sweep_runs(whole):
        if run.spec.knobs["beta"] == 0.2:
            lab.store.delete(run.id)
    assert "dotted" not in told(page("compare", sweep=whole, view="sweep"))  # β 0.1 alone is on it
