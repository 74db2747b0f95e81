"""The view of a sweep: where settings stand, what is said of the best, the figures, the queue's buttons."""

import re

import pytest
import streamlit as st
from plotly.graph_objects import Figure

from app.compare import plane
from app.compare.data import Chosen
from app.compare.lines import Look, lines_of
from app.compare.place import Place
from app.compare.sweep import figures
from app.compare.sweep.grid import grid_of, multiples, title, words
from labcore.analysis.compare import frontier
from labcore.analysis.compare.best import standing
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import load
from labcore.analysis.compare.statistics import LAST
from labcore.catalog.metrics import METRICS
from labcore.runs import sweep
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.sweep import grid as specs_of
from tests.app.seeding import components, mounted, ran
from tests.every import now
from tests.words import says

REWARDS = {0.0: 0.3, 0.1: 0.8, 0.2: 0.5}


def queued(store, axes, seeds=(0, 1, 2), algorithms=("grpo",)):
    """A sweep whose runs wait; `algorithms` from the same start where there are several."""
    found = [spec for algorithm in algorithms
             for spec in specs_of(make(algorithm_key=algorithm, task_key="sort", steps=3), axes, seeds)]
    return sweep.queue(store, found)


def go(store, run, reward, state="finished", steps=3, kl=0.1):
    store.claim(run.id)
    store.set_state(run.id, "running")
    for step in range(1, steps + 1):
        store.append(run.id, Record(step, 100 * step, {"reward": reward, "kl": kl, "updates": float(step)}),
                     float(step))
    if state != "running":
        store.set_state(run.id, state)


def done(store, sweep_id):
    """All runs end; a seed adds a little."""
    for run in store.sweep_runs(sweep_id):
        beta = run.spec.knobs["beta"]
        go(store, run, REWARDS.get(beta, 0.4) + 0.01 * run.spec.seed, kl=0.3 - beta)


def told(test) -> str:
    return re.sub(r"<[^>]+>", " ", " ".join(element.proto.body for element in test.get("html")))


def of(store, sweep_id):
    found = sweep.sweep(store, sweep_id)
    made = groups(load(store, [run.id for run in found.runs]))
    return made, grid_of(made, found.axes)


def looks(made, note="3 seeds"):
    return [{"label": group.label, "short": group.label, "note": note, "colour": ["#000001", "#fffff1"],
             "dash": "solid"} for group in made]


def front(made, points, monkeypatch, **how):
    """The picture of reward against KL as it is sent to the browser."""
    monkeypatch.setattr(st, "session_state", {})
    traces = tuple(trace for group in made for trace in group.traces)
    chosen = Chosen(Place(), (), traces, tuple(made), "reward", "updates", {})
    return plane.payload(chosen, "reward", points, True, plane.Plane(ways=False, **how))


def drawn(made, grid, notes=None):
    look = Look("reward", "updates", 0.0, True, 50, False)
    lines = {number: lines_of(group, number, look, {}) for number, group in enumerate(made)}
    return multiples(grid, notes or looks(made), lines, METRICS["reward"], "updates", "light")


def test_one_knob_is_wrapped_and_two_are_a_grid_in_order(lab):
    made, grid = of(lab.store, queued(lab.store, {"beta": [0.2, 0.0, 0.1]}))
    assert (grid.rows, grid.columns, grid.values) == (1, 3, ((0.0, 0.1, 0.2),))
    assert [made[grid.cells[0, column][0]].config["beta"] for column in range(3)] == [0.0, 0.1, 0.2]
    made, grid = of(lab.store, queued(lab.store, {"beta": [0.0, 0.1], "group_size": [4, 8, 16]}, seeds=[0]))
    assert (grid.rows, grid.columns) == (3, 2)
    config = made[grid.cells[2, 1][0]].config
    assert (config["beta"], config["group_size"]) == (0.1, 16)
    assert words(grid.knobs[1], 16) == "G 16" and title(grid.knobs[0]) == "KL coefficient β, reward/nat"
    _, grid = of(lab.store, queued(lab.store, {"beta": [place / 100 for place in range(6)]}, seeds=[0]))
    assert (grid.rows, grid.columns) == (2, 3)


def test_a_comparison_of_algorithms_has_a_cell_for_each(lab):
    made, grid = of(lab.store, queued(lab.store, {}, algorithms=("grpo", "ppo")))
    assert grid.knobs == () and [made[number].label for (number,) in grid.cells.values()] == ["GRPO", "PPO"]


