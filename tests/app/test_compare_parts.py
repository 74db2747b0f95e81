"""The pure parts of Compare: links, lines, what is sent, words, files. Numbers by hand."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from app import link
from app.compare import export, verdict, wording
from app.compare.curves import Sent
from app.compare.data import Chosen, look_of, note
from app.compare.lines import Look, gap_of, lines_of, marks_of
from app.compare.place import Place
from labcore.catalog.metrics import METRICS
from labcore.compare import budget, tree
from labcore.compare.best import standing
from labcore.compare.loading import load
from labcore.compare.table import compare, groups
from labcore.spec.run_spec import make
from labcore.store.store import Store
from tests.compare import tools
from tests.compare.test_tree import family

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
    ({"metric": "rewrd"}, "did you mean 'reward'"), ({"x": "days"}, "x='days', which is left out: choose one of step,"),
    ({"smooth": "1.5"}, "smooth='1.5', which is left out: use a number from 0 to 0.99."),
    ({"smooth": "nan"}, "smooth='nan'"), ({"smooth": "-0.1"}, "smooth='-0.1'"), ({"smooth": "x"}, "smooth='x'"),
    ({"view": "pie"}, "view='pie', which is left out: choose one of curves, sweep"),
    ({"by": "nonsense"}, "by='nonsense'"),
    ({"traces": "yes"}, "traces='yes', which is left out: use 1 or 0")])
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


def test_two_seeds_are_their_mean_with_a_band_and_beyond_it_the_longer_one_alone():
    group = group_of([0.0, 0.5, 0.5, 1.0], [1.0, 1.0])
    lines = lines_of(group, 0, STEPS, {})
    longer = group.traces[0].run
    assert lines["0:line"] == {"kind": "line", "group": 0, "x": [1.0, 2.0], "y": [0.5, 0.75]}  # its end has no name
    assert lines["0:band"] == {"kind": "band", "group": 0, "x": [1.0, 2.0, 2.0, 1.0], "y": [1.0, 1.0, 0.5, 0.0]}
    assert lines[f"0:seed:{longer}"]["x"] == [2.0, 3.0, 4.0] and set(lines) == {"0:line", "0:band", f"0:seed:{longer}"}
    both = lines_of(group, 0, replace(STEPS, traces=True), {})
    assert [both[f"0:seed:{trace.run}"]["x"][0] for trace in group.traces] == [1.0, 1.0]


def test_a_longer_seed_begins_where_the_mean_ends():
    """Along tokens seeds end at other places though they made as many steps: from their last common rows they would
    cross over the band."""
    rows = [0.0, 1.0, 3.0]
    group, = groups([replace(tools.trace(rows, tokens, run=str(seed)), spec=make(
        algorithm_key="grpo", task_key="sort", seed=seed)) for seed, tokens in enumerate(([10, 20, 30], [10, 20, 40]))])
    lines = lines_of(group, 0, Look("reward", "tokens"), {})
    assert lines["0:line"]["x"][-1] == 30 and set(lines) == {"0:line", "0:band", "0:seed:1"}
    assert (lines["0:seed:1"]["x"], lines["0:seed:1"]["y"]) == ([30.0, 40.0], [2.0, 3.0])


def test_seeds_of_other_threads_have_one_line_with_a_band():
    runs = [replace(tools.trace(row, run=str(seed)), spec=make(algorithm_key="grpo", task_key="sort", seed=seed,
                                                               threads=1 + seed)) for seed, row in
            enumerate(([0.0, 0.5], [1.0, 1.0]))]
    group, = groups(runs)
    assert set(lines_of(group, 0, STEPS, {})) == {"0:line", "0:band"} and group.label == "GRPO"


def test_smoothing_leaves_the_band_and_keeps_the_rows_behind():
    group = group_of([0.0, 1.0], [0.5, 0.5])
    lines = lines_of(group, 0, replace(STEPS, smoothing=0.5), {})
    assert lines["0:band"] == lines_of(group, 0, STEPS, {})["0:band"]
    assert lines["0:raw"]["y"] == [0.25, 0.75]
    assert lines["0:line"]["y"] == pytest.approx([0.25, (1 / 1.5 + 0.5) / 2], abs=1e-6)
    assert "0:raw" not in lines_of(group, 0, replace(STEPS, smoothing=0.5, faint=False), {})


def test_a_fork_is_drawn_from_its_parent_s_point_and_its_difference_begins_at_zero():
    traces = family()
    above = tree.parents(traces)
    child = groups(traces[1:])[0]
    lines = lines_of(child, 1, STEPS, above)
    assert lines["1:root"]["x"] == [2.0] and lines["1:root"]["y"] == [0.2]
    assert lines["1:line"]["x"][:2] == [2.0, 3.0] and lines["1:line"]["y"][:2] == [0.2, 0.4]
    gap = gap_of(child, 1, None, STEPS, above)
    assert gap["1:gap"]["y"] == pytest.approx([0, 0.1, 0.2, 0.3]) and "1:gapband" not in gap
    assert gap_of(groups(traces[:1])[0], 0, None, STEPS, above) == {}


def test_a_seed_that_was_forked_is_drawn_beside_the_mean():
    traces = family(seeds=2)[:3]  # two parents of one setting, and a fork of the first
    above = tree.parents(traces)
    lines = lines_of(groups([traces[0], traces[2]])[0], 0, STEPS, above)
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


def chosen_of(names, baseline="", **place):
    traces = load(Store(), names)
    return Chosen(Place(runs=tuple(names), baseline=baseline, **place), tuple(Store().run(name) for name in names),
                  tuple(traces), tuple(groups(traces)), "reward", "step", dict.fromkeys(names, frozenset({"reward"})))


def said(chosen: Chosen) -> str:
    """The page's verdict."""
    return verdict.sentence(verdict.stand_of(chosen), chosen, verdict.names_of(chosen))


