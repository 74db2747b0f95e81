"""The pure parts of Compare: links, lines, what is sent. Numbers by hand."""

from dataclasses import replace

import pytest

from app import link
from app.compare.curves import Sent
from app.compare.lines import Look, gap_of, lines_of, marks_of
from app.compare.place import Place
from labcore.analysis.compare import curves
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import load
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.analysis.compare.test_curves_tree import family

STEPS = Look("reward", "step")


def group_of(*rewards, **more):
    store = Store()
    return groups(load(store, [tools.stored(store, row, seed=seed, **more) for seed, row in enumerate(rewards)]))[0]


@pytest.mark.parametrize("place", [
    Place(), Place(runs=("a", "b"), metric="kl", x="tokens", smooth=0.9, baseline="a", traces=True, view="table"),
    Place(sweep="sweep-1", by="tokens")])
def test_a_place_and_its_link_are_one(place):
    assert link.read(Place, link.written(place)) == (place, [])
    assert link.written(Place()) == {} and "smooth" not in link.written(Place(runs=("a",)))


@pytest.mark.parametrize("query, words", [
    ({"metric": "rewrd"}, "did you mean 'reward'"), ({"x": "days"}, "x='days', which was ignored: choose another one."),
    ({"smooth": "1.5"}, "smooth='1.5', which was ignored: use a number from 0 to 0.99."),
    ({"smooth": "nan"}, "smooth='nan'"), ({"smooth": "-0.1"}, "smooth='-0.1'"), ({"smooth": "x"}, "smooth='x'"),
    ({"view": "pie"}, "view='pie', which was ignored: choose one of curves, sweep"),
    ({"by": "nonsense"}, "by='nonsense'"),
    ({"traces": "yes"}, "traces='yes', which was ignored: use 1 or 0")])
def test_a_part_of_a_link_that_cannot_be_is_one_sentence_and_the_rest_holds(query, words):
    place, faults = link.read(Place, {"runs": "a,b,a", "baseline": "a", **query})
    assert place == Place(runs=("a", "b"), baseline="a")
    assert len(faults) == 1 and words in faults[0].sentence


def test_one_seed_is_a_line_without_a_band():
    lines = lines_of(group_of([0.25, 0.5]), 3, STEPS, {})
    assert lines == {"3:line": {"kind": "line", "group": 3, "x": [1.0, 2.0], "y": [0.25, 0.5], "named": True}}


@pytest.mark.parametrize("traces", [False, True])
@pytest.mark.parametrize("rewards, end", [
    (([0.46], [0.46, 0.1, 0.0]), 0.0), (([0.46, 0.2], [0.46, 0.1]), 0.15), (([0.46],), 0.46),
    (([], [0.5, 0.25], [0.5, 0.3, 0.75]), 0.75)])
def test_a_group_s_name_stands_at_the_end_of_what_it_draws_furthest(rewards, end, traces):
    """While seeds are running the mean ends where the shortest does: at that height no line need be."""
    lines = lines_of(group_of(*rewards), 0, replace(STEPS, traces=traces), {})
    [named] = [line for line in lines.values() if line.get("named")]
    assert named["y"][-1] == end and named["x"][-1] == max(line["x"][-1] for key, line in lines.items()
                                                           if line["kind"] != "band")


def test_two_seeds_are_drawn_whole_behind_their_mean_because_no_band_shows_their_spread():
    group = group_of([0.0, 0.5, 0.5, 1.0], [1.0, 1.0])
    lines = lines_of(group, 0, STEPS, {})
    longer, shorter = (f"0:seed:{trace.run}" for trace in group.traces)
    assert lines["0:line"] == {"kind": "line", "group": 0, "x": [1.0, 2.0], "y": [0.5, 0.75]}  # its end has no name
    assert set(lines) == {"0:line", longer, shorter}
    assert lines[longer]["y"] == [0.0, 0.5, 0.5, 1.0] and lines[shorter]["y"] == [1.0, 1.0]
    assert lines == lines_of(group, 0, replace(STEPS, traces=True), {})


def test_a_longer_seed_begins_where_the_mean_ends():
    """Along tokens seeds end at other places though they made as many steps: from their last common rows they would
    cross over the band."""
    rows, ends = [0.0, 1.0, 3.0], ([10, 20, 30], [10, 20, 40], [10, 20, 30])
    group, = groups([replace(tools.trace(rows, tokens, run=str(seed)), spec=make(
        algorithm_key="grpo", task_key="sort", seed=seed)) for seed, tokens in enumerate(ends)])
    lines = lines_of(group, 0, Look("reward", "tokens"), {})
    assert lines["0:line"]["x"][-1] == 30 and set(lines) == {"0:line", "0:band", "0:seed:1"}
    assert (lines["0:seed:1"]["x"], lines["0:seed:1"]["y"]) == ([30.0, 40.0], [2.0, 3.0])


