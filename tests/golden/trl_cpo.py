"""Makes `trl_cpo.json`: losses without a reference by TRL's own CPOTrainer: CPO, SimPO and AlphaPO.

Run it where TRL is installed beside the lab (`pip install trl==1.16.0`): `python -m tests.golden.trl_cpo`. Its method
`cpo_loss` is called on log-probs in place of a model.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl.experimental.cpo import CPOTrainer

CASES = [("sigmoid", 0.1, 0.0, 0.0), ("sigmoid", 2.0, 0.0, 0.0), ("simpo", 2.0, 0.7, 0.0), ("simpo", 2.0, 0.7, 0.25),
         ("simpo", 1.5, 0.2, -0.5), ("simpo", 1.5, 0.2, 1.3)]


def made() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(40)
    sums = -4 * torch.rand(2, 5, generator=generator, dtype=torch.float64)
    lengths, cases = torch.tensor([[3, 1, 5, 2, 4], [2, 4, 4, 1, 6]]), []
    for kind, beta, gamma, alpha in CASES:
        stub = SimpleNamespace(loss_type=kind, beta=beta, simpo_gamma=gamma, alpha=alpha, label_smoothing=0.0,
                               accelerator=SimpleNamespace(device="cpu"))
        given = sums.clone().requires_grad_()
        chosen, rejected = given if kind == "sigmoid" else given / lengths  # its `average_log_prob`
        losses = CPOTrainer.cpo_loss(stub, chosen, rejected)[0]
        cases.append({"loss_type": kind, "beta": beta, "simpo_gamma": gamma, "alpha": alpha, "losses": losses.tolist(),
                      "gradient": torch.autograd.grad(losses.sum(), given)[0].tolist()})
    return {"meta": {"trl": trl.__version__, "torch": torch.__version__},
            "inputs": {"logprobs": sums.tolist(), "lengths": lengths.tolist()}, "cases": cases}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made()) + "\n", "utf-8")
