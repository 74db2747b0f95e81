"""The table: numbers by hand, groups by setting, costs, and what a reader must be told."""

import json
from dataclasses import replace

import numpy as np
import pytest

from labcore.analysis.compare import table
from labcore.analysis.compare.loading import load
from labcore.analysis.compare.table import FINAL
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.words import saying, says


def of(*names: str, metric: str | None = None, baseline: str | None = None, store: Store | None = None):
    return table.compare(load(store or Store(), names), metric, baseline)


def test_final_and_best_by_hand():
    run = tools.stored(Store(), [0, 0, 10, 1, 2, 3, 4, 5])
    (row,) = of(run).rows
    assert row.final.mean == 3 and row.final.low is None and row.seeds == 1  # the mean of 1 … 5
    assert row.seconds.mean == 8 and row.memory.mean == 508 and row.models == ("policy", "reference")


def test_a_run_holds_the_networks_that_it_is_brought_too():
    """A teacher takes as much memory as the policy, so the table names it."""
    held = {key: table.held(make(algorithm_key=key, task_key="sort")) for key in ("grpo", "opd")}
    assert held == {"grpo": ("policy", "reference"), "opd": ("policy", "reference", "teacher")}


@pytest.mark.parametrize("rewards, best", [
    ([0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0], 2), ([10, 0, 0, 0, 0, 0, 0], 2), ([1, 2, 3, 4, 5, 6, 0], 4), ([1, 2], 1.5)])
def test_the_best_by_hand(rewards, best):
    """The highest mean of five steps in a row; of all rows where there are fewer."""
    assert of(tools.stored(Store(), rewards)).rows[0].best.mean == pytest.approx(best)


def test_the_best_of_what_should_fall_is_its_lowest():
    run = tools.stored(Store(), [1] * 7, kl=[0.5] * 5 + [0.1, 0.9])
    (row,) = of(run, metric="kl").rows
    assert row.best.mean == pytest.approx((4 * 0.5 + 0.1) / 5)
    assert of(run, metric="kl").better == "lower"


def test_no_run_ends_better_than_its_best():
    for seed in range(20):
        (row,) = of(tools.stored(Store(), np.random.default_rng(seed).normal(size=8), seed=seed)).rows
        assert row.best.mean >= row.final.mean - 1e-12


def test_the_time_of_a_group_is_its_runs_mean_and_each_is_told(store):
    runs = [tools.stored(store, [1] * 4, seed=seed, seconds=seconds) for seed, seconds in enumerate((2, 1, 1))]
    (row,) = of(*runs).rows
    assert row.durations == (8, 4, 4) and row.seconds.mean == pytest.approx(16 / 3)


def test_final_skips_rows_without_the_metric():
    traces = [tools.trace([1, np.nan, 2, np.nan, 3, np.nan, 4, np.nan, 5, np.nan, 6])]
    assert table.compare(traces).rows[0].final.mean == 5  # 4, 5, 6 at steps 7, 9 and 11


def test_a_metric_of_few_rows_is_judged_over_the_same_steps():
    """As many rows would reach back to where the model had learnt nothing."""
    learnt = np.linspace(0, 1, 60)
    rare = np.where((np.arange(1, 61) % 10 == 0) | (np.arange(60) == 0), learnt, np.nan)
    each, now_and_then = (table.compare([tools.trace(values, np.arange(1, 61))]).rows[0] for values in (learnt, rare))
    assert each.final.mean == pytest.approx(learnt[-5:].mean())
    assert now_and_then.final.mean == now_and_then.best.mean == now_and_then.equal["tokens"].mean == 1
    held = replace(tools.trace(rare, np.arange(1, 61)), run="b", label="b")
    cut = table.compare([tools.trace(learnt[:42], np.arange(1, 43)), held]).rows[1]
    assert cut.equal["tokens"].mean == learnt[39]  # the last row up to 42, alone
    falls = np.full(30, np.nan)
    falls[[9, 19, 29]] = 0.9, 0.5, 0.4
    assert table.compare([tools.trace(falls, np.arange(1, 31))]).rows[0].best.mean == 0.9  # has ten steps behind it
    assert now_and_then.final.mean >= each.final.mean