def test_small_charts_share_their_axes_and_show_seeds_and_bands(lab):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, sweep_id)
    made, grid = of(lab.store, sweep_id)
    figure = Figure(drawn(made, grid))
    lines = [trace for trace in figure.data if trace.line.width == 1.9]
    assert [trace.y[-1] for trace in lines] == pytest.approx([0.31, 0.81, 0.51])
    assert [trace.yaxis for trace in lines] == ["y", "y2", "y3"]
    assert len([trace for trace in figure.data if trace.fill == "toself"]) == 3
    assert len([trace for trace in figure.data if trace.opacity == 0.3]) == 9
    assert figure.layout.yaxis2.matches == figure.layout.yaxis3.matches == "y" and not figure.layout.yaxis.matches
    assert figure.layout.xaxis3.matches == "x" and figure.layout.xaxis.title.text == "updates"
    assert [each.text for each in figure.layout.annotations] == ["<b>β 0</b>", "<b>β 0.1</b>", "<b>β 0.2</b>"]
    notes = looks(made)
    notes[1] = notes[1] | {"note": "1 seed: not evidence"}
    assert drawn(made, grid, notes)["layout"]["annotations"][1]["text"] == "<b>β 0.1</b><br>1 seed: not evidence"


def test_two_knobs_are_named_at_the_edges_with_what_each_chart_rests_on(lab):
    made, grid = of(lab.store, queued(lab.store, {"beta": [0.0, 0.1], "group_size": [4, 8]}, seeds=[0]))
    notes = looks(made)
    notes[0] = notes[0] | {"note": "waiting"}
    told = [each["text"] for each in drawn(made, grid, notes)["layout"]["annotations"]]
    assert told[:2] == ["<b>G 4</b>", "<b>G 8</b>"] and told[2] == "<b>β 0</b><br>waiting"
    assert told[3] == "<b>β 0.1</b><br>3 seeds"


def test_what_came_of_each_value_has_its_interval_and_one_seed_has_none(lab):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, sweep_id)
    made, grid = of(lab.store, sweep_id)
    stand = standing(made, "reward")
    figure = figures.by_value(grid, made, looks(made), stand, METRICS["reward"], "light")
    band, seeds, line = figure.data
    assert line.x == (0.0, 0.1, 0.2) and line.y == pytest.approx((0.31, 0.81, 0.51)) and len(seeds.x) == 9
    assert band.y[1] == pytest.approx(stand.means[made[1].label].high) and "3 seeds" in line.text[1]
    assert line.hovertemplate.startswith("β ")
    alone = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=[0])
    done(lab.store, alone)
    made, grid = of(lab.store, alone)
    figure = figures.by_value(grid, made, looks(made), standing(made, "reward"), METRICS["reward"], "dark")
    assert len(figure.data) == 2 and "1 seed" in figure.data[1].text[0]


@pytest.mark.parametrize("view", now(["sweep", "curves", "table", "plane"], "sweep", "table"))
def test_a_sweep_is_shown_while_some_of_its_runs_are_live(view, page, lab):
    """While one seed of each setting has ended, its value is that run's own, and the other says that it is running."""
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=(0, 1))
    for place, run in enumerate(lab.store.sweep_runs(sweep_id)):
        go(lab.store, run, 0.25 + 0.5 * (run.spec.knobs["beta"] > 0), state="finished" if place < 2 else "running")
    shown = told(page("compare", sweep=sweep_id, view=view))
    if view == "sweep":
        assert re.findall(r"seed (\d): ([\w.]+)", shown) == [("0", "25.0"), ("1", "running"), ("0", "75.0"),
                                                             ("1", "running")]


def test_two_knobs_are_a_map_with_numbers_and_algorithms_are_dots(lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1], "group_size": [4, 8]}, seeds=[0, 1])
    runs = lab.store.sweep_runs(sweep_id)
    for run in runs[:-1]:
        go(lab.store, run, run.spec.knobs["beta"] + run.spec.knobs["group_size"])
    made, grid = of(lab.store, sweep_id)
    figure = figures.by_value(grid, made, looks(made), standing(made, "reward"), METRICS["reward"], "light")
    assert figure.data[0].z == ([4.0, 4.1], [8.0, 8.1])
    assert ">4.000<" in figure.data[0].text[0][0], "two seeds have no interval"
    assert ">8.100<" in figure.data[0].text[1][1] and "#14171B" in figure.data[0].text[1][1]
    both = queued(lab.store, {}, algorithms=("grpo", "rloo"))
    done(lab.store, both)
    made, grid = of(lab.store, both)
    figure = figures.by_value(grid, made, looks(made), standing(made, "reward"), METRICS["reward"], "light")
    assert {trace.y[0] for trace in figure.data} == {"GRPO", "RLOO"} and figure.data[0].error_x.array[0] > 0


