"""No knob is dropped in silence: in every tool it has a setting, is done by itself, or is said to be missing."""

from dataclasses import replace
from itertools import product

import pytest

from labcore.catalog import choices
from labcore.catalog.choice import Advantage, Normalisation, Pairs, Surrogate
from labcore.catalog.knob import Knob
from labcore.errors import LabError
from labcore.exports.handover import openrlhf, rules, trl
from labcore.exports.handover.plan import Plan, plan_of
from labcore.exports.handover.rules import UNKNOWN
from labcore.exports.handover.tools import TOOLS, tool
from labcore.runs.spec.run_spec import knobs_of, make
from labcore.workers.worker import drive
from tests.every import every
from tests.exports.handover.conftest import plan
from tests.runs import fake


@pytest.mark.parametrize("key", list(TOOLS))
def test_every_knob_of_the_catalog_is_known_to_every_tool_and_contends_with_no_other(key, plans):
    """The one exception: the advantage and its normalisation share TRL's `scale_rewards`."""
    for each in plans:
        found = TOOLS[key].mapped(each)
        assert [line.knob for line in found] == [
            knob.key for knob in knobs_of(each.spec.row, each.spec.task_row)], each.run
        assert not [line.knob for line in found if line.note == UNKNOWN.note], f"{each.run}: write a rule for the knob"
        assert not [line.knob for line in found if line.unsupported and not line.note], f"{each.run}: what instead?"
        contend = [line.note for line in found if "the script sets" in line.note]
        assert [note for note in contend if "scale_rewards for normalisation" not in note] == [], each.run
        script = TOOLS[key].script(each)
        comments = " ".join(" ".join(part[1:] for part in script.splitlines() if part.startswith("#")).split())
        for line in found:
            if line.unsupported:
                assert f"{line.knob}={line.value!r}" in comments, each.run
                assert line.note.split(":")[-1].strip() in comments, (each.run, line.knob)
            elif line.built_in:
                assert f"{line.knob}=" in comments, each.run


@pytest.mark.parametrize("key", list(TOOLS))
def test_a_mix_is_handed_over_by_what_it_chose(key):
    each = plan("grpo", mix="mine", knobs={"surrogate": "detached_weight", "aggregation": "token_mean"})
    found = {line.knob: line for line in TOOLS[key].mapped(each)}
    assert "ratio_cap" in found and not {"clip_high", "gate_positive", "gamma", "critic_learning_rate"} & set(found)
    assert not [line.knob for line in found.values() if line.note == UNKNOWN.note]
    assert 'mine on "sort"' in TOOLS[key].script(each)
    if key == "trl":
        assert trl.settings(each)["loss_type"] == "cispo" and trl.settings(each)["epsilon_high"] == 5.0


PREFERENCES = (choices.PREFERENCE_LOSS, choices.DIVERGENCE, choices.PAIRS)
ONLINE_FAMILIES = [family for family in choices.FAMILIES if family not in (
    *PREFERENCES, choices.SFT_LOSS, choices.STEP_LABELS)]
# (tool, choice) -> the members that the tool has nothing like, which are said to have no equivalent on purpose.
WITHOUT = {("trl", "advantage"): {"gae"}, ("trl", "ratio"): {"none"}, ("ms-swift", "advantage"): {"gae"},
           ("ms-swift", "kl_estimator"): {"k1", "k2", "ratio_k3"}}


@every("key, family", [*product(TOOLS, ONLINE_FAMILIES)])
def test_every_choice_says_what_becomes_of_it(key, family):
    """Mixing an algorithm of one's own: only the choices listed above have no equivalent."""
    without = set()
    for member in family.members:
        base = plan("sdft" if family is choices.TEACHER_CONTEXT else
                    "ppo" if getattr(member, "critic", False) else "grpo")
        mixed = Plan(base.run, replace(base.spec, knobs={**base.spec.knobs, family.key: member.key}))
        [line] = [line for line in TOOLS[key].mapped(mixed) if line.knob == family.key]
        if line.note.startswith("no equivalent: "):
            without.add(member.key)
        assert line.settings or line.built_in or len(line.note) > 20, (member.key, line)
        TOOLS[key].script(mixed)
    assert without >= WITHOUT.get((key, family.key), set())  # a new member need not say what it becomes in each tool


