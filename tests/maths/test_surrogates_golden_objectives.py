"""Whole objectives, put together from the catalog's choices as a loop does it, against TRL's losses and gradients."""

from collections import Counter

import pytest
import torch

from labcore.catalog.choices import FAMILIES
from labcore.maths import surrogates, weights
from labcore.maths.call import call, member
from labcore.maths.masked import masked_mean
from tests.every import every
from tests.references import golden

GRPO = golden("trl_grpo_loss")
RLOO = golden("trl_rloo_loss")
FAMILY = {family.key: family for family in FAMILIES}
AGGREGATIONS = {"grpo": "sequence_mean_token_mean", "bnpo": "token_mean", "dapo": "token_mean",
                "dr_grpo": "constant_length", "cispo": "token_mean", "sapo": "sequence_mean_token_mean",
                "vespo": "token_mean", "luspo": "sequence_mean_token_sum"}
SURROGATES = {"cispo": "detached_weight", "sapo": "soft_gate", "vespo": "gamma_weight"}
CASES = GRPO["cases"]


def choices(config):
    """The five choices by which the lab says a TRL configuration."""
    return {"ratio": "token" if config["importance_sampling_level"] == "token" else "sequence_mean",
            "surrogate": "bounded_clip" if config["delta"] else SURROGATES.get(config["loss_type"], "clip"),
            "kl_estimator": "ratio_k3" if config["use_bias_correction_kl"] else "k3",
            "aggregation": AGGREGATIONS[config["loss_type"]]}


def float32(number):
    """TRL keeps SAPO's temperatures in float32, whatever the dtype of the rest."""
    return float(torch.tensor(number, dtype=torch.float32))


def quantities(config):
    dtype = getattr(torch, config["dtype"])
    inputs = {key: torch.tensor(value, dtype=dtype) for key, value in GRPO["inputs"].items()}
    logprobs = inputs["per_token_logps"].requires_grad_()
    parts = config["gradient_accumulation_steps"]
    return {"logprobs": logprobs, "ref_logprobs": inputs["ref_per_token_logps"],
            "old_logprobs": inputs["old_per_token_logps"] if config["old_logps_given"] else logprobs.detach(),
            "advantages": inputs["advantages"][:, None], "completion_mask": inputs["completion_mask"].bool(),
            "clip_low": config["epsilon"], "clip_high": config["epsilon_high"], "beta": config["beta"],
            "ratio_cap": config["epsilon_high"], "gate_positive": float32(config["sapo_temperature_pos"]),
            "gate_negative": float32(config["sapo_temperature_neg"]),
            **{f"gamma_{ours}_{side}": config[f"vespo_{theirs}_{side[:3]}"] for side in ("positive", "negative")
               for ours, theirs in (("power", "k"), ("rate", "lambda"))},
            "clip_delta": config["delta"] or 0.0, "dual_clip": 0.0,
            "sampler_logprobs": None, "off_policy_threshold": config["off_policy_mask_threshold"],
            "top_entropy_share": config["top_entropy_quantile"], "total_rows": 6 * parts,
            "total_tokens": GRPO["inputs"]["num_items_in_batch"] * parts,
            "max_new_tokens": config["max_completion_length"], "entropies": inputs["entropies"]}


def objective(names, given):
    """L = agg[−w S + β KL], its gradient by the log-probabilities, and the quantities made on the way."""
    functions = {key: member(FAMILY[key], name) for key, name in names.items()}
    own = FAMILY["surrogate"][names["surrogate"]].own_ratio  # the chosen one is then the KL's alone
    q = {**given, "ratio": call(member(FAMILY["ratio"], own) if own else functions["ratio"], {}, given)}
    q["token_losses"] = -call(functions["surrogate"], {}, q).expand_as(q["logprobs"])
    for weight in switched_on(q):
        q["token_losses"] = q["token_losses"] * weight
    if "kl_estimator" in functions and q["beta"]:
        q["kl"] = call(functions["kl_estimator"], {}, {**q, "ratio": call(functions["ratio"], {}, given)})
        q["token_losses"] = q["token_losses"] + q["beta"] * q["kl"]
    loss = call(functions["aggregation"], {}, q)
    return loss, torch.autograd.grad(loss, q["logprobs"])[0], q


def switched_on(q):
    """The weights of the switches that a case turns on."""
    if q.get("top_entropy_share", 1.0) < 1:
        floor = weights.entropy_floor(q["entropies"], q["completion_mask"], q["top_entropy_share"])
        yield weights.high_entropy(q["entropies"], floor)
    if q.get("off_policy_threshold"):
        yield call(weights.near_policy, {}, q)