def test_the_front_has_a_point_for_each_setting(lab, monkeypatch):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, sweep_id)
    made, _ = of(lab.store, sweep_id)
    points = frontier.points(made)
    names = {group.label: f"β {group.config['beta']}" for group in made}
    data = front(made, points, monkeypatch, names=names)
    panel, = data["panels"]
    assert [group["short"] for group in data["groups"]] == ["β 0.0", "β 0.1", "β 0.2"]
    assert [len(panel["lines"][f"{place}:ends"]["x"]) for place in range(3)] == [3, 3, 3]
    assert len(panel["lines"]["front"]["x"]) == 2  # β 0.1 is beaten by none; β 0 earns less for more
    assert not any("path" in key for key in panel["lines"])


def test_the_view_says_what_is_best_and_links_each_run(page, lab):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, sweep_id)
    test = page("compare", sweep=sweep_id, view="sweep")
    said = told(test)
    assert says(said, "Per token, per update and per second β 0.1", "ahead") and "Settings differ in β." in said
    assert "Best in 100 % of bootstrap resamples" in said and "Reward (exact match) at equal tokens (300 each)" in said
    links = re.findall(r'href="llm\?run=([\w-]+)"', " ".join(each.proto.body for each in test.get("html")))
    assert sorted(links) == sorted(run.id for run in lab.store.sweep_runs(sweep_id))
    switch = next(each for each in test.button_group if each.label == "Compared at")
    assert [option.content for option in switch.proto.options] == [
        "Equal tokens", "Equal updates", "Equal seconds", "At the end", "At its best"]
    switch.set_value("final")
    ran(test)
    assert test.query_params["by"] in ("final", ["final"]) and "Reward (exact match) at the end" in told(test)


@pytest.mark.long
def test_nothing_is_the_best_by_a_metric_that_has_no_better(page, lab):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, sweep_id)
    said = told(page("compare", sweep=sweep_id, view="sweep", metric="updates"))
    assert "no direction is better" in said and "best mean" not in said and "Best in" not in said
    assert "has the best mean" in told(page("compare", sweep=sweep_id, view="sweep", metric="reward"))


def test_captions_say_what_the_numbers_are(page, lab):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, sweep_id)
    for view in ("sweep", "table", "plane"):
        words = " ".join(each.value for each in page("compare", sweep=sweep_id, view=view).caption)
        assert f"last {LAST} steps" in words and ("Best: the highest mean" in words) == (view != "plane"), view


def test_the_criterion_of_a_link_is_taken_and_one_that_does_not_fit_is_not(page, lab):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    done(lab.store, sweep_id)
    assert "Reward (exact match) at its best" in told(page("compare", sweep=sweep_id, view="sweep", by="best"))
    test = page("compare", sweep=sweep_id, view="sweep", by="nonsense")
    assert "Reward (exact match) at equal tokens" in told(test) and "'nonsense'" in test.warning[0].value
    test = page("compare", sweep=sweep_id, view="sweep", by="env_steps")
    assert says(test.warning[0].value, "cannot be compared at equal environment steps", "at equal tokens")


def test_while_runs_go_there_is_no_verdict_and_one_seed_is_none_either(page, lab):
    sweep_id = queued(lab.store, {"beta": list(REWARDS)})
    assert "Nothing to compare before" in told(page("compare", sweep=sweep_id, view="sweep"))
    first, *_ = lab.store.sweep_runs(sweep_id)
    go(lab.store, first, 0.5, "running")
    said = told(page("compare", sweep=sweep_id, view="sweep"))
    assert "Reward (exact match) at equal tokens (300 each)" in said
    assert "leads" not in said, "nothing to compare with yet"
    *_, last = lab.store.sweep_runs(sweep_id)
    go(lab.store, last, 0.4)
    said = told(page("compare", sweep=sweep_id, view="sweep"))
    assert "So far, per token" in said and "β 0 has the highest reward (exact match)." in said and "Not final, " in said
    assert "One seed per setting is not enough" in said
    alone = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=[0])
    done(lab.store, alone)
    said = told(page("compare", sweep=alone, view="sweep"))
    assert "per second β 0.1 has the highest reward (exact match)." in said
    assert "One seed per setting is not enough" in said


def test_runs_that_were_stopped_are_said(page, lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=[0])
    first, second = lab.store.sweep_runs(sweep_id)
    go(lab.store, first, 0.5)
    go(lab.store, second, 0.6, "stopped", steps=2)
    assert "1 of 2 runs did not finish." in told(page("compare", sweep=sweep_id, view="sweep"))