def test_at_equal_tokens_updates_and_seconds_by_hand(store):
    """B makes fewer, larger and slower steps; it wins at the end, A at equal tokens."""
    a = tools.stored(store, np.linspace(0.1, 2.0, 20), tokens=100, seconds=1.0)  # to 2,000 tokens and 20 s
    b = tools.stored(store, np.linspace(0.3, 3.0, 10), tokens=1000, seconds=4.0, algorithm="rloo")  # 10,000, 40 s
    got = of(a, b)
    assert got.equal == {"updates": 10, "tokens": 2000, "seconds": 20}
    assert got.rows[0].values["tokens"] == pytest.approx((1.8,)) and got.rows[1].values["tokens"] == pytest.approx(
        (0.45,))  # rows at 1,000 and 2,000 tokens
    assert got.rows[0].values["updates"] == pytest.approx((0.8,)) and got.rows[1].values["updates"] == pytest.approx(
        (2.4,))
    assert got.rows[1].values["seconds"] == pytest.approx((0.9,))  # rows at 4, 8, 12, 16 and 20 s
    assert got.leaders[FINAL][0] == got.leaders["updates"][0] == "RLOO" and got.leaders["tokens"][0] == "GRPO"


def test_an_axis_that_one_run_does_not_have_is_not_compared():
    a, b = tools.trace([1, 2], [10, 20]), tools.trace([3, 4], run="b", label="b")
    assert table.compare([a, b]).equal == {}
    late = tools.trace([3, 4], [50, 60], run="b", label="b")
    assert table.compare([a, late]).equal == {}  # its first row lies beyond the other's last


def test_runs_that_differ_by_their_seed_are_one_group(store):
    runs = [tools.stored(store, [reward] * 6, seed=seed) for seed, reward in ((2, 0.4), (0, 0.2), (1, 0.6))]
    other = tools.stored(store, [0.9] * 6, beta=0.5)
    got = of(*runs, other)
    assert [row.label for row in got.rows] == ["GRPO beta 0.04", "GRPO beta 0.5"]
    assert got.rows[0].runs == (runs[1], runs[2], runs[0]) and got.rows[0].seeds == 3
    assert got.rows[0].values[FINAL] == pytest.approx((0.2, 0.6, 0.4)) and got.rows[0].final.mean == pytest.approx(0.4)
    assert got.rows[0].final.low == pytest.approx(0.2) and got.rows[0].final.high == pytest.approx(0.6)
    assert got.config == {"beta": (0.04, 0.5)}


def test_the_settings_that_differ_and_only_they(store):
    a, b = tools.stored(store, [1] * 3, seed=0), tools.stored(store, [1] * 3, seed=1, algorithm="ppo")
    config = of(a, b).config
    assert config["algorithm"] == ("grpo", "ppo") and config["group_size"] == (8, 1)
    assert config["gae_lambda"] == (None, 0.95)  # only one of them has it
    differing, some = of(a, b).config_parts
    assert "group_size" in differing and "gae_lambda" in some and {**differing, **some} == config
    assert not {"task", "model", "temperature", "seed", "steps"} & set(config)
    assert of(a).config == {}


def test_a_knob_changed_mid_run_is_another_setting(store):
    plain, moved = tools.stored(store, [1] * 3), tools.stored(store, [2] * 3, seed=1, changes=[(1, "beta", 0.5)])
    got = of(plain, moved)
    assert len(got.rows) == 2 and got.config == {"changed mid-run": (None, [("beta", 0.5, 1)])}
    assert got.config_parts == (got.config, {}), "a change is no knob that only some have"
    assert got.to_json()["config"] == {"changed mid-run": [None, "beta=0.5 after step 1"]}
    assert got.rows[1].label == "GRPO (knobs changed)"
    other = tools.stored(store, [2] * 3, beta=0.3, changes=[(1, "clip_low", 0.3)])
    assert of(plain, moved, other).rows[2].label == "GRPO beta 0.3 (knobs changed)"


def test_where_runs_were_computed_parts_no_group_and_names_none():
    def trace(run, **more):
        return replace(tools.trace([1, 2], run=run), spec=make(task_key="sort", **more))

    runs = [trace("a", algorithm_key="grpo", threads=1), trace("b", algorithm_key="grpo", seed=1, threads=4),
            trace("c", algorithm_key="grpo", seed=2, threads=4, device="cpu"),
            trace("d", algorithm_key="grpo", steps=40, threads=2)]
    found = table.groups(runs)
    assert [(group.label, len(group.traces)) for group in found] == [("GRPO steps 200", 3), ("GRPO steps 40", 1)]
    got = table.compare(runs).config  # it is still told
    assert got == {"device": ("auto, cpu", "auto"), "steps": (200, 40), "threads": ("1, 4", 2)}


