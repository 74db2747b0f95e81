"""Mixes: the nearest named row and what differs, the equation of the choices, what to beware of, and the mix's row."""

import math
import re

import pytest

from labcore.catalog.choices import FAMILIES, SFT_LOSS
from labcore.catalog.kinds import task
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.mix import row as mixed
from labcore.catalog.mix.cautions import CAUTIONS, cautions
from labcore.catalog.mix.equation import equation
from labcore.catalog.mix.nearest import LOOPS, PARTS, nearest
from labcore.catalog.mix.summary import summarise
from labcore.catalog.panels import PANELS
from labcore.errors import LabError
from labcore.llm.networks import needed
from labcore.runs.spec.run_spec import make
from tests.catalog.test_kinds import BESIDE, NOT_IN_ALL
from tests.every import every
from tests.llm.tools import records, session

SORT = task("sort")
MIXED = [row.key for row in ALGORITHMS.values() if row.loop in LOOPS]


def filled(algorithm: str, **moved):
    """All knobs of a mix that began from a row."""
    row = mixed.with_every_knob(algorithm)
    return {knob.key: SORT.own(row.loop, row.key).get(knob.key, knob.default) for knob in row.knobs} | moved


@every("key", MIXED)
def test_a_named_row_is_nearest_to_itself_wherever_it_began(key):
    """From itself and some others: each row is begun from as often as it is found."""
    same = [other for other in MIXED if ALGORITHMS[other].loop == ALGORITHMS[key].loop]
    found = {nearest(same[same.index(key) - back], filled(key), SORT) for back in (0, 1, 2, 5, 11) if back < len(same)}
    assert {(each.row.key, each.parts, each.numbers) for each in found} == {(key, (), ())}


@pytest.mark.parametrize("base, moved, near, differs", [
    ("grpo", {"aggregation": "token_mean"}, "grpo", {"aggregation": ("sequence_mean_token_mean", "token_mean")}),
    ("grpo", {"advantage": "group_mean", "aggregation": "constant_length", "kl_placement": "off"}, "dr_grpo", {}),
    ("grpo", {"advantage": "group_mean", "aggregation": "constant_length", "beta": 0.0}, "dr_grpo", {}),  # no KL at β 0
    ("grpo", {"kl_placement": "off", "kl_estimator": "k1", "aggregation": "token_mean"}, "bnpo_token_mean", {}),
    ("grpo", {"top_entropy_share": 0.2}, "grpo", {"top_entropy_share": (1.0, 0.2)}),
    ("ppo", {"surrogate": "soft_gate"}, "ppo", {"surrogate": ("clip", "soft_gate")}),
    ("dpo", {"preference_loss": "orpo"}, "orpo", {}),
    ("dpo", {"second_loss": "sft"}, "dpo", {"second_loss": ("none", "sft")}),
    # Of two with as few differences the one that it began from.
    ("raft", {"selection": "everything"}, "raft", {"selection": ("best_of_group", "everything")}),
])
def test_the_nearest_row_and_what_differs(base, moved, near, differs):
    found = nearest(base, filled(base, **moved), SORT)
    assert found.row.key == near
    assert {each.knob.key: (each.theirs, each.own) for each in found.parts} == differs


def test_numbers_are_said_apart_and_only_where_they_act():
    found = nearest("grpo", filled("grpo", clip_high=0.28, dual_clip=9.0), SORT)
    assert not found.parts and [each.knob.key for each in found.numbers] == ["clip_high"]


def test_a_task_of_pairs_leaves_out_who_cannot_learn_it():
    own = task("preferences")
    assert nearest("dpo", filled("dpo", pairs="dataset"), own).parts == ()


def test_every_choice_is_a_part():
    assert {family.key for family in FAMILIES} - {"sft_loss", "step_labels"} <= set(PARTS)


# ---- the equation ------------------------------------------------------------------------------------------------


