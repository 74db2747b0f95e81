"""What a setting says is what the run did: the tools' own limits, each found in the source of the version named."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from labcore.catalog.llm import environments
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.exports.handover import ms_swift, openrlhf, trl, verl
from labcore.exports.handover.plan import Line, Plan, plan_of
from labcore.exports.handover.tools import TOOLS
from labcore.runs.spec.run_spec import make
from tests.exports.handover.conftest import ENGINE, plan, switched
from tests.words import saying, says

MODULES = {"trl": trl, "verl": verl, "openrlhf": openrlhf, "ms-swift": ms_swift}
ESTIMATOR = {"verl": "algorithm.adv_estimator", "openrlhf": "--algo.advantage.estimator"}
BOUND = {"trl": "delta", "verl": "actor_rollout_ref.actor.clip_ratio_c", "openrlhf": "--actor.dual_clip",
         "ms-swift": "delta"}
LOSS_MODE = "actor_rollout_ref.actor.policy_loss.loss_mode"
AGGREGATION = "actor_rollout_ref.actor.loss_agg_mode"


def mixed(algorithm: str = "grpo", **knobs) -> Plan:
    """An algorithm with other knobs, also those that a spec would refuse today and an earlier one had."""
    base = plan(algorithm)
    return Plan(base.run, replace(base.spec, knobs={**base.spec.knobs, **knobs}))


def lines(tool: str, each: Plan) -> dict[str, Line]:
    return {line.knob: line for line in MODULES[tool].mapped(each)}


def test_given_episodes_have_no_script_and_the_command_says_so():
    store = SimpleNamespace(run=lambda run_id: SimpleNamespace(spec=make(algorithm_key="sft", task_key="guess")))
    with pytest.raises(LabError, match=saying("no script for mine", "given episodes", "online algorithm")):
        plan_of(store, "mine")


@pytest.mark.parametrize("tool", ["verl", "openrlhf", "ms-swift"])
@pytest.mark.parametrize("task", [row.key for row in environments.ROWS])
def test_every_knob_of_a_run_with_episodes_is_known(tool, task):
    assert not [line for line in MODULES[tool].mapped(plan("grpo", task)) if "nothing is known" in line.note]


@pytest.mark.parametrize("algorithm, setting, context", [
    ("sdft", "teacher_prompt_template", "privileged_context"), ("sdpo", "reprompt_template", "solution")])
def test_the_prompt_with_context_is_a_format_string_whatever_braces_it_has(algorithm, setting, context):
    asked = r"{prompt}\n\boxed{} of {context} {x}"
    text = trl.settings(plan(algorithm, knobs={"context_template": asked}))[setting]
    assert text.format(**{"prompt": "1+1=", context: "2"}) == "1+1=\n\\boxed{} of 2 {x}"


@pytest.mark.parametrize("tool", list(TOOLS))
def test_no_setting_of_a_knob_is_overwritten(tool, plans):
    for changed in (changed for each in plans for changed in (each, *_switched(each))):
        if tool == "verl" and changed.loop in ("preference", "reward_model"):  # it trains nothing from pairs
            continue
        wanted: dict = {}
        for line in MODULES[tool].mapped(changed):
            wanted |= line.settings
        assert MODULES[tool].settings(changed).items() >= wanted.items(), changed.run


def _switched(each: Plan) -> list[Plan]:
    knobs = {**each.spec.knobs, "surrogate": "bounded_clip", "clip_delta": 2.0}
    return [Plan(each.run, replace(each.spec, knobs=knobs))] if "clip_delta" in each.spec.knobs else []


@pytest.mark.parametrize("tool", list(TOOLS))
@pytest.mark.parametrize("dual_clip, clip_delta, bound", [
    (3.0, 0.0, 3.0), (3.0, 2.0, 2.0), (3.0, 4.0, 3.0), (0.0, 2.0, 2.0), (0.0, 0.0, None)])
def test_every_tool_bounds_bad_tokens_alike(tool, dual_clip, clip_delta, bound):
    each = mixed(surrogate="bounded_clip", dual_clip=dual_clip, clip_delta=clip_delta)
    found = MODULES[tool].settings(each).get(BOUND[tool])
    assert found == (1e6 if bound is None and tool == "verl" else bound)
    notes = [line.note for key, line in lines(tool, each).items() if key in ("dual_clip", "clip_delta")]
    assert any("the smaller of the two" in note for note in notes) == bool(dual_clip and clip_delta)
    assert MODULES[tool].settings(plan("grpo")).get(BOUND[tool]) == (1e6 if tool == "verl" else None)


@pytest.mark.parametrize("algorithm, tool, wanted", [
    ("grpo", "trl", {"gradient_checkpointing": True, "optim": "adamw_8bit", "torch_compile": True, "use_vllm": True,
                     "bf16": True, "vllm_importance_sampling_clip_max": 2.0}),
    ("sft", "trl", {"gradient_checkpointing": True, "optim": "adamw_8bit", "torch_compile": True}),
    ("grpo", "verl", {"actor_rollout_ref.model.enable_gradient_checkpointing": True,
                      "actor_rollout_ref.actor.optim.optimizer": "AdamW8bit",
                      "actor_rollout_ref.actor.optim.optimizer_impl": "bitsandbytes.optim",
                      "actor_rollout_ref.actor.fsdp_config.use_torch_compile": True,
                      "algorithm.rollout_correction.rollout_is_threshold": 2.0}),
    ("ppo", "verl", {"critic.model.enable_gradient_checkpointing": True, "critic.optim.optimizer": "AdamW8bit",
                     "critic.model.lora_rank": 8}),
    ("sft", "verl", {"model.enable_gradient_checkpointing": True, "optim.optimizer": "AdamW8bit",
                     "engine.use_torch_compile": True}),
    ("grpo", "openrlhf", {"--actor.gradient_checkpointing_enable": openrlhf.ON, "--ds.deepcompile": openrlhf.ON,
                          "--algo.advantage.is_correction_level": "token",
                          "--algo.advantage.is_correction_mode": "clip",
                          "--algo.advantage.is_correction_threshold": 2.0}),
    ("dpo", "openrlhf", {"--model.gradient_checkpointing_enable": openrlhf.ON, "--ds.deepcompile": openrlhf.ON})])
def test_the_engine_s_switches_are_those_of_the_tool(algorithm, tool, wanted):
    on = switched(plan(algorithm), **ENGINE)
    assert MODULES[tool].settings(on).items() >= wanted.items()
    off = MODULES[tool].settings(plan(algorithm))
    assert not [key for key, value in wanted.items() if off.get(key, False) == value]


@pytest.mark.parametrize("algorithm, tool, needs", [
    ("grpo", "trl", '"trl[peft,quantization,vllm]==1.16.0"'), ("sft", "trl", '"trl[peft,quantization]==1.16.0"'),
    ("grpo", "verl", '"verl[fsdp,vllm]==0.9.1" bitsandbytes'), ("sft", "verl", '"verl[fsdp]==0.9.1" bitsandbytes'),
    ("grpo", "openrlhf", '"openrlhf[vllm]==0.11.2"'), ("sft", "openrlhf", "openrlhf==0.11.2")])
def test_the_script_says_what_is_to_be_installed_for_it(algorithm, tool, needs):
    assert f"#     pip install {needs}\n" in TOOLS[tool].script(switched(plan(algorithm), **ENGINE))
    plain = TOOLS[tool].script(plan(algorithm))
    assert "bitsandbytes" not in plain and (tool != "trl" or "pip install trl==1.16.0\n" in plain)


COSINE = {"schedule": "cosine", "warmup_steps": 5, "weight_decay": 0.1, "adam_beta2": 0.95}


@pytest.mark.parametrize("algorithm, tool, wanted", [
    # 100 steps of the lab with 2 × 2 updates: TRL counts updates, the others steps or a share of them.
    ("ppo", "trl", {"lr_scheduler_type": "cosine", "warmup_steps": 20, "weight_decay": 0.1, "adam_beta1": 0.9,
                    "adam_beta2": 0.95, "adam_epsilon": 1e-8}),
    ("sft", "trl", {"lr_scheduler_type": "cosine", "warmup_steps": 5, "weight_decay": 0.1, "adam_beta2": 0.95}),
    ("dpo", "trl", {"lr_scheduler_type": "cosine", "warmup_steps": 5}),
    ("reward_model", "trl", {"lr_scheduler_type": "cosine", "warmup_steps": 5}),
    ("ppo", "verl", {f"{part}.optim.{key}": value for part in ("actor_rollout_ref.actor", "critic") for key, value in {
        "lr_scheduler_type": "cosine", "lr_warmup_steps": 5, "weight_decay": 0.1, "betas": [0.9, 0.95]}.items()}),
    ("sft", "verl", {"optim.lr_scheduler_type": "cosine", "optim.lr_warmup_steps": 5, "optim.weight_decay": 0.1,
                     "optim.betas": [0.9, 0.95]}),
    ("ppo", "openrlhf", {f"--{part}.{key}": value for part in ("actor", "critic") for key, value in {
        "lr_scheduler": "cosine", "lr_warmup_ratio": 0.05, "adam.weight_decay": 0.1, "adam.betas": (0.9, 0.95),
        "adam.eps": 1e-8}.items()}),
    ("dpo", "openrlhf", {"--lr_scheduler": "cosine", "--lr_warmup_ratio": 0.05, "--adam.weight_decay": 0.1,
                         "--adam.betas": (0.9, 0.95)})])
def test_the_schedule_and_adamw_s_numbers_are_taken_along(algorithm, tool, wanted):
    assert MODULES[tool].settings(plan(algorithm, steps=100, knobs=COSINE)).items() >= wanted.items()
    usual = MODULES[tool].settings(plan(algorithm, steps=100))
    schedules = {value for key, value in usual.items() if "lr_scheduler" in key}
    assert schedules == {"constant"} and not [key for key, value in usual.items() if "weight_decay" in key and value]


def test_a_warm_up_of_a_constant_rate_has_a_name_of_its_own_where_transformers_makes_it():
    each = plan("grpo", knobs={"warmup_steps": 3})
    assert trl.settings(each)["lr_scheduler_type"] == "constant_with_warmup"
    assert openrlhf.settings(each)["--actor.lr_scheduler"] == "constant_with_warmup"
    assert verl.settings(each)["actor_rollout_ref.actor.optim.lr_scheduler_type"] == "constant"


def test_verl_has_no_linear_schedule_and_decays_everything():
    found = lines("verl", plan("grpo", knobs={"schedule": "linear", "weight_decay": 0.1, "adam_epsilon": 1e-6}))
    assert found["schedule"].settings == {"actor_rollout_ref.actor.optim.lr_scheduler_type": "cosine"}
    assert "half a cosine" in found["schedule"].note and "biases and norms" in found["weight_decay"].note
    assert found["adam_epsilon"].unsupported and "override_optimizer_config" in found["adam_epsilon"].note
    text = verl.script(plan("grpo", knobs={"adam_beta1": 0.8}))
    assert "'actor_rollout_ref.actor.optim.betas=[0.8, 0.999]'" in text


@pytest.mark.parametrize("tool", ["verl", "openrlhf"])
def test_where_only_vllm_samples_the_labs_sampler_is_named_as_missing(tool):
    engine, vllm = (lines(tool, switched(plan("grpo"), rollouts=value))["rollouts"] for value in ("engine", "vllm"))
    assert "rounds differently" in engine.note and not engine.built_in and not vllm.note
    assert (MODULES[tool].settings(plan("grpo")).get("actor_rollout_ref.rollout.name") == "vllm") == (tool == "verl")


def test_openrlhf_caps_no_ratio_of_gspo():
    assert "without a cap" in lines("openrlhf", mixed(ratio="sequence_mean", importance_cap=2.0))["importance_cap"].note
    assert not lines("openrlhf", mixed(importance_cap=2.0))["importance_cap"].note


def test_verl_names_the_knob_that_bounds_bad_tokens():
    [row] = [line for line in verl.script(mixed(surrogate="bounded_clip")).splitlines() if "clip_ratio_c=" in line]
    assert row.split() == ["actor_rollout_ref.actor.clip_ratio_c=3.0", "#", "dual_clip"]
    [row] = [line for line in verl.script(plan("grpo")).splitlines() if "clip_ratio_c=" in line]
    assert row.endswith("# no second clip of bad tokens")


# What verl's V1 trainer, its default, has: the filter of groups reads the reward tensor, the greedy baseline is gone.
def test_what_verls_trainer_can_do():
    dapo = verl.settings(plan("grpo", knobs={"selection": "informative", "resample_rounds": 3}))
    assert dapo["algorithm.filter_groups.metric"] == "acc"
    assert not [key for key in dapo if "max_num_gen_batches" in key]
    for algorithm in (row.key for row in ALGORITHMS.values() if row.loop == "online"):
        found = verl.settings(plan(algorithm))
        assert (found[ESTIMATOR["verl"]] == "remax") == (found.get("trainer.use_v1") is False), algorithm
    assert "+algorithm.gdpo_reward_keys=[correct,format]" in verl.script(plan("gdpo"))


def test_openrlhf_is_never_asked_to_compare_groups_of_one():
    for algorithm in (row.key for row in ALGORITHMS.values() if row.loop == "online"):
        for normalisation in ("none", "tokens"):
            each = plan(algorithm)
            if "normalisation" in each.spec.knobs:
                each = Plan(each.run, replace(each.spec, knobs={**each.spec.knobs, "normalisation": normalisation}))
            found = openrlhf.settings(each)
            assert found["--rollout.n_samples_per_prompt"] > 1 or found.get(ESTIMATOR["openrlhf"]) not in (
                "rloo", "reinforce_baseline", "group_norm", "dr_grpo"), algorithm
    remax = lines("openrlhf", plan("remax"))["advantage"]
    assert says(remax.note, "mean", "batch", "baseline")
    assert remax.settings == {ESTIMATOR["openrlhf"]: "flash_reinforce"}


@pytest.mark.parametrize("tool, of_batch, of_group", [
    ("verl", "reinforce_plus_plus", "reinforce_plus_plus_baseline"), ("openrlhf", "reinforce", "reinforce_baseline")])
@pytest.mark.parametrize("advantage, batch, exact", [
    ("batch_mean", True, True), ("moving_average", True, True), ("greedy_baseline", True, False),
    ("group_mean", False, True), ("leave_one_out", False, True), ("batch_standardised", False, True),
    ("group_standardised", False, False), ("beta_normalised", False, False)])
def test_whitening_keeps_the_advantage_or_says_that_it_does_not(tool, of_batch, of_group, advantage, batch, exact):
    each = mixed(advantage=advantage, normalisation="sequences")
    found, line = MODULES[tool].settings(each), lines(tool, each)["advantage"]
    assert found[ESTIMATOR[tool]] == (of_batch if batch else of_group)
    assert line.built_in == exact and ("subtracts the" in line.note) != exact
    assert "algorithm.norm_adv_by_std_in_grpo" not in found
    assert "whitened over tokens" in lines(tool, each)["normalisation"].note


@pytest.mark.parametrize("ratio", ["sequence_mean", "sequence_mean_token"])
def test_openrlhf_aggregates_gspo_in_one_way(ratio):
    other = lines("openrlhf", mixed(ratio=ratio, aggregation="sequence_mean_token_sum"))["aggregation"]
    assert not other.settings and "policy_loss_type gspo" in other.note
    assert lines("openrlhf", mixed(ratio=ratio))["aggregation"].built_in
    assert lines("openrlhf", mixed(aggregation="token_mean"))["aggregation"].settings


@pytest.mark.parametrize("surrogate, mode", [("soft_gate", "sapo"), ("geometric_clip", "geo_mean")])
def test_verl_says_which_losses_aggregate_in_one_way(surrogate, mode):
    other = lines("verl", mixed(surrogate=surrogate, aggregation="token_mean"))["aggregation"]
    assert other.settings == {AGGREGATION: "token-mean"} and f"loss_mode {mode} always" in other.note
    assert not lines("verl", mixed(surrogate=surrogate))["aggregation"].note
    assert not lines("verl", mixed(aggregation="token_mean"))["aggregation"].note


@pytest.mark.parametrize("ratio", ["none", "token", "sequence_sum"])
def test_verl_clips_no_score_function(ratio):
    assert verl.settings(mixed(ratio=ratio, surrogate="score_function"))[LOSS_MODE] == "gpg"


@pytest.mark.parametrize("knobs, exact", [
    ({"advantage": "reward_to_go_whitened"}, True), ({"advantage": "group_mean"}, False), ({}, False),
    ({"advantage": "batch_mean", "normalisation": "tokens"}, True)])
def test_openrlhf_clips_rewards_after_the_baseline(knobs, exact):
    line = lines("openrlhf", mixed(shaping="clipped", reward_clip=0.5, **knobs))["reward_clip"]
    assert line.settings == {"--reward.clip_range": (-0.5, 0.5)} and ("not before" in line.note) != exact


@pytest.mark.parametrize("loss, second, takes", [
    ("dpo", "none", True), ("ipo", "none", True), ("dpo", "sft", True), ("apo_zero", "none", False),
    ("dpo", "nca_pair", False), ("bco", "none", False)])
def test_trl_takes_other_divergences_with_some_losses_only(loss, second, takes):
    each = mixed(loss, divergence="alpha", divergence_alpha=0.3, second_loss=second)
    found = trl.settings(each)
    assert ("f_divergence_type" in found) == ("f_alpha_divergence_coef" in found) == takes
    notes = [lines("trl", each)[key].note for key in ("divergence", "divergence_alpha")]
    assert all("for other losses only" in note for note in notes) != takes
    reverse = trl.settings(plan(loss, knobs={"second_loss": second}))
    assert reverse["f_divergence_type"] == "reverse_kl"


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_mean"])
def test_trls_entropy_bonus_is_for_the_tokens_that_are_left(aggregation):
    def note(**knobs) -> str:
        return lines("trl", mixed(aggregation=aggregation, **knobs))["entropy_coef"].note

    assert "top_entropy_quantile only" in note(entropy_coef=0.01, top_entropy_share=0.2)
    assert "top_entropy_quantile" not in note(entropy_coef=0.01) + note(top_entropy_share=0.2, entropy_coef=0.0)
