"""Makes `later_rows.json`: OTB by verl, GVPO and REAL by their authors' code and A*-PO by TRL.

    python -m tests.golden.later_rows verl/verl/trainer/ppo/core_algos.py GVPO/GVPO/gvpo_core_algos.py \
        REAL/verl/verl/trainer/ppo/core_algos.py trl/trl/experimental/a2po/a2po_trainer.py \
        ms-swift/swift/rlhf_trainers/utils.py

of github.com/verl-project/verl (1dda039), jszkc/GVPO (627aa25), Red-RL/REAL (1c30726), huggingface/trl (1.16) and
modelscope/ms-swift (3602360). None is installed: functions are cut out of their files by name and executed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.verl_rows import functions, inputs, masked_mean

GROUPS = [0, 0, 0, 1, 1, 1]
RIGHT = [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]


def graded(loss: Tensor, logprobs: Tensor) -> dict[str, Any]:
    return {"loss": loss.item(), "gradient": torch.autograd.grad(loss, logprobs)[0].tolist()}


def token_baseline(path: str, given: dict[str, Tensor]) -> dict[str, Any]:
    """OTB on the rewards of the last tokens and on rewards of each token."""
    found = functions(path, {"torch": torch, "np": np, "defaultdict": defaultdict, "AdvantageEstimator": None},
                      "compute_optimal_token_baseline_advantage")["compute_optimal_token_baseline_advantage"]
    mask = given["completion_mask"]
    squares = given["old_logprobs"].exp() ** 2 + 0.05
    last = torch.zeros(6, 7, dtype=torch.float64).scatter(1, mask.sum(1, keepdim=True) - 1,
                                                          given["rewards"].view(6, 1))
    each = last + 0.1 * given["advantages"] * mask
    return {"square_sums": squares.tolist(), "token_rewards": {"last": last.tolist(), "each": each.tolist()},
            **{name: found(rewards, mask, np.array(GROUPS), given["old_logprobs"], squares)[0].tolist()
               for name, rewards in (("last", last), ("each", each))}}


def gvpo(path: str, given: dict[str, Tensor]) -> dict[str, Any]:
    """At β = 0.3; of two groups, so the loss of their code is divided by 2."""
    names = {"torch": torch, "allgather_dict_tensors": lambda data, size, group: data}
    find = functions(path, names, "compute_policy_loss_gvpo")["compute_policy_loss_gvpo"]
    real = torch.distributed.get_world_size
    torch.distributed.get_world_size = lambda group: 1
    mesh = SimpleNamespace(_flatten=lambda: SimpleNamespace(get_group=lambda: None))
    logprobs, mask = given["logprobs"].clone().requires_grad_(), given["completion_mask"]
    centred = given["rewards"] - given["rewards"].mean(1, keepdim=True)
    loss = find(given["old_logprobs"], logprobs, centred.view(6, 1).expand(6, 7), mask, 0.3, torch.tensor(GROUPS), mesh,
                3) / 2
    torch.distributed.get_world_size = real
    return graded(loss, logprobs)


def real(path: str, given: dict[str, Tensor]) -> dict[str, Any]:
    """At τ = 0.5."""
    find = functions(path, {"torch": torch, "verl_F": SimpleNamespace(masked_mean=masked_mean)},
                     "compute_policy_loss_real")["compute_policy_loss_real"]
    logprobs = given["logprobs"].clone().requires_grad_()
    loss = find(given["old_logprobs"], logprobs, None, given["completion_mask"], torch.tensor(GROUPS),
                torch.tensor(RIGHT, dtype=torch.float64).flatten(), 0.1, 0.5)[0]
    return {"rewards": RIGHT, **graded(loss, logprobs)}


def a2po(path: str, given: dict[str, Tensor]) -> dict[str, Any]:
    """At β₂ = 0.3 and given values V*; the old log-probs stand for the reference's."""
    find = functions(path, {"torch": torch}, "compute_loss")["compute_loss"]
    logprobs, mask = given["logprobs"].clone().requires_grad_(), given["completion_mask"]
    summed = (logprobs * mask).sum(1)
    values = [0.4, 0.2, 0.9, 0.1, 0.5, 0.6]
    stub = SimpleNamespace(_get_sequence_logps=lambda *given: summed, args=SimpleNamespace(beta2=0.3),
                           model=SimpleNamespace(training=True), _metrics=defaultdict(lambda: defaultdict(list)))
    loss = find(stub, None, {**dict.fromkeys(("input_ids", "attention_mask", "logits_to_keep")),
                             "ref_logps": (given["old_logprobs"] * mask).sum(1), "rewards": given["rewards"].view(6),
                             "v_star": torch.tensor(values, dtype=torch.float64)})
    return {"values": values, **graded(loss, logprobs)}


def made(verl: str, gvpo_file: str, real_file: str, trl: str) -> dict[str, Any]:
    given = inputs()
    return {"token_baseline": token_baseline(verl, given), "gvpo": gvpo(gvpo_file, given),
            "real": real(real_file, given), "a2po": a2po(trl, given)}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made(*sys.argv[1:5])) + "\n", "utf-8")
