"""Every member of every family says what the lab needs of it: its arithmetic is that of its function, and what it
leaves out is said in words, wherever a run with it is shown."""

import math
import random
from dataclasses import fields, replace

import pytest
import torch

from app.llm.microscope import credit, words
from app.llm.microscope.lines import Line, plain
from app.surrogate.place import KNOBS, Place
from app.training import terms
from labcore.catalog import choices, inactive
from labcore.catalog.metrics import METRICS
from labcore.catalog.mix import row as mixed
from labcore.catalog.panels import PANELS
from labcore.exports.handover.plan import Plan
from labcore.exports.handover.tools import TOOLS
from labcore.maths.call import call, cut_of, member, parameters
from tests.every import every
from tests.exports.handover.conftest import plan

EVERY = [(family, choice) for family in choices.FAMILIES for choice in family]
NOT_MIXED = (choices.SFT_LOSS, choices.STEP_LABELS)  # choices of loops that have no mixes
TIMES = 30


def filled(family, choice) -> dict:
    """All knobs of a mix with this choice, and what it does not go without."""
    base = "dpo" if family in (choices.PREFERENCE_LOSS, choices.DIVERGENCE, choices.PAIRS) else "ppo"
    scored = {"reward_source": "step_verifier"} if family is choices.STEP_REWARD else {}
    return {knob.key: knob.default for knob in mixed.with_every_knob(base).knobs} | scored | {family.key: choice.key}


def tokens(luck: random.Random) -> dict[str, list[float]]:
    """The numbers of a completion."""
    count = luck.randint(1, 5)
    new, old, ref = ([-3 * luck.random() for _ in range(count)] for _ in range(3))
    return {"logprobs": new, "old_logprobs": old, "ref_logprobs": ref, "tokens": ["a"] * count}


def of_torch(family, choice, knobs, **given) -> torch.Tensor:
    """What the choice's function gives of one completion."""
    tensors = {name: torch.tensor([values], dtype=torch.float64) for name, values in given.items()}
    count = tensors["logprobs"].shape[1] if "logprobs" in tensors else 1
    tensors |= {"completion_mask": torch.ones(1, count, dtype=torch.bool)}
    return call(member(family, choice.key), knobs, tensors)


DECLARED = [(family, choice) for family, choice in EVERY if choice.worked and family in (
    choices.RATIO, choices.SURROGATE, choices.KL_ESTIMATOR, choices.SFT_LOSS)]


@every("family, choice", DECLARED)
def test_the_arithmetic_in_words_is_the_function(family, choice):
    """For numbers drawn at random, of either sign and on either side of a bound."""
    luck = random.Random(1)
    for _ in range(TIMES):
        one, knobs, advantage = tokens(luck), filled(family, choice), luck.choice((-1, 1)) * luck.random()
        ratio = [2 * luck.random() + 0.01 for _ in one["logprobs"]]
        given = {name: values for name, values in one.items() if name != "tokens"} | {
            "ratio": ratio, "advantages": [advantage] * len(ratio)}
        expected = of_torch(family, choice, knobs, **given).flatten().tolist()
        apart = sum(new - old for new, old in zip(one["logprobs"], one["old_logprobs"], strict=True))
        for place, value in enumerate(expected):
            of = words.numbers(knobs, **{name: values[place] for name, values in given.items()}, cut=0.0, apart=apart,
                               length=len(ratio), advantage=advantage)
            assert words.number(choice, of) == pytest.approx(value, rel=1e-6, abs=1e-9)
            shown = words.lines(choice, of, value, Line("it"))[-1]
            assert shown.worked and "{" not in "".join((shown.formula, shown.worked, shown.note))


OF_BATCH = ("batch_standardised", "beta_normalised", "group_mean_active")  # divided by a number of the whole batch
GROUPED = [choice for choice in choices.ADVANTAGE
           if choice.worked and choice.key not in OF_BATCH and choice.level == "sequence"]