@pytest.mark.parametrize("key", list(TOOLS))
@pytest.mark.parametrize("knob", ["preference_loss", "second_loss", "divergence", "pair_weighting", "ld_alpha"])
def test_every_choice_of_a_preference_run_is_set_or_said_to_be_missing(key, knob):
    """But KTO, SimPO and ORPO, none of which TRL's DPOTrainer can add."""
    own = plan("dpo").spec.row.knob(knob)
    for value in own.choices or {"pair_weighting": (True,), "ld_alpha": (0.5,)}[knob]:
        base = plan("dpo")
        mixed = Plan(base.run, replace(base.spec, knobs={**base.spec.knobs, knob: value}))
        [line] = [line for line in TOOLS[key].mapped(mixed) if line.knob == knob]
        assert line.settings or line.built_in or len(line.note) > 20, (value, line)
        TOOLS[key].script(mixed)


@pytest.mark.parametrize("key", list(TOOLS))
@pytest.mark.parametrize("placement", choices.KL_PLACEMENTS)
def test_every_placement_of_the_kl(key, placement):
    each = plan("grpo", knobs={"kl_placement": placement, "beta": 0.07})
    found = {line.knob: line for line in TOOLS[key].mapped(each)}
    values = list(found["beta"].settings.values())
    assert values in ([0.07], [0.0], [False]) and (values == [0.07]) == (placement != "off")


@pytest.mark.parametrize("key, begun, knobs, losing, winning", [
    ("verl", "grpo", {"ratio": "sequence_mean", "surrogate": "soft_gate"}, "ratio", "surrogate"),
    ("trl", "grpo", {"advantage": "group_standardised", "normalisation": "tokens"}, "advantage", "normalisation"),
    ("trl", "dpo", {"preference_loss": "robust", "second_loss": "exo_pair"}, "label_smoothing", "exo_epsilon")])
def test_of_two_knobs_with_one_setting_the_losing_one_says_so(key, begun, knobs, losing, winning):
    each = plan(begun, mix="mine", knobs=knobs)
    lines = {line.knob: line for line in TOOLS[key].mapped(each)}
    setting, = lines[losing].settings.keys() & lines[winning].settings.keys()
    assert f"the script sets {setting} for {winning} instead" in lines[losing].note
    comments = " ".join(part.lstrip("# ") for part in TOOLS[key].script(each).splitlines() if part.startswith("#"))
    assert f"for {winning} instead" in comments


def chosen(monkeypatch, begun, family, member, **knobs) -> Plan:
    """The plan of a run with a member that the lab does not have."""
    monkeypatch.setitem(vars(family), "members", (*family.members, member))
    base = plan(begun)
    return Plan(base.run, replace(base.spec, knobs={**base.spec.knobs, family.key: member.key, **knobs}))


@pytest.mark.parametrize("key", list(TOOLS))
def test_no_tool_is_said_to_do_what_a_choice_does_not_declare(key, monkeypatch):
    baseline = Advantage("mine", "mine", "R", knobs=(Knob("window", "Window", 4, "Higher: a. Lower: b."),))
    advantage = chosen(monkeypatch, "grpo", choices.ADVANTAGE, baseline, window=4)
    line = rules._of_choice(advantage, "window", 4, key)
    assert line.unsupported and "no equivalent" in line.note
    pairs = chosen(monkeypatch, "dpo", choices.PAIRS, Pairs("mine", "mine", "D"))
    line, = [line for line in TOOLS[key].mapped(pairs) if line.knob == "pairs"]
    assert line.unsupported and line.note


