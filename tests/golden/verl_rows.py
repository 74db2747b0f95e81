"""Makes `verl_rows.json`: advantages and losses by verl's own functions, and FIPO's weight by ms-swift's.

    git clone https://github.com/verl-project/verl; git clone https://github.com/modelscope/ms-swift
    python -m tests.golden.verl_rows verl/verl/trainer/ppo/core_algos.py verl/verl/trainer/ppo/rollout_corr_helper.py \
        ms-swift/swift/rlhf_trainers/grpo_trainer.py

Neither is installed: functions are cut out of their files by name and executed; `agg_loss` and the masked mean, which
are theirs as well, are those of verl's definitions written out here. Recorded at verl 1dda039 and ms-swift 3602360.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

LENGTHS = (7, 5, 3, 1, 6, 4)


def functions(path: str, names: dict[str, Any], *wanted: str) -> dict[str, Any]:
    """Some functions of a file, without their decorators and annotations; a method as a function."""
    for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name in wanted:
            node.decorator_list, node.returns = [], None
            for argument in (*node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
            exec(compile(ast.fix_missing_locations(ast.Module([node], [])), path, "exec"), names)
    return {name: names[name] for name in wanted}


def masked_mean(values: torch.Tensor, mask: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    return (values * mask).sum(axis) / (mask.sum(axis) + 1e-8)


class Config(SimpleNamespace):
    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)


def inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(41)
    old = -torch.rand(6, 7, generator=generator, dtype=torch.float64) * 2
    moved = torch.randn(6, 7, generator=generator, dtype=torch.float64) * 0.6
    return {"logprobs": (old + moved).clamp(max=-0.01), "old_logprobs": old,
            "advantages": torch.randn(6, 1, generator=generator, dtype=torch.float64).expand(6, 7).contiguous(),
            "rewards": torch.tensor([[1.0, 0.0, 0.25], [0.0, 0.5, 0.5]], dtype=torch.float64),
            "completion_mask": (torch.arange(7) < torch.tensor(LENGTHS)[:, None]).long()}


def made(algos: str, helper: str, swift: str) -> dict[str, Any]:
    given, mask = inputs(), inputs()["completion_mask"]
    names: dict[str, Any] = {
        "torch": torch, "np": np, "defaultdict": defaultdict,
        "verl_F": SimpleNamespace(masked_mean=masked_mean, masked_sum=lambda x, m, axis=None: (x * m).sum(axis)),
        "agg_loss": lambda loss_mat, loss_mask, loss_agg_mode: (loss_mat * loss_mask).sum() / loss_mask.sum(),
        "ActorConfig": Config, "AlgoConfig": type("AlgoConfig", (), {}), "AdvantageEstimator": SimpleNamespace()}
    advantages = functions(algos, names, "compute_opo_outcome_advantage", "compute_grpo_passk_outcome_advantage")
    losses = functions(algos, names, "compute_policy_loss_dppo_tv", "compute_policy_loss_dppo_kl",
                       "compute_policy_loss_dro", "compute_policy_loss_clip_cov", "compute_policy_loss_kl_cov")
    last = torch.zeros(6, 7, dtype=torch.float64).scatter(1, mask.sum(1, keepdim=True) - 1,
                                                          given["rewards"].view(6, 1))
    estimates = {name: function(last, mask, np.array([0, 0, 0, 1, 1, 1]), config=Config(
        norm_adv_by_std_in_grpo=False))[0][:, 0].view(2, 3).tolist() for name, function in advantages.items()}
    found = {}
    for name, function in losses.items():
        logprobs = given["logprobs"].clone().requires_grad_()
        config = Config(clip_ratio=0.2, clip_ratio_low=0.05, clip_ratio_high=0.1, clip_ratio_c=1.5,
                        global_batch_info={},
                        policy_loss=SimpleNamespace(dro_beta=1.7, kl_cov_ratio=0.2, ppo_kl_coef=0.7, clip_cov_ratio=0.9,
                                                    clip_cov_lb=0.05, clip_cov_ub=1.0))
        loss, metrics = function(given["old_logprobs"], logprobs, given["advantages"], mask, config=config)
        found[name] = {"loss": loss.item(), "gradient": torch.autograd.grad(loss, logprobs)[0].tolist(), **metrics}
    return {"inputs": {name: value.tolist() for name, value in given.items()}, "advantages": estimates,
            "losses": found, "sampler": sampler(helper, given), "fipo": fipo(swift, given)}


def sampler(helper: str, given: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """The weights for another sampler; the old log-probs stand for the sampler's."""
    names: dict[str, Any] = {
        "torch": torch, "SAFETY_BOUND": 20.0, "compute_is_metrics": lambda **more: {},
        "verl_F": SimpleNamespace(masked_sum=lambda x, m, axis=None: (x * m).sum(axis), masked_mean=masked_mean)}
    weigh = functions(helper, names, "_parse_rollout_is_threshold", "compute_rollout_correction_weights")[
        "compute_rollout_correction_weights"]
    apart = given["logprobs"] - given["old_logprobs"]
    return [{"level": level, "threshold": bound, "weight": weigh(apart, given["completion_mask"], level, bound)[
        0].tolist()} for level in ("token", "sequence") for bound in (1.2, "0.7_1.5")]


def fipo(swift: str, given: dict[str, torch.Tensor]) -> list[list[float]]:
    """The weight of each token, with a half-life of 3 tokens."""
    weigh = functions(swift, {"torch": torch}, "_compute_fipo_influence")["_compute_fipo_influence"]
    stub = SimpleNamespace(fipo_gamma=2 ** (-1 / 3.0), fipo_clip_range=0.3, fipo_clip_high_only=True,
                           fipo_safety_threshold=1.4, args=SimpleNamespace(delta=None))
    apart = given["logprobs"] - given["old_logprobs"]
    weight: list[list[float]] = weigh(stub, apart, apart.exp(), given["advantages"], given["completion_mask"].bool())[
        0].tolist()
    return weight


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made(*sys.argv[1:4])) + "\n", "utf-8")