def test_forks_of_one_setting_computed_elsewhere_are_seeds_of_one_setting(store):
    above = [store.create(make(algorithm_key="grpo", task_key="sort", seed=seed, threads=1 + seed), mine=True)
             for seed in range(2)]
    children = [tools.stored(store, [1.0] * 3, seed=seed, parent=(run, 4)) for seed, run in enumerate(above)]
    assert [row.runs for row in of(*children, store=store).rows] == [tuple(children)]


def test_forks_of_seeds_of_one_setting_are_seeds_of_one_setting(store):
    above = [tools.stored(store, [1.0] * 6, seed=seed) for seed in range(2)]
    other = tools.stored(store, [1.0] * 6, beta=0.5)
    children = [tools.stored(store, [2.0 + index] * 3, seed=index, parent=(run, 4))
                for index, run in enumerate((*above, other))]
    got = of(*above, *children, store=store)
    assert [row.runs for row in got.rows] == [tuple(above), tuple(children[:2]), (children[2],)]
    assert got.config["parent"] == (None, f"{above[0]} at step 4", f"{other} at step 4")
    assert [row.label for row in got.rows] == [
        "GRPO", "GRPO from GRPO sort #1 at step 4", "GRPO from GRPO sort #3 at step 4"]
    store.delete(above[1])
    assert len(of(*children, store=store).rows) == 3  # nobody knows any more what that one began from


def test_forks_share_an_origin_where_their_parents_did_the_same_up_to_there(store):
    """A knob moved after step 4 counts from step 5 on, which a fork at step 4 has not seen."""
    plain, before, after = (tools.stored(store, [1.0] * 6, seed=seed, changes=changes) for seed, changes in enumerate(
        ([], [(3, "beta", 0.5)], [(4, "beta", 0.5)])))
    children = [tools.stored(store, [1.0] * 3, seed=seed, parent=(run, 4))
                for seed, run in enumerate((plain, before, after))]
    assert [row.runs for row in of(*children, store=store).rows] == [(children[0], children[2]), (children[1],)]


def test_runs_of_other_kinds_with_an_algorithm_of_the_same_name_are_told_apart_by_their_tasks():
    def trace(run, **more):
        return replace(tools.trace([1, 2], run=run), spec=make(**more))

    ppo = {"algorithm_key": "ppo"}
    found = table.groups([trace("a", task_key="sort", knobs={"beta": 0.5}, **ppo), trace("b", task_key="sort", **ppo),
                          trace("c", kind="cartpole", task_key="CartPole-v1", **ppo),
                          trace("d", kind="maze", task_key="cliff", **ppo)])
    assert [group.label for group in found] == [
        "PPO task sort, beta 0.5", "PPO task sort, beta 0.02", "PPO task CartPole-v1", "PPO task cliff"]


def test_a_seed_that_ran_twice_counts_once(store):
    short, long = tools.stored(store, [0.1] * 2), tools.stored(store, [0.1] * 5)
    got = of(short, long, tools.stored(store, [0.5] * 5, seed=1))
    assert got.rows[0].runs[0] == long and got.rows[0].seeds == 2
    assert any("GRPO sort #1 repeats a seed" in note for note in got.notes)
    assert of(long, short).rows[0].runs == of(short, long).rows[0].runs == (long,)


def test_against_a_baseline(store):
    good = [tools.stored(store, [0.9 + 0.01 * seed] * 6, seed=seed) for seed in range(3)]
    bad = [tools.stored(store, [0.1 + 0.01 * seed] * 6, seed=seed, algorithm="rloo") for seed in range(3)]
    got = of(*good, *bad, baseline=bad[1])
    assert got.baseline == "RLOO" and got.rows[1].deltas == {} and got.rows[1].comparisons == {}
    delta, comparison = got.rows[0].deltas[FINAL], got.rows[0].comparisons[FINAL]
    assert delta.mean == pytest.approx(0.8) and delta.low > 0.7 and comparison.p == 1 and comparison.verdict == "A"
    assert set(got.rows[0].comparisons) == {FINAL, "updates", "tokens", "seconds"}
    assert got.comparisons[FINAL]["RLOO"]["GRPO"].verdict == "B" and got.comparisons[FINAL]["RLOO"]["GRPO"].p == 0
    assert got.leaders[FINAL] == ("GRPO", ("RLOO",)) and got.notes == ()
    with pytest.raises(LabError, match=saying("baseline", "nobody", "not")):
        of(*good, baseline="nobody")


