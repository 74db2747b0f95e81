"""The families of choices: each names a function, and a mix of one's own runs or is refused in words."""

import math
from collections.abc import Callable, Iterable, Iterator
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
from tests.every import every
from tests.llm.tools import records, session, spec

FAMILY = {family.key: family for family in FAMILIES}
# Knobs of a choice that the step reads, not its function.
OF_THE_STEP = {"informative": {"resample_rounds"}, "reference_once": {"pair_prompts", "group_size"},
               **{key: {"teacher", "teacher_context", "context_template", "feedback_template"}
                  for key in ("teacher_log_ratio", "teacher_mean_log_ratio")},
               "optimal_value": {"value_beta", "value_samples"}, "tracked_value": {"tracker_half_life"},
               "win_probability": {"mixture_share"},
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
    ("advantage", "teacher_log_ratio teacher_mean_log_ratio", "but opd minillm sdft sdpo"),
    ("ratio", "none", "but reinforce raft reinforce_average vespo opo gpg gvpo real a_star_po nash_md sdft sdpo"),
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
    ("advantage", "win_probability", "but nash_md"),
    ("surrogate", "clip geometric_clip",
     "reinforce cispo sapo raft reinforce_average vespo opo gpg dppo dppo_kl dro kl_cov a_star_po gvpo real "
     "nash_md sdft sdpo"),
    ("surrogate", "bounded_clip",
     "reinforce cispo sapo raft reinforce_average gmpo vespo opo gpg dppo dppo_kl dro kl_cov a_star_po gvpo real "
     "nash_md sdft sdpo"),
    ("advantage", "parts_standardised", "reinforce rloo ppo dapo remax reinforce_pp reinforce_average"),
    ("advantage", "one", "reinforce_pp_baseline spo gvpo real"),
    ("selection", "best_of_group", "gvpo real"),
    ("shaping", "overlong length_cost clipped clipped_between", "gdpo"),
    ("kl_placement", "reward", "gdpo"),
    ("pairs", "dataset", "dpo online_dpo ipo cdpo robust_dpo slic exo nca bco sppo apo_zero apo_down aot discopop kto "
                         "mpo simpo cpo tpo alphapo orpo reward_model xpo"),
    ("pairs", "reference_once", "online_dpo xpo"),
    ("pairs", "policy_each_step", "xpo"),
    ("pairs", "policy_and_reference", "simpo cpo tpo alphapo orpo reward_model"),
    ("preference_loss", "exploration", "dpo online_dpo ipo cdpo robust_dpo slic exo nca bco sppo apo_zero apo_down aot "
                                       "discopop kto mpo simpo cpo tpo alphapo orpo"),
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


CHOSEN = (*FAMILY, "kl_placement")
Mix = tuple[str, str, str]  # a row, one of its knobs, a choice for that


def brought_together(mix: Mix) -> set[tuple]:
    """Each two choices that stand side by side in a mix, with the networks that it holds; and the choice itself."""
    row = ALGORITHMS[mix[0]]
    chosen = {each.key: each.default for each in row.knobs if each.key in CHOSEN} | dict([mix[1:]])
    return {(row.loop, row.models, *two) for two in combinations(sorted(chosen.items()), 2)} | own_choice(mix)


def own_choice(mix: Mix) -> set[tuple]:
    """The changed choice in its loop, unless the row has no other choice."""
    row = ALGORITHMS[mix[0]]
    return {(row.loop, *mix[1:])} if sum(each.key in CHOSEN for each in row.knobs) > 1 else set()


def mixes(of: Callable[[Mix], set[tuple]]) -> Iterator[Mix]:
    """The fewest mixes with one choice changed that together have all that `of` finds in any mix.

    Each next mix is the one that adds most. What a mix adds can only fall, so it is counted anew when the mix leads.
    """
    changed = {mix: of(mix) for row in ALGORITHMS.values() for knob in row.knobs
               if knob.key in CHOSEN for choice in knob.choices if (mix := (row.key, knob.key, choice)) not in REFUSED}
    left = set().union(*changed.values())
    waiting = [(-len(brought), place, mix) for place, (mix, brought) in enumerate(changed.items())]
    heapify(waiting)
    while left:
        _, place, mix = heappop(waiting)
        new = len(changed[mix] & left)
        if new and waiting and new < -waiting[0][0]:
            heappush(waiting, (-new, place, mix))
        elif new:
            left -= changed[mix]
            yield mix


def by_row(mixes: Iterable[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """(knob, choice) of each row."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row, knob, choice in mixes:
        found.setdefault(row, []).append((knob, choice))
    return found


REFUSED_BY = by_row(sorted(REFUSED))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("of", [own_choice, pytest.param(brought_together, marks=pytest.mark.long)],
                         ids=["each choice", "two choices"])
def test_a_mix_of_ones_own_runs(of):
    for row, changes in by_row(mixes(of)).items():
        they_run(row, changes)


def they_run(row: str, changes: list[tuple[str, str]]) -> None:
    base = session(row)  # whose networks the mixes share, as its forks; none moves them
    for knob, choice in changes:
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
            started = as_of(base, spec(row, steps=1, learning_rate=0.0, **given, **{knob: choice}))
            started.task = base.task
            (record,) = records(started)
        except LabError as error:
            pytest.fail(f"{row}, {knob} = {choice}: {error}")
        unseen = started.knobs.get("teacher_context") == "success"  # random weights have none to show a teacher
        moves = record.metrics["grad_norm"] > 0 or unseen
        assert math.isfinite(record.metrics["loss"]) and moves, (row, knob, choice)


@every("row", REFUSED_BY)
def test_or_is_refused_in_words(row):
    for knob, choice in REFUSED_BY[row]:
        with pytest.raises(LabError) as refusal:
            session(row, steps=1, **{knob: choice})
        said = str(refusal.value)
        names = (knob, f"`{choice}`", "surrogate", *([FAMILY[knob].label] if knob in FAMILY else []))
        assert any(name in said for name in names), (knob, choice, said)
        assert choice != algorithm(row).knob(knob).default


def test_placements_of_the_kl():
    assert set(KL_PLACEMENTS) == {"reward", "loss", "off"}