def choices_of(loop: str):
    """(base, knob, choice) for every choice of every family that the loop has."""
    base = "grpo" if loop == "online" else "dpo"
    row = mixed.with_every_knob(base)
    return [(base, knob.key, choice) for knob in row.knobs if knob.key in PARTS for choice in knob.choices]


@every("base, knob, choice", [*choices_of("online"), *choices_of("preference")])
def test_an_equation_is_whole_and_changes_with_every_choice_that_acts(base, knob, choice):
    values = filled(base, ld_alpha=0.5, second_loss="none" if knob != "second_loss" else "sft")
    if knob == "importance_mode":
        values["importance_cap"] = 2.0
    if knob == "divergence":
        values["divergence"] = "reverse_kl"
    if knob == "step_reward":
        values["reward_source"] = "step_verifier"
    latex = equation(mixed.with_every_knob(base).loop, values | {knob: choice})
    assert latex.startswith(("L = ", r"\begin{gathered}L = ")) and latex.count("{") == latex.count("}")
    assert latex.count(r"\big(") == latex.count(r"\big)") and latex.count(r"\Big[") == latex.count(r"\Big]")
    same = equation(mixed.with_every_knob(base).loop, values) == latex
    inert = {"pairs", "reward_source"} if base == "dpo" else {"teacher_context"}  # of a run without a teacher
    assert not same or values[knob] == choice or knob in inert, "the equation says nothing of it"


@pytest.mark.parametrize("base, knob, value", [
    ("grpo", "overlong_filter", True), ("ppo", "whiten_rewards", True), ("ppo", "whiten_advantages", False),
    ("grpo", "top_entropy_share", 0.2), ("grpo", "off_policy_threshold", 0.1), ("grpo", "importance_cap", 2.0),
    ("grpo", "sft_weight", 0.5), ("opd", "single_step", True), ("minillm", "single_step", True),
    ("sdft", "single_step", False), ("opd", "teacher", "self"), ("opd", "teacher_context", "demonstration"),
    ("sdpo", "teacher_context", "feedback"),
    ("dpo", "ld_alpha", 0.5), ("dpo", "pair_weighting", True)])
def test_a_switch_stands_in_the_equation_too(base, knob, value):
    with_it, without = (equation(mixed.with_every_knob(base).loop, filled(base, **moved)) for moved in (
        {knob: value}, {}))
    assert knob in {*PARTS, "teacher"} and with_it != without and with_it.count("{") == with_it.count("}")


@every("key", [key for key, row in ALGORITHMS.items() if "single_step" in {knob.key for knob in row.knobs}])
def test_the_single_step_term_is_in_the_equation_and_the_token_s_own_log_ratio_in_its_advantage_or_not(key):
    on, off = (equation("online", filled(key, single_step=each)) for each in (True, False))
    assert r"KL_t(\pi_\theta\,\|\,\pi_T)" in on and "KL_t" not in off and "r_t" not in on + off
    assert (on.count("s>t"), on.count(r"s\ge t")) == (off.count(r"s\ge t"), 0) and off.count(r"s\ge t")


@every("choice", SFT_LOSS.names)
def test_the_loss_of_sft_is_that_which_was_chosen(choice):
    row = ALGORITHMS["gkd"]
    latex = equation("sft", {**{knob.key: knob.default for knob in row.knobs}, "sft_loss": choice})
    loss = SFT_LOSS[choice].latex.replace(r"\log\pi_\theta", r"\log\pi_\theta(y_{i,t})")
    assert loss in latex and ("m = " in latex) == (choice == "generalised_jsd") and latex.count("{") == latex.count("}")


def test_the_equation_weighs_no_tail_of_terms_that_count_every_token():
    for moved, terms in (({}, []), ({"second_loss": "sft"}, ["SFT"]), ({"preference_loss": "kto"}, None),
                         ({"preference_loss": "orpo"}, ["SFT"]), ({"second_loss": "kto"}, ["KTO"])):
        latex = equation("preference", filled("dpo", ld_alpha=0.5, **moved))
        assert (r"\alpha_{LD}\sum" in latex) == (terms is not None)
        assert re.findall(r"\\alpha_{LD} = 1\\ \\text{in the (\w+) term}", latex) == (terms or [])