def test_parallel_coordinates_have_a_line_for_each_run_and_name_the_best(page, lab):
    """β changes the reward, G does not."""
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1], "group_size": [4, 8]})
    done(lab.store, sweep_id)
    test = page("compare", sweep=sweep_id, view="sweep")
    chart = mounted(test, "lines")
    runs = {run.id: run.spec for run in lab.store.sweep_runs(sweep_id)}
    assert {line["id"] for line in chart["lines"]} == set(runs)
    assert [axis["label"] for axis in chart["axes"]] == ["KL coefficient β", "Group size G", "KL to the reference",
                                                         "Reward (exact match)"]
    for line in chart["lines"]:
        places = {text: at for at, text in chart["axes"][0]["ticks"]}
        assert line["at"][0] == places[f"{runs[line['id']].knobs['beta']:g}"] and all(0 < at < 1 for at in line["at"])
        assert (line["rank"] > 0.5) == (runs[line["id"]].knobs["beta"] == 0.1), "the best have the highest rank"
    assert "Best: " in told(test) and told(test).index("β 0.1 · G 4 (81.0 %)") < told(test).index(
        "β 0 · G 4 (31.0 %)")
    only = [run for run, spec in runs.items() if spec.knobs["beta"] == 0.1 and spec.seed < 2]
    test.session_state[f"compare:brushed:{sweep_id}"] = tuple(only)  # as the browser says it
    ran(test)
    links = re.findall(r'href="llm\?run=([\w-]+)"', " ".join(each.proto.body for each in test.get("html")))
    assert sorted(links) == sorted(only) and "4 of 12 runs chosen." in told(test)
    test.session_state[f"compare:brushed:{sweep_id}"] = ()  # no line is in all ranges
    assert "0 of 12 runs chosen." in told(ran(test)) and 'href="llm?run=' not in told(test)
    next(each for each in test.button if each.key == "parallel:all").click()
    assert "runs chosen" not in told(ran(test))


def test_one_knob_needs_no_parallel_coordinates(page, lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1]})
    done(lab.store, sweep_id)
    assert not [each for each in components(page("compare", sweep=sweep_id, view="sweep")) if "axes" in each]


def test_a_sweep_is_cancelled_and_resumed_from_any_view(page, lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=[0])
    test = page("compare", sweep=sweep_id)
    next(each for each in test.button if each.label == "Cancel 2").click()
    ran(test)
    assert {run.state for run in lab.store.sweep_runs(sweep_id)} == {"stopped"}
    assert not any(each.label.startswith("Cancel") for each in test.button)
    lab.launcher.wake = lambda: None
    next(each for each in test.button if each.label == "Resume 2 runs").click()
    ran(test)
    assert {run.state for run in lab.store.sweep_runs(sweep_id)} == {"queued"}


def test_what_was_interrupted_is_resumed_while_others_go_and_nothing_else(page, lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1, 0.2]}, seeds=[0])
    lost, stopped, _ = lab.store.sweep_runs(sweep_id)
    go(lab.store, lost, 0.5, state="interrupted", steps=2)
    go(lab.store, stopped, 0.5, state="stopped", steps=2)
    test = page("compare", sweep=sweep_id)
    assert any(each.label == "Cancel 1" for each in test.button)
    next(each for each in test.button if each.label == "Resume 1 interrupted run").click()
    ran(test)
    assert [run.state for run in lab.store.sweep_runs(sweep_id)] == ["queued", "stopped", "queued"]


def test_while_it_goes_the_page_says_how_far_it_is_and_how_long_it_will_take(page, lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=[0])
    assert "0 of 6 steps" in (said := told(page("compare", sweep=sweep_id))) and "estimated" not in said
    go(lab.store, lab.store.sweep_runs(sweep_id)[0], 0.5, state="running", steps=2)
    assert says(told(page("compare", sweep=sweep_id)), "2 of 6 steps", "4.4 s left", "1 run of this sweep",
                "1 at a time")
    done(lab.store, sweep_id := queued(lab.store, {"beta": [0.0, 0.1]}, seeds=[0]))
    assert "of 6 steps" not in told(page("compare", sweep=sweep_id))


def test_single_runs_have_no_sweep_view(page, lab):
    sweep_id = queued(lab.store, {"beta": [0.0, 0.1]}, seeds=[0])
    done(lab.store, sweep_id)
    ids = ",".join(run.id for run in lab.store.sweep_runs(sweep_id))
    control = page("compare", runs=ids).button_group[0]
    assert "Sweep" not in [str(option) for option in control.options]
