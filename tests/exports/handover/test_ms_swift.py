"""The script for ms-swift: its arguments as that version publishes them, its rows, and what it registers in swift.

`tests/golden/ms_swift_arguments.json` has the fields of RLHFArguments and SftArguments. Their own parser is asked in
`test_tools_own_parsers.py`.
"""

import argparse
import json
import runpy
import sys
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from labcore.exports.handover import ms_swift, trl
from labcore.exports.handover.ms_swift_rules import RULES
from labcore.exports.handover.plan import Plan
from tests.exports.handover.conftest import ENGINE, plan, switched
from tests.exports.handover.test_plan_settings import mixed
from tests.exports.handover.test_shell import started
from tests.references import golden

ARGUMENTS = golden("ms_swift_arguments")
BOOL = {"true": True, "false": False}


@cache
def parser(command: str) -> argparse.ArgumentParser:
    """ms-swift's own arguments."""
    found = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    types: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": BOOL.__getitem__}
    for name, told in ARGUMENTS["commands"][command].items():
        found.add_argument(f"--{name}", type=types[told["type"]], **{
            key: told[key] for key in ("nargs", "choices") if key in told})
    return found


def parsed(words: list[str]) -> dict[str, Any]:
    """The arguments of what a script starts, which are all known to that version."""
    assert words[0] == "swift"
    return {key: value for key, value in vars(parser(words[1]).parse_args(words[2:])).items() if value is not None}


def lines(each: Plan) -> dict[str, Any]:
    return {line.knob: line for line in ms_swift.mapped(each)}


def test_every_argument_exists_in_that_version_and_takes_its_value(plans):
    assert ARGUMENTS["version"] == ms_swift.VERSION
    for each in filter(ms_swift.kind, plans):
        settings = ms_swift.settings(each)
        known = parser("sft" if ms_swift.kind(each) == "sft" else "rlhf")
        words = [word.strip("'\"") for key, value in settings.items() for word in ms_swift.words(key, value).split()
                 if "$" not in str(value)]
        assert set(vars(known.parse_args(words))) >= set(settings), each.run


def test_the_golden_parser_refuses_what_that_version_has_not():
    with pytest.raises(argparse.ArgumentError, match="invalid choice"):
        parser("rlhf").parse_args(["--rlhf_type", "reinforce"])
    assert "rlhf_type" not in ARGUMENTS["commands"]["sft"]


@pytest.mark.parametrize("algorithm, task, kind, row", [
    ("grpo", "prompts", "grpo", {"messages": [{"role": "user", "content": "1+2="}], "solution": "3"}),
    ("dpo", "preferences", "dpo", {"messages": [{"role": "user", "content": "ab="}, {
        "role": "assistant", "content": "ab"}], "rejected_response": "ba"}),
    ("kto", "preferences", "kto", {"messages": [{"role": "user", "content": "ab="}, {
        "role": "assistant", "content": "ba"}], "label": False}),
    ("reward_model", "preferences", "rm", {"messages": [{"role": "user", "content": "ab="}, {
        "role": "assistant", "content": "ab"}], "rejected_response": "ba", "margin": 0.5})])
def test_swift_is_started_with_the_runs_values_on_rows_that_it_knows(algorithm, task, kind, row, files, tmp_path):
    knobs = {"margin": 0.5} if kind == "rm" else {"beta": 0.07}
    each = plan(algorithm, task, files, steps=3, seed=3, knobs=knobs)
    found = parsed(started(ms_swift.script(each), tmp_path, "some/model"))
    assert found | {"rlhf_type": kind, "model": "some/model", "seed": 3, "learning_rate": each["learning_rate"],
                    "fp16": False, "gradient_accumulation_steps": 1, "max_steps": 3 * each.passes * each.parts} == found
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert row in rows and len(rows) == each.rows * (2 if kind == "kto" else 1)
    assert kind == "rm" or found["beta"] == 0.07
    if kind == "grpo":
        updates = each.batch * each["group_size"] // each.parts
        assert found | {"per_device_train_batch_size": updates // 2, "num_generations": each["group_size"],
                        "kl_in_reward": False, "loss_type": ["grpo"]} == found, "two GPUs share an update's rows"


