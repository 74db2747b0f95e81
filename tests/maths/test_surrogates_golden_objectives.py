"""TRL's losses, gradients and shares of cut tokens by the lab's own objective, with the choices that say the same."""

from collections import Counter

import pytest
import torch

from labcore.llm import objective
from labcore.llm.objective import Totals
from labcore.llm.rollout import Rollout
from labcore.maths import surrogates, weights
from labcore.maths.call import call
from labcore.maths.masked import masked_mean
from labcore.runs.spec.run_spec import every_knob
from tests.every import every
from tests.llm.tools import prompts
from tests.references import golden

GRPO = golden("trl_grpo_loss")
RLOO = golden("trl_rloo_loss")
KNOBS = {key: knob.default for key, knob in every_knob().items()} | {
    "advantage": "group_standardised", "kl_placement": "off", "entropy_coef": 0.0, "importance_cap": 0.0}
AGGREGATIONS = {"grpo": "sequence_mean_token_mean", "bnpo": "token_mean", "dapo": "token_mean",
                "dr_grpo": "constant_length", "cispo": "token_mean", "sapo": "sequence_mean_token_mean",
                "vespo": "token_mean", "luspo": "sequence_mean_token_sum"}
SURROGATES = {"cispo": "detached_weight", "sapo": "soft_gate", "vespo": "gamma_weight"}
CASES = GRPO["cases"]


def float32(number):
    """TRL keeps SAPO's temperatures in float32, whatever the dtype of the rest."""
    return float(torch.tensor(number, dtype=torch.float32))


def knobs_of(config):
    """A TRL configuration under the lab's names."""
    return KNOBS | {
        "ratio": "token" if config["importance_sampling_level"] == "token" else "sequence_mean",
        "surrogate": "bounded_clip" if config["delta"] else SURROGATES.get(config["loss_type"], "clip"),
        "kl_estimator": "ratio_k3" if config["use_bias_correction_kl"] else "k3",
        "kl_placement": "loss" if config["beta"] else "off", "aggregation": AGGREGATIONS[config["loss_type"]],
        "clip_low": config["epsilon"], "clip_high": config["epsilon_high"], "beta": config["beta"],
        "ratio_cap": config["epsilon_high"], "gate_positive": float32(config["sapo_temperature_pos"]),
        "gate_negative": float32(config["sapo_temperature_neg"]),
        **{f"gamma_{ours}_{side}": config[f"vespo_{theirs}_{side[:3]}"] for side in ("positive", "negative")
           for ours, theirs in (("power", "k"), ("rate", "lambda"))},
        "clip_delta": config["delta"] or 0.0, "dual_clip": 0.0,
        "off_policy_threshold": config["off_policy_mask_threshold"] or 0.0}


def minimised(knobs, logprobs, old, ref, advantages, mask, totals, entropy=0.0):
    """The loss, its gradient with respect to the log-probabilities, and its parts."""
    rollout = Rollout(prompts([1] * len(mask)), mask.long(), mask, torch.zeros(len(mask)) > 0, advantages, old, ref,
                      advantages=advantages[:, None].expand_as(logprobs))
    loss, ratio = objective.loss(knobs, rollout, logprobs, entropy + torch.zeros_like(logprobs), totals)
    return loss, torch.autograd.grad(loss, logprobs)[0], {
        "ratio": ratio.detach(), "advantages": advantages[:, None], "completion_mask": mask, "logprobs": logprobs,
        "old_logprobs": old, "ref_logprobs": ref}


@every("case", CASES)
def test_matches_trl_grpo(close, case):
    config, knobs = case["config"], knobs_of(case["config"])
    given = {key: torch.tensor(value, dtype=getattr(torch, config["dtype"])) for key, value in GRPO["inputs"].items()}
    logprobs, mask, parts = given["per_token_logps"].requires_grad_(), given["completion_mask"].bool(), (
        config["gradient_accumulation_steps"])
    share = config["top_entropy_quantile"]
    totals = Totals(6 * parts, GRPO["inputs"]["num_items_in_batch"] * parts, config["max_completion_length"],
                    weights.entropy_floor(given["entropies"], mask, share) if share < 1 else None)
    old = given["old_per_token_logps"] if config["old_logps_given"] else logprobs.detach()
    loss, gradient, q = minimised(knobs, logprobs, old, given["ref_per_token_logps"], given["advantages"], mask, totals,
                                  given["entropies"])
    entropy = masked_mean(given["entropies"], mask)
    if config["entropy_coef"]:  # a mean over tokens in TRL, whatever the aggregation
        close(loss, case["metrics"]["policy_loss"])
        loss = loss - config["entropy_coef"] * entropy
    close(loss, case["loss"])
    close(gradient, case["grad_logps"])
    close(entropy, case["metrics"]["entropy"])
    if config["beta"]:
        close(masked_mean(objective.kl_of(knobs, q), mask), case["metrics"]["kl"])
    by_sequence = config["importance_sampling_level"] == "sequence"
    if config["loss_type"] == "cispo":
        close(shares(surrogates.cap_cut, knobs, q, by_sequence)["high"], case["metrics"]["cispo_clip_ratio"],
              torch.float32)
    elif config["loss_type"] == "vespo":
        phi = call(surrogates.gamma_of, knobs, q)
        close(phi[:, 0].mean(), case["metrics"]["vespo/phi_seq_mean"], torch.float32)
    elif config["loss_type"] != "sapo":  # a gate cuts nothing off: TRL logs no share
        check_clip_metrics(close, knobs, q, by_sequence, case["metrics"])


