"""Makes `trl_sampler.json`: TRL's weights for another sampler, VESPO's with them, and GMPO's mask by entropy.

Run it where TRL is installed beside the lab (`pip install trl==1.16.0`): `python -m tests.golden.trl_sampler`.

Nothing of TRL is written anew here. `_compute_loss` of its trainers is called on tensors in place of a model; the lines
that make the weights are cut out of `_generate_and_score_completions` by their first and last words and executed.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl import GRPOTrainer
from trl.experimental.gmpo import GMPOTrainer
from trl.trainer.callbacks import SyncRefModelCallback

LENGTHS = (7, 5, 3, 1, 6)
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


def inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(38)
    logps, old, sampler = (-torch.randn(5, 7, generator=generator, dtype=torch.float64).abs() for _ in range(3))
    return {"logprobs": logps, "old_logprobs": old, "sampler_logprobs": sampler,
            "entropies": torch.rand(5, 7, generator=generator, dtype=torch.float64),
            "advantages": torch.randn(5, generator=generator, dtype=torch.float64),
            "completion_mask": (torch.arange(7) < torch.tensor(LENGTHS)[:, None]).long()}


def trl_weights(given: dict[str, torch.Tensor], mode: str, low: float | None, high: float) -> torch.Tensor:
    """The weights by TRL's own lines."""
    method = ast.parse(textwrap.dedent(inspect.getsource(GRPOTrainer._generate_and_score_completions)))
    block, = (node for node in ast.walk(method) if isinstance(node, ast.If)
              and "vllm_importance_sampling_correction" in ast.unparse(node.test)
              and "logps_diff = (old" in ast.unparse(node))
    names: dict[str, Any] = {
        "torch": torch, "math": math, "completion_mask": given["completion_mask"], "tool_mask": None,
        "old_per_token_logps": given["old_logprobs"], "sampling_per_token_logps": given["sampler_logprobs"],
        "self": SimpleNamespace(use_vllm=True, vllm_importance_sampling_correction=True,
                                vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_min=low,
                                vllm_importance_sampling_clip_max=high)}
    exec(compile(ast.Module([block], []), "trl", "exec"), names)
    return names["vllm_importance_sampling_ratio"]


def loss(trainer: type, given: dict[str, torch.Tensor], weight: torch.Tensor | None = None,
         **settings: Any) -> dict[str, Any]:
    """The loss of `trainer` and its gradient by the log-probs."""
    logps = given["logprobs"].clone().requires_grad_()
    usual = {"loss_type": "grpo", "beta": 0.0, "epsilon_low": 0.4, "epsilon_high": 0.4, "top_entropy_quantile": 1.0,
             "importance_sampling_level": "token", "use_vllm": weight is not None,
             "vllm_importance_sampling_correction": weight is not None, "off_policy_mask_threshold": None}
    stub = SimpleNamespace(
        **{**usual, **settings}, model=SimpleNamespace(training=True), current_gradient_accumulation_steps=1,
        aux_loss_enabled=False, use_adaptive_entropy=False, _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)), max_completion_length=7,
        accelerator=SimpleNamespace(num_processes=1, gather=lambda each: each, reduce=lambda each, reduction: each,
                                    pad_across_processes=lambda each, **how: each),
        args=SimpleNamespace(delta=None, steps_per_generation=1, use_bias_correction_kl=False, vespo_k_pos=2.0,
                             vespo_lambda_pos=3.0, vespo_k_neg=3.0, vespo_lambda_neg=2.0),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask, get_gamma_weights=GRPOTrainer.get_gamma_weights,
        _get_per_token_logps_and_entropies=lambda *args, **more: (logps, given["entropies"], None))
    stub.get_high_entropy_mask = lambda *args: GRPOTrainer.get_high_entropy_mask(stub, *args)
    batch = {"prompt_ids": torch.zeros(5, 1), "prompt_mask": torch.ones(5, 1), "completion_ids": torch.zeros(5, 7),
             "completion_mask": given["completion_mask"], "advantages": given["advantages"],
             "old_per_token_logps": given["old_logprobs"], "sampling_per_token_logps": given["sampler_logprobs"],
             "num_items_in_batch": given["completion_mask"].sum()}
    if weight is not None:
        batch["importance_sampling_ratio"] = weight
    value = trainer._compute_loss(stub, SimpleNamespace(training=True), batch)
    gradient, = torch.autograd.grad(value, logps)
    return {"loss": value.item(), "gradient": gradient.tolist()}


def moved_reference() -> dict[str, Any]:
    """What TRL's callback for `sync_ref_model` leaves in a reference of one layer."""
    generator, alpha = torch.Generator().manual_seed(1), 0.6
    policy, reference = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    for parameter in (*policy.parameters(), *reference.parameters()):
        torch.nn.init.normal_(parameter, generator=generator)

    def numbers(layer: torch.nn.Module) -> dict[str, Any]:
        return {name: value.tolist() for name, value in layer.state_dict().items()}
    found = {"alpha": alpha, "policy": numbers(policy), "reference": numbers(reference)}
    SyncRefModelCallback._sync_target_model(policy, reference, alpha)
    return found | {"moved": numbers(reference)}


def made() -> dict[str, Any]:
    given = inputs()
    corrected = []
    for mode in MODES:
        for low, high in ((None, 2.0), (0.5, 3.0)):
            weight = trl_weights(given, mode, low, high)
            case: dict[str, Any] = {"mode": mode, "low": low or 0.0, "high": high, "weight": weight.tolist(),
                                    "grpo": loss(GRPOTrainer, given, weight)}
            if mode.startswith("token"):
                case["vespo"] = loss(GRPOTrainer, given, weight, loss_type="vespo")
            corrected.append(case)
    return {"meta": {"trl": trl.__version__, "torch": torch.__version__},
            "inputs": {name: value.tolist() for name, value in given.items()}, "corrected": corrected,
            "moved_reference": moved_reference(),
            "off_policy": [{"threshold": threshold, **loss(GRPOTrainer, given, off_policy_mask_threshold=threshold)}
                           for threshold in (0.01, 0.2)],
            "gmpo": [{"share": share, **loss(GMPOTrainer, given, top_entropy_quantile=share)} for share in (0.2, 0.5)]}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made()) + "\n", "utf-8")
