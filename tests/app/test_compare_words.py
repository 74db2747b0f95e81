"""The verdict of Compare in words, its tables, and its files. Numbers by hand."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from app.compare import curves, export, verdict, wording
from app.compare.data import Chosen, judged, look_of, note
from app.compare.lines import Look, lines_of
from app.compare.place import Place
from labcore.analysis.compare import budget
from labcore.analysis.compare.best import standing
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import load
from labcore.analysis.compare.table import compare
from labcore.catalog.metrics import METRICS
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.words import says


def chosen_of(names, baseline="", **place):
    store = Store()
    traces = load(store, names)
    return Chosen(Place(runs=tuple(names), baseline=baseline, **place), tuple(store.run(name) for name in names),
                  tuple(traces), tuple(groups(traces)), "reward", "step", dict.fromkeys(names, frozenset({"reward"})))


def said(chosen: Chosen) -> str:
    """The page's verdict with the caveats below it."""
    found, names = verdict.stand_of(chosen), verdict.names_of(chosen)
    stands = verdict.stands_of(chosen, found)
    return " ".join(filter(None, (verdict.headline(stands, METRICS["reward"], names, chosen.active),
                                  verdict.caveats(stands, found, chosen, names), verdict.how(found, chosen, names))))


@pytest.fixture
def three(store):
    """GRPO and RLOO alike, PPO below them, three seeds each; REINFORCE with one."""
    levels = {"grpo": 0.9, "rloo": 0.905, "ppo": 0.5}
    names = [tools.stored(store, [level + 0.02 * seed] * 6, seed=seed, algorithm=key)
             for key, level in levels.items() for seed in range(3)]
    return [*names, tools.stored(store, [0.7] * 6, algorithm="reinforce")]


def test_single_episodes_of_a_maze_are_smoothed_unless_the_link_says_otherwise(three):
    maze = [Store().create(make(kind="maze", algorithm_key="q_learning", task_key="corridors"))]
    assert chosen_of(maze).smoothing("episode_return") == 0.95 and chosen_of(maze).smoothing("start_value/greedy") == 0
    assert chosen_of(maze, smooth=0.0).smoothing("episode_return") == 0 and chosen_of(three).smoothing() == 0


def test_ties_are_called_ties_and_one_seed_is_no_evidence(three):
    chosen = chosen_of(three)
    table = compare(chosen.traces, "reward")
    for part in ("Per token", "per update", "per second RLOO", "is ahead of PPO", "ties with GRPO",
                 "cannot be ranked against REINFORCE"):
        assert part in said(chosen), part
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
        return said(chosen)

    assert all(budget.SHARED in aside(together, by) for by in ("seconds", "tokens")), "the headline speaks of seconds"
    assert budget.SHARED not in aside(chosen, "seconds")


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
    assert "Fewer than 3 seeds are not enough" in said and "the others have too few seeds" in said
    assert "tie" not in said and "ahead" not in said


@pytest.mark.parametrize("state, so_far", [("running", "So far, per"), ("finished", "Per")])
def test_one_seed_each_has_no_winner(state, so_far):
    """Neither while a run goes; and numbers that read the same are equal."""
    store = Store()

    def told(ppo: float) -> tuple[str, str]:
        runs = [tools.stored(store, [level] * 6, algorithm=key, state=state if key == "ppo" else "finished")
                for key, level in (("grpo", 0.9881), ("ppo", ppo))]
        chosen = chosen_of(runs)
        found = standing(chosen.groups, "reward")
        table = compare(chosen.traces, "reward")
        return (f"{verdict.headline([found], METRICS['reward'], verdict.names_of(chosen), state == 'running')} "
                f"{verdict.limits(found, METRICS['reward'], state == 'running')}",
                wording.results(table, {look["label"]: look for look in look_of(chosen)}))
    said, table = told(0.9882)
    assert said.startswith(f"{so_far} token GRPO and PPO are equal. One seed per setting") and "<b>" not in table
    said, table = told(0.5)
    assert said.startswith(f"{so_far} token GRPO has the highest reward. One seed per setting")
    assert "leads" not in said and "<b>" not in table


def test_a_leader_by_enough_seeds_is_bold_and_numbers_that_read_the_same_are_equal_while_runs_go(three):
    chosen = chosen_of(three)
    table = wording.results(compare(chosen.traces, "reward"), {look["label"]: look for look in look_of(chosen)})
    assert "<b>0.925 [" in table and "<b>0.920 [" not in table
    store = Store()
    alike = chosen_of([tools.stored(store, [level] * 6, seed=seed, algorithm=key) for seed in range(3)
                       for key, level in (("grpo", 0.9), ("rloo", 0.9001))])
    said = verdict.headline([standing(alike.groups, "reward")], METRICS["reward"], verdict.names_of(alike), going=True)
    assert says(said, "So far", "per token", "GRPO and RLOO are equal")


