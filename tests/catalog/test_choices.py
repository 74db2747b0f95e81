"""The families of choices: each names a function, and a mix of one's own runs or is refused in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from inspect import signature
from itertools import combinations

import pytest

from labcore.catalog.choice import Advantage
from labcore.catalog.choices import FAMILIES, KL_PLACEMENTS
from labcore.catalog.kinds import algorithm
from labcore.catalog.knob import Knob
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.llm.probes.one_batch import as_of
from labcore.maths.call import beside, member
from tests.llm.tools import records, session, spec

FAMILY = {family.key: family for family in FAMILIES}
# Knobs of a choice that the step reads, not its function.
OF_THE_STEP = {"informative": {"resample_rounds"}, "reference_once": {"pair_prompts", "group_size"},
               **{key: {"teacher"} for key in ("teacher_log_ratio", "teacher_mean_log_ratio")},
               "optimal_value": {"value_beta", "value_samples"}, "tracked_value": {"tracker_half_life"},
               **{key: {"reward_model"} for key in ("reward_model", "worst_case_ensemble",
                                                    "uncertainty_weighted_ensemble")},
               "process_reward": {"reward_model", "step_reward", "step_separator", "step_tag", "label_tokens"},
               "step_verifier": {"step_reward", "step_separator"}}


def test_an_advantage_with_a_critic_brings_the_knobs_that_its_step_reads():
    own = Advantage("own", "own", "A", critic=True, knobs=(Knob("trust", "Trust", 0.5, "Higher: more. Lower: less."),))
    assert [knob.key for knob in own.brings] == ["trust", "critic_learning_rate", "value_clip", "whiten_advantages",
                                                 "whiten_rewards"]
    assert [knob.key for knob in Advantage("own", "own", "A").brings] == []


# What is refused: knob, its choices, and the rows in which they do not go together with the others.
REFUSED_IN = (
    ("reward_source", "reward_model worst_case_ensemble uncertainty_weighted_ensemble own_function judge "
     "process_reward", "but"),
    ("advantage", "reward_to_go_whitened", "but ppo reinforce_pp"),
    ("advantage", "gae turn_gae", "but ppo"),
    ("advantage", "teacher_log_ratio teacher_mean_log_ratio", "but opd minillm"),
    ("ratio", "none", "but reinforce raft reinforce_average vespo opo gpg gvpo real a_star_po"),
    ("surrogate", "detached_weight", "but cispo dppo dppo_kl"),
    ("surrogate", "tv_mask kl_mask", "but dppo dppo_kl"),
    ("surrogate", "quadratic", "but dro"),
    ("surrogate", "future_kl_clip", "but fipo"),
    ("surrogate", "soft_gate", "but sapo"),
    ("surrogate", "gamma_weight", "but vespo"),
    ("surrogate", "clip_cov", "but clip_cov"),
    ("surrogate", "kl_cov", "but kl_cov"),
    ("surrogate", "centred_regression", "but gvpo a_star_po"),
    ("surrogate", "regression", "but gvpo a_star_po"),
    ("surrogate", "classifier", "but real"),
    ("advantage", "best_of_subsets", "but passk_training"),
    ("advantage", "optimal_value", "but a_star_po"),
    ("advantage", "tracked_value", "but spo"),
    ("surrogate", "clip geometric_clip",
     "reinforce cispo sapo raft reinforce_average vespo opo gpg dppo dppo_kl dro kl_cov a_star_po gvpo real"),
    ("surrogate", "bounded_clip",
     "reinforce cispo sapo raft reinforce_average gmpo vespo opo gpg dppo dppo_kl dro kl_cov a_star_po gvpo real"),
    ("advantage", "parts_standardised", "reinforce rloo ppo dapo remax reinforce_pp reinforce_average"),
    ("advantage", "one", "reinforce_pp_baseline spo gvpo real"),
    ("selection", "best_of_group", "gvpo real"),
    ("shaping", "overlong length_cost clipped clipped_between", "gdpo"),
    ("kl_placement", "reward", "gdpo"),
    ("pairs", "dataset", "dpo online_dpo ipo cdpo robust_dpo slic exo nca bco sppo apo_zero apo_down aot discopop kto "
                         "mpo simpo cpo tpo alphapo orpo reward_model"),
    ("pairs", "reference_once", "online_dpo"),
    ("divergence", "forward_kl jensen_shannon alpha", "nca bco sppo apo_zero apo_down aot kto mpo"),
    ("preference_loss",
     "sigmoid cdpo robust ipo ipo_mean hinge exo_pair nca_pair bco_pair sppo_hard apo_zero apo_down aot "
     "aot_unpaired discopop sigmoid_norm kto apo_zero_unpaired", "simpo cpo tpo alphapo orpo"),
)


def refused() -> Iterator[tuple[str, str, str]]:
    """(row, knob, choice) of `REFUSED_IN`, where "but a b" are all online rows but these."""
    online = [key for key, row in ALGORITHMS.items() if row.loop == "online"]
    for knob, names, rows in REFUSED_IN:
        first, *others = rows.split()
        for row in [key for key in online if key not in others] if first == "but" else rows.split():
            yield from ((row, knob, choice) for choice in names.split())


REFUSED = set(refused())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.key)
def test_a_choice_names_a_function_and_the_knobs_it_asks_for(family):
    rows = [row for row in ALGORITHMS.values() if any(knob.key == family.key for knob in row.knobs)]
    everywhere = set.intersection(*({knob.key for knob in row.knobs} for row in rows))
    known = {knob.key for row in rows for knob in row.knobs}
    for choice in family.members:
        function = member(family, choice.key)
        assert function.__name__ == choice.key and function.__doc__, choice.key
        assert choice.label and choice.latex.count("{") == choice.latex.count("}"), choice.key
        found = [function, beside(family, getattr(choice, "singles_out", ""))]
        asked = {name for each in found if each for name in signature(each).parameters} & known
        assert asked - everywhere <= set(choice.needs) <= asked | OF_THE_STEP.get(choice.key, set()), choice.key


def brought_together(row, knob, choice) -> set[tuple]:
    """Each two choices that stand side by side where `row` has `choice` for `knob`, with the networks it holds."""
    chosen = {each.key: each.default for each in row.knobs if each.key in (*FAMILY, "kl_placement")} | {knob: choice}
    return {(row.loop, row.models, *two) for two in combinations(sorted(chosen.items()), 2)}


ONE_CHANGED = {(row.key, knob.key, choice): brought_together(row, knob.key, choice) for row in ALGORITHMS.values()
               for knob in row.knobs if knob.key in (*FAMILY, "kl_placement") for choice in knob.choices}


def mixes() -> Iterator[tuple[str, str, str]]:
    """The fewest of `ONE_CHANGED` in which any two choices that can be one mix are in one; more would repeat them.

    Each is the one that brings most that is new; what another brings only falls, so it is counted when it leads.
    """
    left = set().union(*(brought for mix, brought in ONE_CHANGED.items() if mix not in REFUSED))
    waiting = [(-len(brought), place, mix) for place, (mix, brought) in enumerate(ONE_CHANGED.items())
               if mix not in REFUSED]
    heapify(waiting)
    while left:
        _, place, mix = heappop(waiting)
        new = len(ONE_CHANGED[mix] & left)
        if new and waiting and new < -waiting[0][0]:
            heappush(waiting, (-new, place, mix))
        elif new:
            left -= ONE_CHANGED[mix]
            yield mix


def by_row(mixes: Iterable[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """(knob, choice) of each row."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row, knob, choice in mixes:
        found.setdefault(row, []).append((knob, choice))
    return found