@every("choice", GROUPED)
def test_the_arithmetic_of_an_advantage_is_its_function(choice):
    luck = random.Random(2)
    for _ in range(TIMES):
        rewards = [round(luck.random(), 3) for _ in range(luck.randint(2, 5))]
        given = {"rewards": rewards, "greedy_rewards": [0.3], "opponent_rewards": [0.35], "past_rewards": [0.4],
                 "prompt_values": [0.2], "lengths": [2.0] * len(rewards)}
        found = of_torch(choices.ADVANTAGE, choice, {}, **given).flatten().tolist()
        group = {"completions": [{"reward": reward, "advantages": [value]}
                                 for reward, value in zip(rewards, found, strict=True)]}
        for completion in group["completions"]:
            line, = credit.lines(group, completion, 0, {"advantage": choice.key})
            assert line.worked or line.formula == "1", (rewards, line)


@pytest.mark.parametrize("opponent", [0.0, 1.0])
def test_the_opponent_s_reward_has_no_digits_of_rounding(opponent):
    """The opponent's reward is computed from advantages that samples keep with few digits."""
    won = round(1 / (1 + math.exp(opponent - 1.0)) - 0.5, 6)
    completion = {"reward": 1.0, "advantages": [won]}
    line, = credit.lines({"completions": [completion]}, completion, 0, {"advantage": "win_probability"})
    assert f"exp({plain(opponent)} − 1.0000)" in line.worked, line


@every("choice, advantage", [(choice, advantage) for choice in choices.ADVANTAGE if choice.level == "sequence"
                             for advantage in (-40.0, -0.5, 0.5, 3.0)])
def test_no_advantage_breaks_its_arithmetic(choice, advantage):
    """A sure win has ½, and normalised ones may have any size."""
    group = {"completions": [{"reward": reward, "advantages": [advantage]} for reward in (0.0, 1000.0)]}
    for completion in group["completions"]:
        *_, line = credit.lines(group, completion, 0, {"advantage": choice.key, "normalisation": "sequences"})
        assert line.result


@every("choice", [choice for choice in choices.ADVANTAGE if choice.teacher])
def test_the_arithmetic_of_a_teacher_s_grade_is_its_function(choice):
    """Without a discount a token's grade is its own log-ratio; with one it is also that of later tokens."""
    theirs, own = [-0.5, -2.0], [-1.25, -0.25]
    knobs = {"teacher_discount": 0.0, "single_step": False}
    found = of_torch(choices.ADVANTAGE, choice, knobs, teacher_logprobs=theirs, old_logprobs=own,
                     logprobs=own).flatten().tolist()
    assert found == pytest.approx([0.75, -1.75])
    for place, value in enumerate(found):
        of = words.numbers(knobs, advantage=value, teacher_logprobs=theirs[place],
                           old_logprobs=own[place])
        line, = words.lines(choice, of, value, Line("it"))
        assert float(line.result.replace("−", "-")) == pytest.approx(value) and "−" in line.worked


@every("choice", [choice for choice in choices.ADVANTAGE if choice.group and not choice.by_part
                  and choice.level == "sequence"])
def test_the_baseline_of_a_group_is_known_unless_it_is_its_best(choice):
    group = {"completions": [{"reward": reward, "advantage": 0.25, "advantages": [0.25]} for reward in (1.0, 0.5)]}
    found = credit.baseline(group, group["completions"][0], {"advantage": choice.key})
    assert (found is None) == (choice.key in ("best_over_rest", "best_of_subsets"))