def test_where_no_direction_is_better_numbers_that_read_the_same_have_no_first():
    alike = chosen_of([tools.stored(Store(), [level] * 6, algorithm=key)
                       for key, level in (("grpo", 0.9), ("rloo", 0.9001))])
    stand, metric = standing(alike.groups, "reward"), replace(METRICS["reward"], better=None)
    assert verdict.headline([stand], metric, verdict.names_of(alike)).endswith("GRPO and RLOO are equal.")
    assert says(verdict.limits(stand, metric), "No direction", "reward")


def test_a_seed_that_has_just_begun_does_not_have_all_others_judged_at_its_first_step():
    """While the page draws them at 0 the sentence must not say that they lead by what they began with."""
    store = Store()
    ids = [tools.stored(store, row, seed=seed, state="running") for seed, row in enumerate((
        [0.46], [0.46, 0.2, 0.1, 0.0, 0.0, 0.0], [0.46, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0]))]
    ids += [tools.stored(store, [0.4 + 0.05 * step for step in range(9)], seed=seed, algorithm="rloo")
            for seed in range(3)]
    chosen = chosen_of(ids)
    words, whose = said(chosen), "based on the 5 of 6 runs that are at least half as far as the furthest of their group"
    assert words.startswith("So far, per token") and "RLOO has the highest reward. Fewer than 3 seeds" in words
    assert f"Not final, {whose}." in words and whose in curves.words(chosen)
    assert [look["note"].partition(" · ")[0] for look in look_of(chosen)] == ["2 of 3 seeds compared", "3 seeds"]
    lines = lines_of(chosen.groups[0], 0, Look("reward", "step"), {}, judged(chosen).groups[0])
    assert lines["0:line"]["x"][-1] == 6 and lines[f"0:seed:{ids[0]}"]["x"] == [1], "the mean is over the same runs"
    mean = [row for row in read(export.plotted(chosen)) if row["what"] == "mean" and row["group"] == "GRPO"]
    assert float(mean[-1]["x"]) == 6, "in the file too"


def test_a_leader_by_one_seed_alone_beats_nobody():
    """One seed of ten lifts the mean; all others lie below those of the other group."""
    said = led([0.5, 0.51, 0.52, 0.53, 0.54, 0.55, 0.56, 0.57, 0.58, 0.59],
               [0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 9.0])
    assert "GRPO and RLOO tie." in said and "leads, but it is a tie" in said


def test_the_headline_names_who_is_ahead_at_each_cost_and_the_settings_that_differ():
    """PPO takes a quarter of the tokens and four times the seconds of a step."""
    store = Store()
    runs = []
    for seed in range(3):
        runs.append(tools.stored(store, [0.1, 0.2, 0.3, 0.7, 0.9, 0.9 + 0.01 * seed], seed=seed, algorithm="ppo",
                                 seconds=4, beta=0.1))
        runs.append(tools.stored(store, [0.2, 0.5, 0.8, 0.8, 0.8, 0.8 + 0.01 * seed], seed=seed, beta=0.2, tokens=400))
    chosen = chosen_of(runs)
    words, stands = said(chosen), verdict.stands_of(chosen, verdict.stand_of(chosen))
    headline = verdict.headline(verdict.stands_of(chosen, verdict.stand_of(chosen)), METRICS["reward"],
                                verdict.names_of(chosen))
    assert says(headline, "token PPO", "update", "second GRPO") and headline.count(".") == 1, "caveats stand below it"
    assert says(wording.updates(verdict.stand_of(chosen), verdict.names_of(chosen)), "PPO", "6 updates", "GRPO 1")
    assert "β" in words.partition("Settings differ in")[2]
    shown = verdict.cards(stands, METRICS["reward"], look_of(chosen), "tokens", False)
    assert shown.count("rl-shown") == 1 and shown.count("Per ") == len(stands) and "p &lt; 0.01" in shown
    notes = {look["short"]: look["note"] for look in look_of(chosen)}
    assert "β 0.1" in notes["PPO"] and "β 0.2" in notes["GRPO"]


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


def test_the_mean_of_two_seeds_is_a_mean_without_an_interval():
    """In the file of the curves, in the caption and in the table."""
    chosen = chosen_of([tools.stored(Store(), [0.1 * seed, 0.5], seed=seed) for seed in range(2)])
    assert {row["what"] for row in read(export.plotted(chosen)) if not row["run"]} == {"mean"}
    assert "no band for fewer than 3 seeds" in curves.words(chosen)
    table = compare(chosen.traces, "reward")
    assert "[" not in wording.results(table, {look["label"]: look for look in look_of(chosen)})


@pytest.mark.parametrize("seeds, whole", [((3,), False), ((3, 1), False), ((3, 2), True)])
def test_the_caption_says_whether_seeds_are_drawn_before_the_end_of_their_mean(seeds, whole):
    chosen = chosen_of([tools.stored(Store(), [0.5, 0.6], seed=seed, algorithm=algorithm)
                        for count, algorithm in zip(seeds, ("grpo", "rloo"), strict=False) for seed in range(count)])
    assert ("single seeds beyond that step" in curves.words(chosen)) == (not whole)
    assert ("no band" in curves.words(chosen)) == (min(seeds) < 3)


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