@pytest.fixture
def three():
    """GRPO and RLOO alike, PPO below them, three seeds each; REINFORCE with one."""
    store = Store()
    levels = {"grpo": 0.9, "rloo": 0.905, "ppo": 0.5}
    names = [tools.stored(store, [level + 0.02 * seed] * 6, seed=seed, algorithm=key)
             for key, level in levels.items() for seed in range(3)]
    return [*names, tools.stored(store, [0.7] * 6, algorithm="reinforce")]


def test_ties_are_called_ties_and_one_seed_is_no_evidence(three):
    chosen = chosen_of(three)
    table = compare(chosen.traces, "reward")
    assert said(chosen) == ("At equal tokens (600 each) RLOO (0.925): beats PPO; tie with GRPO; too few seeds to "
                            "compare with REINFORCE.")
    looks = {look["label"]: look for look in look_of(chosen)}
    shown = wording.results(table, looks)
    for words in ("tie with RLOO, P 0.67", "RLOO beats it, P 1.00", "no comparison from 1 seed", "not evidence",
                  "beats 1 of 3", looks["GRPO"]["colour"][0], "[0.905, 0.945]"):
        assert words in shown, words
    assert shown.index("RLOO") < shown.index("GRPO") < shown.index("REINFORCE") < shown.index("PPO")
    assert [note(group, "reward") for group in chosen.groups] == ["3 seeds"] * 3 + ["1 seed: not evidence"]


def test_the_table_says_what_its_times_are():
    store = Store()
    names = [tools.stored(store, [0.5] * 4, seed=seed, seconds=seconds) for seed, seconds in enumerate((2, 1, 1))]
    names.append(tools.stored(store, [0.5] * 4, algorithm="ppo"))
    shown = wording.results(compare(load(store, names)), {look["label"]: look for look in look_of(chosen_of(names))})
    assert "<th>Mean time per run</th>" in shown and "5.3 s<small>4.0 s to 8.0 s</small>" in shown
    assert "<td>4.0 s</td>" in shown, "one run has no range"


def test_the_verdict_at_equal_seconds_says_that_runs_went_at_once(three):
    chosen = chosen_of(three, by="seconds")
    together = replace(chosen, sources=tuple(replace(row, started=0.0, ended=9.0) for row in chosen.sources))

    def aside(chosen, by):
        chosen = replace(chosen, place=replace(chosen.place, by=by))
        return verdict.asides(verdict.stand_of(chosen), chosen, verdict.names_of(chosen))

    assert budget.SHARED in aside(together, "seconds")
    assert budget.SHARED not in aside(together, "tokens") + aside(chosen, "seconds")


def led(others: list[list[float]], leads: list[float]) -> str:
    """What the page says of one group that leads another, by the last values of their seeds."""
    store = Store()
    runs = [tools.stored(store, [level] * 6, seed=seed, algorithm=key)
            for key, levels in (("grpo", leads), ("rloo", others)) for seed, level in enumerate(levels)]
    chosen = chosen_of(runs)
    table = compare(chosen.traces, "reward")
    return said(chosen) + wording.results(table, {look["label"]: look for look in look_of(chosen)})


def test_too_few_seeds_on_the_other_side_are_no_tie():
    said = led([0.1, 0.2], [0.8, 0.9, 0.95])
    assert "too few seeds to compare with RLOO." in said and "no comparison: the others have too few seeds" in said
    assert "is a tie" not in said