def test_seeds_of_other_threads_have_one_line_with_a_band():
    runs = [replace(tools.trace(row, run=str(seed)), spec=make(algorithm_key="grpo", task_key="sort", seed=seed,
                                                               threads=1 + seed)) for seed, row in
            enumerate(([0.0, 0.5], [1.0, 1.0], [0.5, 0.5]))]
    group, = groups(runs)
    assert set(lines_of(group, 0, STEPS, {})) == {"0:line", "0:band"} and group.label == "GRPO"


def test_smoothing_leaves_the_band_and_keeps_the_rows_behind():
    group = group_of([0.0, 1.0], [0.5, 0.5], [0.25, 0.75])
    lines = lines_of(group, 0, replace(STEPS, smoothing=0.5), {})
    assert lines["0:band"] == lines_of(group, 0, STEPS, {})["0:band"]
    assert lines["0:raw"]["y"] == [0.25, 0.75]
    assert lines["0:line"]["y"] == pytest.approx([0.25, (1 / 1.5 + 0.5) / 2], abs=1e-6)
    assert "0:raw" not in lines_of(group, 0, replace(STEPS, smoothing=0.5, faint=False), {})


def test_a_fork_is_drawn_from_its_parent_s_point_and_its_difference_begins_at_zero():
    traces = family()
    above = curves.parents(traces)
    child = groups(traces[1:])[0]
    lines = lines_of(child, 1, STEPS, above)
    assert lines["1:root"]["x"] == [2.0] and lines["1:root"]["y"] == [0.2]
    assert lines["1:line"]["x"][:2] == [2.0, 3.0] and lines["1:line"]["y"][:2] == [0.2, 0.4]
    gap = gap_of(child, 1, None, STEPS, above)
    assert gap["1:gap"]["y"] == pytest.approx([0, 0.1, 0.2, 0.3]) and "1:gapband" not in gap
    assert gap_of(groups(traces[:1])[0], 0, None, STEPS, above) == {}


def test_a_seed_that_was_forked_is_drawn_beside_the_mean():
    traces = [trace for place, trace in enumerate(family(seeds=3)) if place not in (3, 5)]
    above = curves.parents(traces)  # three parents of one setting, and a fork of the first
    lines = lines_of(groups([traces[0], *traces[2:]])[0], 0, STEPS, above)
    assert lines[f"0:seed:{traces[0].run}"]["x"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert f"0:seed:{traces[2].run}" not in lines


def test_the_difference_to_a_pinned_baseline():
    store = Store()
    runs = [tools.stored(store, [level] * 2, algorithm=key) for key, level in (("grpo", 0.75), ("ppo", 0.5))]
    grpo, ppo = groups(load(store, runs))
    assert gap_of(grpo, 0, ppo, STEPS, {})["0:gap"]["y"] == [0.25, 0.25] and gap_of(ppo, 1, ppo, STEPS, {}) == {}


def test_a_marker_stands_where_its_knob_was_moved_on_every_axis():
    group = group_of([0.1] * 4, changes=[(2, "beta", 0.2), (3, "beta", 0.0)], beta=0.04)
    assert marks_of(group, 1, "tokens") == [{"x": 200.0, "text": "β 0.04 → 0.2", "group": 1},
                                            {"x": 300.0, "text": "β 0.2 → 0", "group": 1}]


def test_a_long_line_is_thinned_and_keeps_its_peak():
    rows = [0.5] * 400
    rows[137] = 0.9
    store = Store()
    trace = load(store, [tools.stored(store, rows)])
    line = lines_of(groups(trace)[0], 0, replace(STEPS, most=40), {})["0:line"]
    assert len(line["x"]) <= 40 and max(line["y"]) == 0.9 and line["x"][-1] == 400.0


def test_only_lines_that_are_new_are_sent():
    sent, made = Sent(), []

    def lines(version):
        return sent.lines(("grpo",), version, lambda: made.append(version) or {"0:line": {"y": [version]}})

    assert sent.changed("reward", lines(1), full=False) == {"0:line": {"y": [1]}}
    assert sent.changed("reward", lines(1), full=False) == {} and made == [1]
    assert sent.changed("kl", lines(1), full=False) != {}
    assert sent.changed("reward", lines(1), full=True) == {"0:line": {"y": [1]}}
    assert sent.changed("reward", lines(2), full=False) == {"0:line": {"y": [2]}} and made == [1, 2]


def test_lines_are_kept_of_what_is_looked_at_and_of_the_two_before_it():
    sent, made = Sent(), []

    def look(scene):
        sent.begin(scene)
        lines = sent.lines((scene,), 1, lambda: made.append(scene) or {"0:line": {}})
        sent.changed(scene, lines, full=False)

    for scene in ("reward", "kl", "kl", "reward", "entropy", "kl"):
        look(scene)
    assert made == ["reward", "kl", "entropy", "kl"] and set(sent._made) == {("reward",), ("entropy",), ("kl",)}
    for scene in ("a", "b"):
        look(scene)
    assert set(sent._given) == {"kl", "a", "b"}