def test_overlong_filtering_is_written_as_the_selection_is_and_once():
    ended = [equation("online", filled("grpo", **moved)).count(r"y_{i,T_i} = \text{end}") for moved in (
        {"overlong_filter": True}, {"selection": "not_truncated"},
        {"selection": "not_truncated", "overlong_filter": True})]
    assert ended == [1, 1, 1]


@every("key", MIXED)
def test_the_live_knobs_of_a_row_stand_in_its_equation(key):
    row, latex = ALGORITHMS[key], equation(ALGORITHMS[key].loop, filled(key))
    off = {"beta"} if filled(key).get("kl_placement") == "off" else set()
    for knob in row.knobs:
        if knob.effect == "live" and knob.symbol and knob.key not in {*BESIDE["llm"], *off}:
            assert re.search(re.escape(knob.symbol) + r"(?![A-Za-z_])", latex), f"{knob.key} is not in {latex}"


# ---- what to beware of -------------------------------------------------------------------------------------------

# Mixes of which a caution speaks, and how they are mended.
BEWARE = [
    ("raft", {"selection": "everything"}, {"selection": "best_of_group"}),
    ("reinforce", {"updates_per_batch": 2}, {"updates_per_batch": 1}),
    ("grpo", {"updates_per_batch": 1}, {"mini_batches": 2}),
    ("grpo", {"kl_estimator": "k1", "updates_per_batch": 1}, {"kl_placement": "reward"}),
    ("grpo", {"kl_estimator": "k1"}, {"kl_placement": "reward"}),
    ("grpo", {}, {"kl_estimator": "ratio_k3"}),
    ("rloo", {"kl_estimator": "k2"}, {"kl_estimator": "k1"}),
    ("grpo", {"kl_placement": "reward"}, {"advantage": "group_mean"}),
    ("grpo", {"selection": "best_of_group"}, {"selection": "everything"}),
    ("dapo", {"resample_rounds": 0}, {"resample_rounds": 2}),
    ("grpo", {"normalisation": "tokens"}, {"normalisation": "none"}),
    ("grpo", {}, {"advantage": "group_mean"}),
    ("gdpo", {"reward_source": "verifier"}, {"reward_source": "correct_and_format"}),
    ("bnpo", {"shaping": "overlong"}, {"shaping": "none"}),
    ("grpo", {}, {"aggregation": "constant_length"}),
    ("rloo", {"aggregation": "token_mean"}, {"aggregation": "sequence_mean_token_mean"}),
    ("gspo", {"clip_low": 0.2, "clip_high": 0.2}, {"clip_low": 0.03}),
    ("ppo", {"ratio": "sequence_mean"}, {"ratio": "sequence_mean_token"}),
    ("gmpo", {"ratio": "sequence_mean"}, {"ratio": "token"}),
    ("grpo", {"surrogate": "bounded_clip", "clip_delta": 1.1}, {"clip_delta": 1.3}),
    ("grpo", {"surrogate": "bounded_clip", "dual_clip": 0.9}, {"dual_clip": 0.0}),
    ("grpo", {"importance_cap": 2.0}, {"dtype": "bf16"}),
    ("dppo", {"ratio": "sequence_mean"}, {"ratio": "token"}),
    ("passk_training", {"pass_k": 8}, {"pass_k": 4}),
    ("clip_cov", {"ratio": "sequence_mean"}, {"ratio": "token"}),
    ("maxrl", {"shaping": "length_cost"}, {"shaping": "none"}),
    ("passk", {"normalisation": "sequences"}, {"normalisation": "none"}),
    ("dpo", {"second_loss": "sigmoid"}, {"second_loss": "sft"}),
    ("dpo", {"second_loss": "sft", "second_weight": 0.0}, {"second_weight": 0.1}),
    ("dpo", {"preference_loss": "sft"}, {"second_loss": "sigmoid"}),
    ("simpo", {"second_loss": "none"}, {"second_loss": "sft"}),
    ("dpo", {"preference_loss": "answer_sft", "second_loss": "none"}, {"second_loss": "sigmoid"}),
    ("slic", {"divergence": "forward_kl"}, {"divergence": "reverse_kl"}),
    ("ipo", {"ld_alpha": 0.5}, {"ld_alpha": 1.0}),
    ("cdpo", {"label_smoothing": 0.0}, {"label_smoothing": 0.1}),
]