def test_sft_is_a_command_of_its_own_and_pairs_are_sampled_by_the_script(files, tmp_path, checkpoint):
    assert ms_swift.script(plan("sft", "add")).count("swift sft") == 1
    script = ms_swift.script(plan("simpo", steps=2, knobs={"pair_prompts": 2, "letters": 2, "second_loss": "none"}))
    script = script.replace("float(completion == answer)", 'float(completion < "m")')
    found = parsed(started(script, tmp_path, str(checkpoint), here=True))
    assert (found["rlhf_type"], found["loss_type"], found["cpo_alpha"]) == ("cpo", ["simpo"], 0.0)
    row = json.loads((tmp_path / "train.jsonl").read_text().splitlines()[0])
    assert row["messages"][1]["content"] < "m" <= row["rejected_response"]


def test_swift_is_given_the_texts_as_they_are_and_the_score(tmp_path, monkeypatch):
    registered: dict[str, Any] = {}
    monkeypatch.setattr(sys, "modules", sys.modules | {name: _module(name, registered) for name in (
        "swift", "swift.model", "swift.template", "swift.rewards")})
    script = ms_swift.script(plan("grpo"))
    (tmp_path / "task.py").write_text(script.split("<<'PYTHON'\n")[1].split("\nPYTHON")[0])
    runpy.run_path(str(tmp_path / "task.py"), run_name="_swift_external")
    template, model = registered["template"], registered["model"]
    assert template == ("as_written", [], ["{{QUERY}}"], None, {"auto_add_bos": True})
    assert model == (ms_swift.settings(plan("grpo"))["model_type"], [], "ModelLoader", {"template": "as_written"})
    assert registered["orms"]["score"]()(["abc", "cab"], solution=["abc", "abc"], step=1) == [1.0, 0.0]


def _module(name: str, registered: dict[str, Any]) -> ModuleType:
    """A part of swift, as far as the script names it."""
    module = ModuleType(name)
    orms: dict[str, Any] = registered.setdefault("orms", {})
    vars(module).update(
        ModelLoader="ModelLoader", ORM=object, orms=orms, ModelMeta=lambda *said, **named: (*said, named),
        TemplateMeta=lambda *said, **named: (*said, named), register_model=lambda meta: registered.update(model=meta),
        register_template=lambda meta: registered.update(template=meta))
    return module


@pytest.mark.parametrize("knobs, wanted", [
    ({"ratio": "sequence_mean_token"}, {"importance_sampling_level": "sequence_token"}),
    ({"surrogate": "soft_gate", "gate_positive": 1.5}, {"loss_type": "sapo", "tau_pos": 1.5}),
    ({"surrogate": "detached_weight", "ratio_cap": 5.0}, {"loss_type": "cispo", "epsilon_high": 5.0}),
    ({"advantage": "leave_one_out", "kl_placement": "reward", "kl_estimator": "k1"},
     {"advantage_estimator": "rloo", "scale_rewards": "none", "kl_in_reward": True}),
    ({"advantage": "group_mean", "normalisation": "sequences"},
     {"advantage_estimator": "reinforce_plus_plus", "scale_rewards": "batch"}),
    ({"selection": "informative", "resample_rounds": 3}, {"dynamic_sample": True, "max_resample_times": 3}),
    ({"shaping": "overlong", "overlong_buffer": 2, "overlong_penalty": 0.5},
     {"reward_funcs": ("score", "soft_overlong"), "soft_cache_length": 2, "reward_weights": (1.0, 0.5)}),
    ({"overlong_filter": True, "top_entropy_share": 0.2}, {"overlong_filter": True, "top_entropy_quantile": 0.2})])
def test_what_ms_swift_has_is_set_under_its_name(knobs, wanted):
    assert ms_swift.settings(plan("grpo", mix="mine", knobs=knobs)).items() >= wanted.items()


def test_what_ms_swift_has_not_is_said():
    found = lines(mixed(entropy_coef=0.01, recompute_logprobs=True, kl_estimator="k2", surrogate="geometric_clip",
                        off_policy_threshold=0.1))
    for knob, words in (("entropy_coef", "no entropy bonus"), ("recompute_logprobs", "more than once"),
                        ("off_policy_threshold", "stops with an error"),
                        ("kl_estimator", "k3 in the loss and k1 in the reward"), ("surrogate", "GMPO")):
        assert found[knob].unsupported and words in found[knob].note
    critic = lines(plan("ppo"))
    assert critic["advantage"].note.startswith("no equivalent") and "reward model" in critic["gae_lambda"].note
    assert lines(plan("dpo", knobs={"pair_weighting": True}))["pair_weighting"].unsupported