def shares(cut, knobs, q, by_sequence, rows=slice(None)):
    """The shares of `cut` among the counted tokens of `rows`, or among the sequences."""
    q = {**q, "ratio": q["ratio"][rows], "advantages": q["advantages"][rows]}
    mask = q["completion_mask"][rows]
    if by_sequence:
        q["ratio"], mask = q["ratio"][:, :1], torch.ones(len(mask), 1, dtype=torch.bool)
    return surrogates.cut_fractions(call(cut, knobs, q), mask)


def check_clip_metrics(close, knobs, q, by_sequence, metrics):
    """TRL logs shares of tokens, or of sequences, and the extremes over rows; always in float32."""
    whole = shares(surrogates.clip_cut, knobs, q, by_sequence)
    for name in ("low", "high", "region"):
        close(whole[name], metrics[f"clip_ratio/{name}_mean"], torch.float32)
    rows = [shares(surrogates.clip_cut, knobs, q, by_sequence, slice(i, i + 1)) for i in range(len(q["ratio"]))]
    close(min(row["low"] for row in rows), metrics["clip_ratio/low_min"], torch.float32)
    close(max(row["high"] for row in rows), metrics["clip_ratio/high_max"], torch.float32)


def test_the_cases_are_many_and_of_each_kind():
    kinds = Counter(case["config"]["loss_type"] for case in CASES)
    assert len(CASES) == 82 and kinds.keys() == {*AGGREGATIONS}
    assert kinds["cispo"] == 11 and kinds["sapo"] == kinds["vespo"] == kinds["luspo"] == 9
    # GSPO: one ratio per sequence under the mean of token means, with its paper's bounds among them.
    gspo = [case["config"] for case in CASES if case["config"]["loss_type"] == "grpo"
            and case["config"]["importance_sampling_level"] == "sequence"]
    assert len(gspo) == 4 and (3e-4, 4e-4) in {(config["epsilon"], config["epsilon_high"]) for config in gspo}


@pytest.mark.parametrize("case", RLOO["cases"], ids=["0.2-0.2", "0.1-0.3"])
def test_matches_trl_rloo(close, case):
    """One loss per sequence, spread over its T tokens and averaged back, is that loss: value and gradient."""
    inputs = {key: torch.tensor(value, dtype=torch.float64) for key, value in RLOO["inputs"].items()}
    knobs = KNOBS | {"ratio": "sequence_sum", "surrogate": "clip", "aggregation": "sequence_mean_token_mean",
                     "clip_low": case["epsilon"], "clip_high": case["epsilon_high"]}
    old = inputs["old_per_token_logps"]
    loss, gradient, q = minimised(knobs, inputs["per_token_logps"].requires_grad_(), old, old, inputs["advantages"],
                                  inputs["completion_mask"].bool(), Totals(6, 1, 1))
    close(loss, case["loss"])
    close(gradient, case["grad_logps"])
    check_clip_metrics(close, knobs, q, True, case["metrics"])


@pytest.mark.parametrize("name", ["reinforce_batch_mean", "rloo"])
def test_reinforce_worked_by_hand(close, name):
    """The score function, with one reward of the whole sequence for each completion."""
    example = golden("worked_examples")[name]
    logprobs = torch.tensor(example["logprobs"], dtype=torch.float64).flatten(0, -2).requires_grad_()
    knobs = KNOBS | {"ratio": "none", "surrogate": "score_function", "aggregation": "sequence_mean_token_sum"}
    old, advantages = logprobs.detach(), torch.tensor(example["advantages"], dtype=torch.float64).flatten()
    loss, gradient, _ = minimised(knobs, logprobs, old, old, advantages, torch.ones_like(logprobs, dtype=torch.bool),
                                  Totals(len(logprobs), 1, 1))
    close(loss, example["loss"])
    close(gradient.view_as(torch.tensor(example["grad_logprobs"])), example["grad_logprobs"])