def mended(base, moved, cure):
    """What is said of a mix, and no longer once it is mended."""
    loop = ALGORITHMS[base].loop
    return {*cautions(loop, filled(base, **moved))} - {*cautions(loop, filled(base, **moved | cure))}


@every("base, moved, cure", BEWARE)
def test_a_caution_is_given_and_goes_once_it_is_mended(base, moved, cure):
    assert mended(base, moved, cure)


def test_each_caution_has_its_mix():
    declared = [caution.text for family in FAMILIES for choice in family for caution in choice.cautions]
    declared += [caution.text for loop in CAUTIONS.values() for caution in loop]
    assert set().union(*(mended(*case) for case in BEWARE)) == set(declared)


# ---- the row of a mix --------------------------------------------------------------------------------------------


@every("key", MIXED)
def test_a_mix_that_changes_nothing_is_its_row(key):
    row, named = mixed.row(key, "mine", {}), ALGORITHMS[key]
    assert (row.label, row.key, row.loop, row.models) == ("mine", key, named.loop, named.models)
    # Where a prompt has one completion there are no groups to draw.
    assert set(named.panels) - set(row.panels) == ({"zero_variance"} if filled(key).get("group_size") == 1 else set())
    assert {knob.key: knob for knob in row.knobs} | {knob.key: knob for knob in named.knobs} == {
        knob.key: knob for knob in row.knobs}


@pytest.mark.parametrize("base, moved", [
    ("grpo", {"advantage": "gae", "surrogate": "soft_gate", "selection": "informative", "aggregation": "token_mean"}),
    ("reinforce", {"surrogate": "gamma_weight", "ratio": "sequence_sum", "updates_per_batch": 2}),
    ("simpo", {"preference_loss": "kto", "second_loss": "sft"}), ("dpo", {"preference_loss": "simpo"})])
def test_a_mix_that_no_row_could_be_runs_and_fills_its_charts(base, moved):
    measured = {"eval_every": 1} if ALGORITHMS[base].loop == "preference" else {}
    started = session(base, mix="mine", **moved, **measured)
    assert started.spec.row.label == "mine" and set(started.spec.row.models) == set(needed(started.spec, started.knobs))
    drawn = {name for panel in started.spec.row.panels for name in PANELS[panel].metrics} - NOT_IN_ALL
    for record in records(started):
        assert drawn - {"frac_reward_zero_std", "memory", "tokens_per_second"} <= set(record.metrics)
        assert math.isfinite(record.metrics["loss"])


@pytest.mark.parametrize("name", ["", " mine", "a" * 41, "<b>", "a|b", "mix:x", "GRPO", "dr. grpo", "sarsa", "$x$"])
def test_a_name_that_cannot_be(name):
    with pytest.raises(LabError, match=r"cannot be the name|is the name of an algorithm"):
        mixed.check_name(name)


def test_only_rows_of_choices_are_mixed():
    with pytest.raises(LabError, match="SFT has no choices to mix"):
        mixed.with_every_knob("sft")
    with pytest.raises(LabError, match="has no choices to mix"):
        make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1", mix="mine")


def test_a_look_takes_what_a_row_does_not_have():
    seen = summarise("reinforce", {"advantage": "group_mean"}, SORT)
    assert seen.nearest.row.key == "reinforce" and r"\bar R'_g" in seen.latex