MIXES, REFUSED_BY = by_row(mixes()), by_row(sorted(REFUSED))


@pytest.mark.parametrize("row", MIXES)
def test_a_mix_of_ones_own_runs(row):
    base = session(row)  # whose networks the mixes share, as its forks
    for knob, choice in MIXES[row]:
        online = ALGORITHMS[row].loop == "online"
        given = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 4} if online else {}
        if choice == "not_truncated":
            # Random weights seldom end within four tokens, and seldom is the best of a group one that did.
            given |= {"prompts_per_step": 32, "group_size": 3, "max_new_tokens": 40}
        if choice == "mean_scaled":
            given = {"prompts_per_step": 16, "group_size": 4, "max_new_tokens": 12}  # a mean below 0 has no advantage
        if choice == "order_only":
            given = {"prompts_per_step": 16, "group_size": 4, "max_new_tokens": 2}  # and seldom write six in order
        try:
            started = as_of(base, spec(row, steps=1, **given, **{knob: choice}))
            started.task = base.task
            (record,) = records(started)
        except LabError as error:
            pytest.fail(f"{knob} = {choice}: {error}")
        assert math.isfinite(record.metrics["loss"]) and record.metrics["grad_norm"] > 0, (knob, choice)


@pytest.mark.parametrize("row", REFUSED_BY)
def test_or_is_refused_in_words(row):
    for knob, choice in REFUSED_BY[row]:
        with pytest.raises(LabError) as refusal:
            session(row, steps=1, **{knob: choice})
        said = str(refusal.value)
        assert knob in said or FAMILY[knob].label in said or "surrogate" in said, (knob, choice, said)
        assert choice != algorithm(row).knob(knob).default


def test_placements_of_the_kl():
    assert set(KL_PLACEMENTS) == {"reward", "loss", "off"}