@pytest.mark.parametrize("state, so_far", [("running", "so far, "), ("finished", "")])
def test_one_seed_each_has_no_winner(state, so_far):
    """Neither while a run goes; and numbers that read the same are equal."""
    store = Store()

    def told(ppo: float) -> tuple[str, str]:
        runs = [tools.stored(store, [level] * 6, algorithm=key, state=state if key == "ppo" else "finished")
                for key, level in (("grpo", 0.9881), ("ppo", ppo))]
        chosen = chosen_of(runs)
        found = standing(chosen.groups, "reward")
        table = compare(chosen.traces, "reward")
        return (wording.headline(found, METRICS["reward"], verdict.names_of(chosen), state == "running"),
                wording.results(table, {look["label"]: look for look in look_of(chosen)}))
    said, table = told(0.9882)
    assert said.startswith(f"Equal {so_far}at equal tokens (600 each): GRPO and PPO (0.988); one seed each is no evid")
    assert "<b>" not in table
    said, table = told(0.5)
    assert said.startswith(f"Highest {so_far}at equal tokens (600 each): GRPO (0.988); one seed each is no evidence.")
    assert "leads" not in said and "<b>" not in table


def test_a_leader_by_enough_seeds_is_bold_and_numbers_that_read_the_same_are_equal_while_runs_go(three):
    chosen = chosen_of(three)
    table = wording.results(compare(chosen.traces, "reward"), {look["label"]: look for look in look_of(chosen)})
    assert "<b>0.925 [" in table and "<b>0.920 [" not in table
    alike = chosen_of([tools.stored(Store(), [level] * 6, seed=seed, algorithm=key) for seed in range(3)
                       for key, level in (("grpo", 0.9), ("rloo", 0.9001))])
    said = wording.headline(standing(alike.groups, "reward"), METRICS["reward"], verdict.names_of(alike), going=True)
    assert said.startswith("So far, at equal tokens (600 each), GRPO and RLOO are equal (0.900). Some runs have not")


def test_where_no_direction_is_better_numbers_that_read_the_same_have_no_first():
    alike = chosen_of([tools.stored(Store(), [level] * 6, algorithm=key)
                       for key, level in (("grpo", 0.9), ("rloo", 0.9001))])
    said = wording.headline(standing(alike.groups, "reward"), replace(METRICS["reward"], better=None),
                            verdict.names_of(alike))
    assert "GRPO and RLOO have the most (0.900)" in said


def test_a_seed_that_has_just_begun_does_not_have_all_others_judged_at_its_first_step():
    """While the page draws them at 0 the sentence must not say that they lead by what they began with."""
    store = Store()
    ids = [tools.stored(store, row, seed=seed, state="running") for seed, row in enumerate((
        [0.46], [0.46, 0.2, 0.1, 0.0, 0.0, 0.0], [0.46, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0]))]
    ids += [tools.stored(store, [0.4 + 0.05 * step for step in range(9)], seed=seed, algorithm="rloo")
            for seed in range(3)]
    words = said(chosen_of(ids))
    assert words.startswith("Highest so far, at equal tokens (600 each): RLOO (0.550); fewer than 3 seeds are no "
                            "evidence.")
    assert words.endswith("Based on the 5 of 6 runs that are at least half as far as the furthest of their group.")


def test_a_leader_by_its_mean_alone_is_no_tie_either():
    """One seed of ten lifts the mean; all others lie below those of the other group."""
    said = led([0.5, 0.51, 0.52, 0.53, 0.54, 0.55, 0.56, 0.57, 0.58, 0.59],
               [0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 9.0])
    assert "but behind most seeds of RLOO." in said and "leads by its mean, but not by most seeds" in said
    assert "tie with" not in said and "is a tie" not in said


def test_the_end_of_a_line_has_room_for_what_sets_it_apart_from_others_of_its_algorithm():
    store = Store()
    runs = [tools.stored(store, [0.1, 0.2], beta=beta) for beta in (0.1, 0.2)]
    runs += [tools.stored(store, [0.1, 0.2], algorithm="ppo"),
             tools.stored(store, [0.3], parent=(runs[1], 1), beta=0.3)]
    looks = look_of(chosen_of(runs))
    assert [look["end"] for look in looks] == ["GRPO beta 0.1", "GRPO beta 0.2", "PPO", "beta 0.3, fork at step 1"]
    assert [look["short"] for look in looks] == [
        "GRPO beta 0.1", "GRPO beta 0.2", "PPO", "GRPO beta 0.3, fork at step 1"]


def test_what_a_mix_is_called_is_no_fork():
    store = Store()
    plain, above = (tools.stored(store, [0.1, 0.2], mix=name) for name in ("far from home at step 2", "from A at step"))
    fork = tools.stored(store, [0.3], mix="far from home at step 2", parent=(above, 1))
    assert [look["short"] for look in look_of(chosen_of([plain, above, fork]))] == [
        "far from home at step 2", "from A at step", "far from home at step 2 fork at step 1"]