@pytest.mark.parametrize("key", ["verl", "openrlhf"])
def test_a_normalisation_that_declares_nothing_changes_no_estimator(key, monkeypatch):
    usual = {line.knob: line for line in TOOLS[key].mapped(plan("grpo"))}
    mine = chosen(monkeypatch, "grpo", choices.NORMALISATION, Normalisation("mine", "mine", "A"))
    found = {line.knob: line for line in TOOLS[key].mapped(mine)}
    assert found["normalisation"].unsupported and "no equivalent" in found["normalisation"].note
    assert found["advantage"] == usual["advantage"]


def test_a_surrogate_may_have_one_bound_only(monkeypatch):
    one = chosen(monkeypatch, "grpo", choices.SURROGATE, Surrogate("mine", "mine", "S", needs_ratio=True))
    knobs = {key: value for key, value in one.spec.knobs.items() if key != "clip_high"}
    found = openrlhf.RULES["online"]["clip_low"](Plan(one.run, replace(one.spec, knobs=knobs)), 0.1)
    assert found.settings == {"--actor.eps_clip_low_high": (0.1, 0.1)}


def test_a_knob_that_no_rule_knows_is_said_to_be_unknown():
    each = plan("grpo")
    own = each.spec.task_row.knobs[0]
    [line] = [line for line in rules.lines(each, {}, "verl") if line.knob == own.key]
    assert line.unsupported and "nothing is known" in line.note


def test_values_are_those_at_the_end_of_the_run(tmp_path, store):
    run_id = store.create(fake.grpo(10))
    store.ask(run_id, "set", {"knob": "beta", "value": 0.3})
    drive(store, run_id, start=fake.start)
    found = plan_of(store, run_id)
    assert (found["beta"], store.run(run_id).spec.knobs["beta"]) == (0.3, 0.04)
    assert "beta=0.3," in tool("trl").script(found)


def test_what_cannot_be_taken_further_is_told(store):
    run_id = store.create(make(kind="maze", algorithm_key="q_learning", task_key="corridors"))
    with pytest.raises(LabError, match="not a run of a language model"):
        plan_of(store, run_id)
    with pytest.raises(LabError, match="did you mean 'verl'"):
        tool("verle")


def test_a_fork_has_the_steps_that_it_makes_itself():
    base = plan("grpo", steps=150)
    assert Plan("x", replace(base.spec, parent=("y", 100))).steps == 50
    assert (base.rows, base.episodes) == (150 * 32, 1)
    large = plan("grpo", steps=10_000)
    assert large.rows == 3125 * 32 and large.episodes == 4 and large.rows * large.episodes >= 10_000 * 32


def test_texts_of_the_user_stay_within_quotes_and_comments(files):
    """A pattern may hold anything: no tool's script may take it for code."""
    nasty = "'\"; touch hacked\nPYTHON\n$(touch hacked) ''' \\ #"
    each = plan("grpo", "prompts", files, knobs={"verifier": "contains", "pattern": nasty})
    for key in TOOLS:
        script = TOOLS[key].script(each)
        assert "\nPYTHON\n$(" not in script and "\n$(touch" not in script
        assert f"PATTERN = {nasty!r}" in script


LORA = {"trl": "peft_config=LoraConfig(r=8, lora_alpha=16)", "verl": "lora_rank=8", "openrlhf": "--ds.lora.rank 8",
        "ms-swift": "--lora_rank 8"}


@pytest.mark.parametrize("key", list(TOOLS))
@pytest.mark.parametrize("algorithm", ["grpo", "sft"])
def test_lora_is_taken_along_on_the_merged_model(key, algorithm):
    adapted = plan(algorithm, model="some/model", knobs={"lora_rank": 8})
    script = TOOLS[key].script(adapted)
    assert LORA[key] in script and '"merged" is the folder' in script
    plain = TOOLS[key].script(plan(algorithm, model="some/model"))
    assert "lora" not in plain.replace("lora_rank=0", "").replace("lora_alpha=16", "").lower()