@every("case", CASES)
def test_matches_trl_grpo(close, case):
    config = case["config"]
    loss, gradient, q = objective(choices(config), quantities(config))
    entropy = masked_mean(q["entropies"], q["completion_mask"])
    if config["entropy_coef"]:
        close(loss, case["metrics"]["policy_loss"])
        loss = loss - config["entropy_coef"] * entropy
    close(loss, case["loss"])
    close(gradient, case["grad_logps"])
    close(entropy, case["metrics"]["entropy"])
    if config["beta"]:
        close(masked_mean(q["kl"], q["completion_mask"]), case["metrics"]["kl"])
    by_sequence = config["importance_sampling_level"] == "sequence"
    if config["loss_type"] == "cispo":
        close(shares(surrogates.cap_cut, q, by_sequence)["high"], case["metrics"]["cispo_clip_ratio"], torch.float32)
    elif config["loss_type"] == "vespo":
        phi = call(surrogates.gamma_of, {}, q)
        close(phi[:, 0].mean(), case["metrics"]["vespo/phi_seq_mean"], torch.float32)
    elif config["loss_type"] != "sapo":  # a gate cuts nothing off: TRL logs no share
        check_clip_metrics(close, q, by_sequence, case["metrics"])


def shares(cut, q, by_sequence, rows=slice(None)):
    """The shares of `cut` among the counted tokens of `rows`, or among the sequences."""
    q = {**q, "ratio": q["ratio"][rows], "advantages": q["advantages"][rows]}
    mask = q["completion_mask"][rows]
    if by_sequence:
        q["ratio"], mask = q["ratio"][:, :1], torch.ones(len(mask), 1, dtype=torch.bool)
    return surrogates.cut_fractions(call(cut, {}, q), mask)


def check_clip_metrics(close, q, by_sequence, metrics):
    """TRL logs shares of tokens, or of sequences, and the extremes over rows; always in float32."""
    whole = shares(surrogates.clip_cut, q, by_sequence)
    for name in ("low", "high", "region"):
        close(whole[name], metrics[f"clip_ratio/{name}_mean"], torch.float32)
    rows = [shares(surrogates.clip_cut, q, by_sequence, slice(i, i + 1)) for i in range(len(q["ratio"]))]
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


RLOO_CHOICES = {"ratio": "sequence_sum", "surrogate": "clip", "aggregation": "sequence_mean_token_mean"}


@pytest.mark.parametrize("case", RLOO["cases"], ids=["0.2-0.2", "0.1-0.3"])
def test_matches_trl_rloo(close, case):
    """One loss per sequence, spread over its T tokens and averaged back, is that loss: value and gradient."""
    inputs = {key: torch.tensor(value, dtype=torch.float64) for key, value in RLOO["inputs"].items()}
    loss, gradient, q = objective(RLOO_CHOICES, {
        "logprobs": inputs["per_token_logps"].requires_grad_(), "old_logprobs": inputs["old_per_token_logps"],
        "advantages": inputs["advantages"][:, None], "completion_mask": inputs["completion_mask"].bool(), "beta": 0.0,
        "clip_low": case["epsilon"], "clip_high": case["epsilon_high"], "total_rows": 6})
    close(loss, case["loss"])
    close(gradient, case["grad_logps"])
    check_clip_metrics(close, q, True, case["metrics"])


def reinforce_worked_example(golden, name):
    """(loss, gradient) of the score function on a worked example of one sequence reward per completion."""
    example = golden("worked_examples")[name]
    logprobs = torch.tensor(example["logprobs"], dtype=torch.float64).flatten(0, -2).requires_grad_()
    advantages = torch.tensor(example["advantages"], dtype=torch.float64).view(-1, 1)
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    names = {"ratio": "none", "surrogate": "score_function", "aggregation": "sequence_mean_token_sum"}
    loss, gradient, _ = objective(names, {"logprobs": logprobs, "advantages": advantages, "completion_mask": mask,
                                          "total_rows": len(logprobs), "beta": 0.0})
    return loss, gradient, example


@pytest.mark.parametrize("name", ["reinforce_batch_mean", "rloo"])
def test_reinforce_worked_by_hand(golden, close, name):
    loss, gradient, example = reinforce_worked_example(golden, name)
    close(loss, example["loss"])
    close(gradient.view_as(torch.tensor(example["grad_logprobs"])), example["grad_logprobs"])