@pytest.mark.parametrize("loss, second, wanted", [
    ("dpo", "none", {"loss_type": ["sigmoid"]}), ("cdpo", "none", {"loss_type": ["sigmoid"], "label_smoothing": 0.1}),
    ("dpo", "sft", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 1.0]}),
    ("kto", "none", {"rlhf_type": "kto", "loss_type": "kto", "desirable_weight": 1.0}),
    ("cpo", "sft", {"rlhf_type": "cpo", "loss_type": "sigmoid", "cpo_alpha": 1.0}),
    ("orpo", "none", {"rlhf_type": "orpo"})])
def test_losses_of_pairs(loss, second, wanted):
    knobs = {"second_loss": second, "second_weight": 1.0} | ({"label_smoothing": 0.1} if loss == "cdpo" else {})
    assert ms_swift.settings(plan(loss, knobs=knobs)).items() >= wanted.items()


@pytest.mark.parametrize("algorithm, wanted", [
    ("gkd", {"rlhf_type": "gkd", "beta": 0.3, "lmbda": 0.5, "max_completion_length": 8}),
    ("opd", {"rlhf_type": "grpo", "teacher_kl_coef": 1.0})])
def test_a_run_with_a_teacher_is_handed_over_with_it(algorithm, wanted):
    knobs = {"jsd_beta": 0.3, "on_policy_share": 0.5} if algorithm == "gkd" else {"teacher_discount": 0.5}
    each = plan(algorithm, knobs={"teacher": "some/model", **knobs})
    found = ms_swift.settings(each)
    assert found | wanted | {"teacher_model": "some/model", "teacher_model_type": "any_model"} == found
    assert "reward_funcs" not in found and "orms" not in ms_swift.script(each)
    assert algorithm == "gkd" or "own log-ratio only" in lines(each)["teacher_discount"].note
    own = mixed(algorithm, teacher="gkd-sort-ab12")
    assert ms_swift.settings(own)["teacher_model"] == "teacher" and "the run's export" in lines(own)["teacher"].note


def test_demonstrations_are_a_second_data_set(tmp_path):
    each = plan("chord", steps=2, knobs={"sft_weight": 0.3, "sft_decay_steps": 5})
    found = parsed(started(ms_swift.script(each), tmp_path, "some/model"))
    assert found | {"chord_sft_dataset": ["demonstrations.jsonl"], "chord_mu_peak": 0.3, "chord_mu_valley": 0.0,
                    "chord_mu_decay_steps": 5 * each.passes, "chord_enable_phi_function": True} == found
    row = json.loads((tmp_path / "demonstrations.jsonl").read_text().splitlines()[0])
    assert sorted(row["messages"][0]["content"].strip("=")) == [*row["messages"][1]["content"]]
    assert ms_swift.settings(plan("chord"))["chord_mu_valley"] == plan("chord")["sft_weight"], "a constant weight"
    assert "chord_sft_dataset" not in ms_swift.settings(plan("grpo"))


def test_a_loss_of_another_trainer_is_not_added_to_dpo():
    line = lines(mixed("dpo", second_loss="orpo"))["second_loss"]
    assert line.unsupported and ms_swift.settings(mixed("dpo", second_loss="orpo"))["loss_type"] == ["sigmoid"]


def test_an_algorithm_or_a_knob_without_a_rule_has_no_equivalent_in_words(monkeypatch):
    monkeypatch.delitem(RULES["sft"], "max_grad_norm")
    assert lines(plan("sft"))["max_grad_norm"].note == "no equivalent in ms-swift"
    monkeypatch.setattr(trl, "trainer", lambda plan: "AnotherTrainer")
    script = ms_swift.script(plan("sft"))
    assert all(line.startswith("#") for line in script.splitlines()) and "no trainer for SFT" in script
    assert not ms_swift.settings(plan("sft")) and "learning_rate=" in script


def test_the_engines_switches():
    each = switched(plan("grpo"), **ENGINE)
    found = ms_swift.settings(each)
    assert found | {"gradient_checkpointing": True, "optim": "adamw_8bit", "torch_compile": True, "bf16": True,
                    "lora_rank": 8, "lora_alpha": 16, "lora_dropout": 0.0, "use_vllm": True, "vllm_mode": "colocate",
                    "rollout_importance_sampling_mode": "token_truncate",
                    "rollout_importance_sampling_threshold": 2.0} == found and "tuner_type" not in found
    assert ms_swift.settings(plan("grpo"))["tuner_type"] == "full"
    assert f"#     pip install ms-swift=={ms_swift.VERSION} bitsandbytes vllm\n" in ms_swift.script(each)
    sequences = lines(switched(each, importance_mode="sequence_mask", importance_floor=0.5))
    assert "geometric mean" in sequences["importance_mode"].note and sequences["importance_floor"].unsupported