@every("loss", [loss for loss in choices.PREFERENCE_LOSS if loss.worked])
def test_the_arithmetic_of_a_preference_loss_is_its_function(loss):
    luck = random.Random(3)
    for _ in range(TIMES):
        knobs, chosen, rejected = filled(choices.PREFERENCE_LOSS, loss), luck.gauss(0, 3), luck.gauss(0, 3)
        expected = call(member(choices.PREFERENCE_LOSS, loss.key), knobs, {
            "log_ratio_chosen": torch.tensor([chosen], dtype=torch.float64),
            "log_ratio_rejected": torch.tensor([rejected], dtype=torch.float64)})
        of = words.numbers(knobs, margin=knobs["beta"] * (chosen - rejected))
        assert words.number(loss, of) == pytest.approx(float(expected))


@every("family, choice", [each for each in EVERY if each[0] not in NOT_MIXED])
def test_a_mix_with_it_is_shown_and_explained(family, choice):
    values = filled(family, choice)
    base = "ppo" if "surrogate" in values else "dpo"
    row = mixed.row(base, "mine", values)
    assert {knob.key for knob in choice.brings} <= {knob.key for knob in row.knobs}
    assert set(row.panels) <= PANELS.keys() and row.latex.count("{") == row.latex.count("}")
    assert {term.key for term in terms.of(row)} and terms.coloured(row)
    assert {key for key in values if inactive.reason(key, values)} <= values.keys()
    for knob in choice.knobs:
        if knob.symbol and knob.effect == "live":
            assert knob.symbol in row.latex, knob.key


@every("family, choice", EVERY)
def test_every_tool_says_what_becomes_of_it_and_of_its_knobs(family, choice):
    values, mix = filled(family, choice), "mine"
    base = plan("dpo" if "preference_loss" in values else "ppo")
    if family in NOT_MIXED:
        base, mix = plan("prm" if family is choices.STEP_LABELS else "gkd" if choice.teacher else "dft"), ""
        values = {family.key: choice.key}
    elif family is choices.TEACHER_CONTEXT:
        base, mix, values = plan("sdft"), "", {family.key: choice.key}
    mine = Plan(base.run, replace(base.spec, knobs={**base.spec.knobs, **values}, mix=mix))
    for tool in TOOLS.values():
        lines = {line.knob: line for line in tool.mapped(mine)}
        active = {knob.key for knob in choice.knobs if not mix or not
                  mixed.idle(mine.spec.algorithm, knob.key, mine.spec.knobs)}
        assert {family.key, *active} <= lines.keys()
        assert not [line for line in lines.values() if line.unsupported and len(line.note) < 10]


@every("family, choice", EVERY)
def test_the_microscope_has_a_number_where_there_is_no_arithmetic(family, choice):
    found = words.lines(replace(choice, worked=None), words.numbers({}), 0.25, Line("it"))
    assert [(line.result, line.worked, line.note) for line in found] == [("0.2500", "", choice.label)]


@every("surrogate", choices.SURROGATE.members)
def test_a_surrogate_of_a_ratio_logs_a_metric_that_a_chart_draws(surrogate):
    for metric in surrogate.logs:
        assert METRICS[f"surrogate/{surrogate.key}"] == metric and metric.label and metric.help
        assert metric.key in PANELS[f"surrogate_{surrogate.key}"].metrics


def test_no_knob_of_the_explorer_has_the_name_of_something_else_in_its_link():
    assert not Place.__annotations__.keys() & KNOBS.keys()
    assert KNOBS.keys() < {each.name for each in fields(Place)}


@every("surrogate", choices.SURROGATE.members)
def test_a_surrogate_says_whether_it_takes_a_ratio_and_cuts_on_declared_sides(surrogate):
    names, _ = parameters(member(choices.SURROGATE, surrogate.key))
    assert surrogate.needs_ratio == ("ratio" in names)
    if cut := cut_of(choices.SURROGATE, surrogate.key):
        knobs = filled(choices.SURROGATE, surrogate)
        sides = call(cut, knobs, dict.fromkeys(("ratio", "advantages", "old_logprobs", "singled_out"),
                                               torch.ones(1, 1)))
        assert {f"clip_frac/{side}" for side in sides} <= METRICS.keys()