def test_a_baseline_gives_every_number_a_delta_and_a_verdict(three):
    table = compare(load(Store(), three), "reward", three[0])
    looks = {look["label"]: look for look in look_of(chosen_of(three, three[0]))}
    shown = wording.results(table, looks)
    for words in ("the baseline", "Δ −0.400 [", "GRPO beats it, P 0.00", "Δ +0.005 [", "tie with GRPO, P 0.67"):
        assert words in shown, words
    assert [look["bold"] for look in looks.values()] == [True, False, False, False]


def test_what_a_file_says_is_escaped():
    trace = replace(tools.trace([1, 2]), label="<b>x</b>")
    table = compare([trace], "reward")
    look = {table.rows[0].label: {"colour": ["#000", "#fff"]}}
    assert "<b>x" not in wording.results(table, look)


def read(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_the_table_as_a_file(three):
    chosen = chosen_of(three)
    rows = read(export.table(compare(chosen.traces, "reward"), chosen))
    assert [row["group"] for row in rows] == ["GRPO", "RLOO", "PPO", "REINFORCE"]
    grpo = rows[0]
    assert float(grpo["final"]) == pytest.approx(0.92) and float(grpo["at_600_tokens"]) == pytest.approx(0.92)
    assert (grpo["seeds"], grpo["against"], grpo["verdict"]) == ("3", "RLOO", "tie") and rows[1]["against"] == ""
    assert rows[2]["verdict"] == "is beaten" and float(rows[2]["p_better_than_it"]) == 0
    pinned = read(export.table(compare(chosen.traces, "reward", three[0]), chosen_of(three, three[0])))
    assert float(pinned[2]["delta_final"]) == pytest.approx(-0.4) and pinned[0]["delta_final"] == ""


def test_the_table_as_a_file_has_no_verdict_where_the_page_has_none(three):
    chosen = chosen_of(three)
    rows = read(export.table(compare(chosen.traces, "reward"), chosen))
    assert [row["verdict"] for row in rows] == ["tie", "", "is beaten", "no verdict"]  # REINFORCE has one seed
    assert {row["verdict_at"] for row in rows} == {"600 tokens", ""}
    assert rows[3]["states"] == "finished"
    chosen = chosen_of([*three, tools.stored(Store(), [0.4], seed=9, algorithm="ppo", state="running")])
    rows = read(export.table(compare(chosen.traces, "reward"), chosen))
    assert [row["verdict"] for row in rows] == ["no verdict", "", "no verdict", "no verdict"]
    assert rows[2]["states"] == "finished finished finished running"


def test_a_group_of_which_one_run_has_begun_is_one_seed_in_the_file(lab):
    waiting, begun = (tools.stored(lab.store, rewards, seed=seed, state="running")
                      for seed, rewards in enumerate(([], [0.5, 0.75])))
    rows = read(export.plotted(chosen_of([waiting, begun])))
    assert {(row["what"], row["run"]) for row in rows} == {("one seed", begun)}


def test_the_curves_as_they_are_drawn_as_a_file(three):
    rows = read(export.plotted(chosen_of(three, smooth=0.5)))
    line = [row for row in rows if row["group"] == "GRPO" and row["what"] == "mean" and row["smoothing"] == "0.5"]
    assert [float(row["x"]) for row in line] == [1, 2, 3, 4, 5, 6] and float(line[0]["value"]) == pytest.approx(0.92)
    low = [row for row in rows if row["group"] == "GRPO" and row["what"] == "95 % bootstrap band of the mean, low end"]
    assert len(low) == 6 and all(0.9 <= float(row["value"]) < 0.92 for row in low)
    assert {row["smoothing"] for row in low} == {"0"}
    alone = [row for row in rows if row["group"] == "REINFORCE"]
    assert {row["what"] for row in alone} == {"one seed"} and {row["run"] for row in alone} == {three[-1]}


def test_all_rows_as_a_file(three, monkeypatch):
    monkeypatch.setattr(export, "lab", lambda: type("Lab", (), {"store": Store()})())
    rows = read(export.rows(chosen_of(three[:2])))
    assert len(rows) == 2 * 6 * 3  # two runs, six steps, three metrics
    one = [row for row in rows if row["run"] == three[1] and row["metric"] == "reward" and row["step"] == "2"]
    assert one == [{"run": three[1], "group": "GRPO", "seed": "1", "step": "2", "tokens": "200", "env_steps": "0",
                    "seconds": "2.0", "metric": "reward", "value": "0.92", "title": "GRPO sort #2"}]
    assert np.isfinite([float(row["value"]) for row in rows]).all()