def test_the_leader_is_the_better_one_and_ties_are_not_beaten(store):
    far = [tools.stored(store, [1.0] * 6, seed=seed, kl=[0.8 + 0.01 * seed] * 6) for seed in range(3)]
    near = [tools.stored(store, [1.0] * 6, seed=seed, kl=[0.1 + 0.01 * seed] * 6, algorithm="rloo")
            for seed in range(3)]
    alike = [tools.stored(store, [1.0] * 6, seed=seed, kl=[kl] * 6, algorithm="ppo")
             for seed, kl in enumerate((0.1, 0.2, 0.105))]
    assert of(*far, *near, *alike, metric="kl").leaders[FINAL] == ("RLOO", ("GRPO",))  # PPO is a tie


def test_a_duel_seen_from_the_other_side(store):
    a = [tools.stored(store, [reward] * 6, seed=seed) for seed, reward in enumerate((0.1, 0.5, 0.9, 0.4))]
    b = [tools.stored(store, [reward] * 6, seed=seed, algorithm="rloo") for seed, reward in enumerate((0.3, 0.8, 0.9))]
    comparisons = of(*a, *b).comparisons[FINAL]
    one, other = comparisons["GRPO"]["RLOO"], comparisons["RLOO"]["GRPO"]
    assert one.p == pytest.approx(1 - other.p) and one.low == pytest.approx(1 - other.high)
    assert one.p == pytest.approx(4.5 / 12) and one.verdict == other.verdict == "tie" and one.p_value == other.p_value


def test_what_a_reader_must_know(store):
    a = [tools.stored(store, [0.9 + 0.01 * seed] * 20, seed=seed, tokens=999) for seed in range(3)]
    worse = np.append(np.full(10, 0.1), np.full(10, 0.5))
    b = [tools.stored(store, worse + 0.01 * seed, seed=seed, tokens=999, algorithm="rloo") for seed in range(3)]
    assert of(*a, *b).notes == ()
    late = [tools.stored(store, np.append(np.full(30, 0.1), np.full(30, 2.0 + 0.1 * seed)), seed=seed, tokens=333,
                         algorithm="ppo") for seed in range(3)]
    assert any(says(note, "PPO at equal tokens", "GRPO at equal updates", "GRPO at equal seconds", "PPO at the end")
               for note in of(*a, *late).notes)
    empty, stopped = tools.stored(store, []), tools.stored(store, [1] * 3, state="diverged", algorithm="reinforce")
    notes = of(*a, empty, stopped).notes
    assert any(says(note, "GRPO sort #10", "finished", "left out") for note in notes)
    assert "REINFORCE: REINFORCE sort #11 not finished (diverged)." in notes
    assert any("REINFORCE: fewer than 3 seeds are not enough" in note for note in notes)
    assert any("No direction of entropy" in note for note in table.compare(
        [tools.trace([1], metric="entropy")], "entropy").notes)


def test_an_imported_run_beside_ours():
    own = load(Store(), [tools.stored(Store(), [1, 2, 3])])
    theirs = [replace(tools.trace([5, 6], [100, 200], run=name, label="trl"), notes=("Beware.",)) for name in "xy"]
    got = table.compare([*own, *theirs])
    assert [row.label for row in got.rows] == ["GRPO", "trl (imported)"] and got.rows[1].imported
    assert got.rows[1].seeds == 2 and got.rows[1].models == () and got.rows[1].seconds is None
    assert got.notes.count("trl (imported): Beware.") == 1 and set(got.equal) == {"tokens"}


def test_nothing_to_compare():
    with pytest.raises(LabError, match="nothing to compare yet"):
        of(tools.stored(Store(), []))


def test_the_table_is_plain_data_and_can_be_narrowed(store):
    got = of(tools.stored(store, [1] * 6), tools.stored(store, [2] * 6, algorithm="rloo"))
    assert json.loads(json.dumps(got.to_json(), allow_nan=False))["equal"] == {"updates": 6, "tokens": 600,
                                                                               "seconds": 6}
    narrow = got.only("tokens")
    assert narrow.equal == {"tokens": 600} and set(narrow.leaders) == set(narrow.comparisons) == {FINAL, "tokens"}
    assert set(narrow.rows[0].values) == {FINAL, "tokens", "best"} and narrow.rows[0].final == got.rows[0].final
    with pytest.raises(LabError, match="cannot be compared at equal environment steps"):
        got.only("env_steps")
