"""Which charts a run has, and what they say."""

import re
from dataclasses import replace
from itertools import combinations

import pytest

from app.theme import FAMILY, symbol
from app.training.chart_data import payload
from app.training.feed import Feed, headline, panels
from labcore.catalog.kinds import KINDS
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import FAMILIES, PANELS
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Step
from labcore.workers.watched_run import spec_of

STORY = {
    "grpo": ("reward", "kl", "zero_variance"), "ppo": ("reward", "clip", "explained_variance"),
    "dpo": ("exact_match", "margin", "logps"), "dapo": ("reward", "selection", "entropy"),
    "sft": ("exact_match", "loss", "token_accuracy")}
GROUND = {"light": "#FFFFFF", "dark": "#0E1116"}


def feed(*rows: dict[str, float], algorithm: str = "grpo", **knobs) -> Feed:
    """A feed of steps with these metrics."""
    found = Feed(make(algorithm_key=algorithm, task_key="sort", steps=10, knobs=knobs))
    found.take([Step(number, 10 * number, 0, number, dict(row)) for number, row in enumerate(rows, start=1)], [])
    return found


def drawn(found: Feed, ended: bool = False) -> dict[str, dict]:
    return {panel["key"]: panel for panel in panels(found.spec, [found], ended)}


def luminance(colour: str) -> float:
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("algorithm", STORY)
def test_three_large_charts_tell_the_story(algorithm):
    assert tuple(key for key, panel in drawn(feed(algorithm=algorithm)).items() if panel["large"]) == STORY[algorithm]


def test_a_new_metric_makes_no_new_charts_of_those_that_are_there():
    def shown(*rows):
        return payload({"run": feed(*rows)}, full=False, x="step", smooth=0.0, ended=False)
    before, after = shown({"reward": 0.5}), shown({"reward": 0.5}, {"reward": 0.6, "kl": 0.1, "kl/k1": 0.2})
    assert before["key"] == after["key"] == "run" and before["panels"] != after["panels"]


def test_a_switch_that_is_turned_on_in_a_going_run_brings_its_chart():
    assert "kl_coefficient" not in drawn(feed({"reward": 0.1}))
    later = feed({"reward": 0.1}, {"reward": 0.2, "beta": 0.04})
    assert drawn(later)["kl_coefficient"]["large"] is False and later.rows(1)[0][3]["beta"] == 0.04


def test_every_algorithm_of_every_kind_has_three_charts_of_which_each_has_the_hue_of_its_family():
    for kind in KINDS.values():
        for row in kind.algorithms.values():
            assert len(row.panels) >= 3, (kind.key, row.key)
    assert set(FAMILY) == set(FAMILIES) == {panel.family for panel in PANELS.values()}
    for light, dark in FAMILY.values():
        assert (luminance(GROUND["light"]) + 0.05) / (luminance(light) + 0.05) >= 3, light
        assert (luminance(dark) + 0.05) / (luminance(GROUND["dark"]) + 0.05) >= 4.5, dark


def test_a_reward_that_is_the_exact_match_is_shown_once_and_says_so():
    same = feed({"reward": 0.5, "exact_match": 0.5, "reward/shaped": 0.5}, {"reward": 0.75, "exact_match": 0.75})
    assert "exact_match" not in drawn(same) and drawn(same)["reward"]["title"] == "Reward (exact match)"
    assert [metric["key"] for metric in drawn(same)["reward"]["metrics"]] == ["reward"]
    assert drawn(same)["reward"]["scale"] == "rate"
    assert headline(same)[0].label == "Reward (exact match)"
    assert "Exact match" not in [metric.label for metric in headline(same, 20)]

    apart = feed({"reward": 0.5, "exact_match": 0.5}, {"reward": 0.75, "exact_match": 0.5, "reward/shaped": 0.7})
    assert drawn(apart)["exact_match"]["title"] == "Exact match" and drawn(apart)["reward"]["title"] == "Reward"
    assert [metric["key"] for metric in drawn(apart)["reward"]["metrics"]] == ["reward", "reward/shaped"]
    assert "exact_match" in drawn(feed({"exact_match": 0.5}, algorithm="dpo"))  # there it is all there is


def test_the_unit_of_a_chart_its_number_and_its_axis_are_of_one_kind():
    same = {"reward": 0.5, "exact_match": 0.5, "reward_std": 0.5}
    for found, scale, unit, lines in (
            (feed(same, same), "rate", "% of completions", ["reward"]),
            (feed(same, {**same, "reward/steps": 3.0}), "linear", "reward", ["reward", "reward_std", "reward/steps"])):
        panel = drawn(found)["reward"]
        assert (panel["scale"], panel["unit"]) == (scale, unit)
        assert [metric["key"] for metric in panel["metrics"]] == lines
        assert ("exact_match" in drawn(found)) == (scale == "linear")
    exact = Feed(make(kind="exact", algorithm_key="grpo", task_key="one_winner", steps=10))
    exact.take([Step(1, 10, 0, 1.0, {**same, "reward_std": 0.5, "exact/reward": 0.4})], [])
    assert drawn(exact)["reward"]["scale"] == "rate", "the exact mean of a share is a share"


REWARDS = ("reward/gold", "reward/shaped", "reward/verifier", "reward/steps", "exact/reward", "reward/mine")


@pytest.mark.parametrize("exact", [{}, {"exact_match": 0.5}, {"exact_match": 0.25}])
@pytest.mark.parametrize("value", [0.5, 0.75])
@pytest.mark.parametrize("count", range(len(REWARDS) + 1))
def test_every_line_of_a_chart_has_the_unit_of_its_axis_whatever_a_run_logs(count, value, exact):
    """For every set of further rewards that a run may log, each with the value of its reward or with another value."""
    for others in combinations(REWARDS, count):
        found = feed({"reward": 0.5, "reward_std": 0.5, **exact, **HELD_OUT, **dict.fromkeys(others, value)})
        shown = drawn(found)
        assert {*shown} >= {"reward", "length", "pass_at_k"}
        assert not [(key, metric["key"]) for key, panel in shown.items() for metric in panel["metrics"]
                    if metric["unit"] != panel["unit"]]
        assert exact == {} or "held_out/accuracy" in str(shown["exact_match" if "exact_match" in shown else "reward"])


HELD_OUT = {"held_out/accuracy": 0.4, "held_out/greedy": 0.45, "held_out/reward": 0.4, "held_out/mean_length": 5.0,
            "held_out/pass@2": 0.5, "held_out/rows": 32}


def test_held_out_numbers_are_drawn_beside_the_training_curve():
    def lines(found: Feed, key: str) -> list[str]:
        return [metric["short"] for metric in drawn(found)[key]["metrics"]]

    same = feed({"reward": 0.5, "exact_match": 0.5, **HELD_OUT}, {"reward": 0.75, "exact_match": 0.75})
    assert lines(same, "reward") == ["training", "held out, sampled", "held out, greedy"]
    assert lines(same, "length") == ["held out"] and drawn(same)["reward"]["scale"] == "rate"
    assert [metric["key"] for metric in drawn(same)["pass_at_k"]["metrics"]] == ["held_out/pass@2"]
    assert {*HELD_OUT} - {"held_out/rows"} <= {*same.rows(0)[0][3]}  # the browser gets them

    apart = feed({"reward": 0.5, "exact_match": 0.1, **HELD_OUT})
    assert lines(apart, "reward") == ["mean", "held out"]
    assert lines(apart, "exact_match") == ["training", "held out, sampled", "held out, greedy"]
    taught = feed({"loss": 0.5, "exact_match": 0.1, "held_out/loss": 0.6}, algorithm="sft")
    assert lines(taught, "loss") == ["Loss", "held out"]


def test_a_fork_without_a_step_leaves_the_chart_of_its_parent_as_it_is():
    parent, fork = feed({"reward": 0.5, "exact_match": 0.5, "reward_std": 0.5, **HELD_OUT}), feed()
    alone = {panel["key"]: panel for panel in panels(parent.spec, [parent], ended=False)}
    beside = {panel["key"]: panel for panel in panels(fork.spec, [fork, parent], ended=False)}
    assert beside["reward"] == alone["reward"] and "held_out/accuracy" in str(alone["reward"])


def test_without_held_out_rows_nothing_is_said_of_them():
    for found in (feed(), feed({"reward": 0.5, "exact_match": 0.5})):
        assert not [metric for panel in drawn(found).values() for metric in panel["metrics"]
                    if "held" in metric["key"]] and "pass_at_k" not in drawn(found)


@pytest.mark.parametrize("knobs, check", [
    ({"verifier": "exact"}, "exact match"), ({"verifier": "numeric"}, "correct number"),
    ({"verifier": "contains", "pattern": ""}, "contains the answer"),
    ({"verifier": "contains", "pattern": "so"}, "contains the pattern"),
    ({"verifier": "regex"}, "matches the pattern"), ({"verifier": "length"}, "length in range")])
def test_a_reward_is_named_after_what_its_verifier_checks(knobs, check):
    usual = feed({"reward": 0.5, "exact_match": 0.5}, {"reward": 0.75, "exact_match": 0.75})
    found = replace(usual, spec=replace(usual.spec, task="prompts", knobs={**usual.spec.knobs, **knobs}))
    assert drawn(found)["reward"]["title"] == headline(found)[0].label == f"Reward ({check})"
    apart = replace(found, spec=replace(found.spec, algorithm="dpo"), logged={"exact_match"}, own=set())
    assert drawn(apart)["exact_match"]["title"] == check[0].upper() + check[1:]
    both = panels(usual.spec, [usual, found], False)[0]["title"]
    assert both == ("Reward (exact match)" if check == "exact match" else "Reward (accepted completions)")


def test_groups_of_one_completion_have_no_chart_of_groups():
    assert "zero_variance" not in drawn(feed(algorithm="ppo"))
    assert "zero_variance" in drawn(feed(algorithm="ppo", group_size=4))
    assert "zero_variance" in drawn(feed({"frac_reward_zero_std": 0.1}, algorithm="ppo"))  # the knob was moved


def test_steps_are_the_first_axis_of_every_kind_and_the_axis_has_one_name():
    for kind in KINDS.values():
        found = Feed(make(kind=kind.key, algorithm_key=kind.algorithm, task_key=kind.task))
        assert next(iter(found.axes())) == "step"
        for x, name in found.axes().items():
            assert payload({"a": found}, full=True, x=x, smooth=0, ended=False)["axis"] == name.lower()


def test_the_payload_says_which_step_is_shown_and_whether_all_charts_stand_open():
    usual = payload({"a": feed({"reward": 0.5})}, full=True, x="step", smooth=0, ended=False)
    other = payload({"a": feed({"reward": 0.5})}, full=True, x="step", smooth=0, ended=False, at=1, unfolded=True)
    assert (usual["at"], usual["unfolded"]) == (None, False) and (other["at"], other["unfolded"]) == (1, True)


def test_numbers_that_come_late_for_the_last_row_are_drawn():
    """Another program may send an evaluation of a step after its other numbers."""
    found = Feed(spec_of({"name": "mine"}, "id"))
    found.take([Step(1, 0, 0, 1.0, {"loss": 1.0}), Step(2, 0, 0, 2.0, {"loss": 0.5})], [])
    found.take([Step(2, 0, 0, 2.0, {"loss": 0.5, "own/eval": 3.0}), Step(3, 0, 0, 3.0, {"loss": 0.4})], [])
    assert [step.step for step in found.steps] == [1, 2, 3] and "own/eval" in found.logged
    assert found.rows(1)[0][3] == {"loss": 0.5, "own/eval": 3.0}
    found.take([Step(3, 0, 0, 3.0, {"loss": 0.4})], [])
    assert len(found.steps) == 3


def test_the_steps_until_one():
    found = feed(*({"reward": each / 10} for each in range(5)))
    assert [step.step for step in found.until(3)] == [1, 2, 3] and len(found.until(None)) == 5 and found.until(0) == []


def test_names_at_the_ends_of_lines_are_short_and_differ_within_a_chart():
    for panel in PANELS.values():
        names = [METRICS[key].line for key in panel.metrics]
        assert len(set(names)) == len(names), panel.key
        if len(names) > 1:
            assert all(len(name) <= 16 for name in names), names


def test_a_chart_of_peers_has_no_number_of_one_of_them():
    feed = Feed(make(algorithm_key="grpo", task_key="countdown", knobs={"easiest": 2}))
    feed.take([Step(1, 1, 0, 1.0, {"reward": 0.5, "reward_at_level/2": 0.9, "reward_at_level/3": 0.1})], [])
    shown = {panel["key"]: panel for panel in panels(feed.spec, [feed], False)}
    assert shown["levels"]["peers"] and not shown["levels"]["symbol"] and not shown["reward"]["peers"]
    assert shown["levels"]["help"].startswith("Reward at level 2: ")
    alone = {metric.key: panel for panel in PANELS.values() if panel.peers for metric in [METRICS[panel.metrics[0]]]}
    assert all(len(panel.metrics) > 1 and panel.title != METRICS[key].label for key, panel in alone.items())


def test_every_chart_has_a_unit_unless_its_number_has_none():
    assert {panel.metrics[0] for panel in PANELS.values() if not METRICS[panel.metrics[0]].unit} == {
        "ratio/max", "gold_correlation", "loss", "policy_loss", "grad_norm", "step_norm"}


def test_symbols_beside_titles_have_nothing_that_only_tex_can_read():
    for metric in METRICS.values():
        shown = symbol(metric.symbol)
        assert not re.search(r"[{}\\]|frac|sum|operatorname|text", shown), f"{metric.key}: {shown}"
