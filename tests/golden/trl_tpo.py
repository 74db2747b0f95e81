"""Makes `trl_tpo.json`: the loss of TRL's own TPOTrainer and its gradient: two sides and the answer beside them.

Run it where TRL is installed beside the lab (`pip install trl==1.16.0`): `python -m tests.golden.trl_tpo`. Its method
`_compute_loss` is called on logits in place of a model: of the chosen sides, the rejected ones and the answers, in this
order, each after a prompt of one token.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl.experimental.tpo import TPOTrainer

LENGTHS = [3, 1, 4, 2, 4, 3, 4, 2, 3]  # of three pairs
CASES = [("sigmoid", 0.1, 0.5, 1.0), ("sigmoid", 1.5, 0.5, 0.3), ("tpo-l", 2.0, 0.7, 1.0), ("tpo-l", 1.0, 0.2, 2.0)]


class _Accelerator:
    """One process, which gathers from itself."""

    gather = gather_for_metrics = staticmethod(lambda tensor: tensor)


def made() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(41)
    logits = torch.randn(9, 5, 6, generator=generator, dtype=torch.float64)
    ids = torch.randint(6, (9, 5), generator=generator)
    mask = torch.tensor([[0, *[1] * length, *[0] * (4 - length)] for length in LENGTHS])
    cases = []
    for kind, beta, gamma, alpha in CASES:
        stub = SimpleNamespace(loss_type=kind, beta=beta, tpo_l_gamma=gamma, tpo_alpha=alpha, label_smoothing=0.0,
                               model=SimpleNamespace(training=True), accelerator=_Accelerator(),
                               _metrics=defaultdict(lambda: defaultdict(list)),
                               _total_train_tokens=0, _tp_size=1)
        given = logits.clone().requires_grad_()

        def model(given: torch.Tensor = given, **_: Any) -> Any:
            return SimpleNamespace(logits=given)

        loss = TPOTrainer._compute_loss(stub, model, {
            "input_ids": ids, "attention_mask": mask, "completion_mask": mask}, False)
        cases.append({"loss_type": kind, "beta": beta, "tpo_l_gamma": gamma, "tpo_alpha": alpha, "loss": loss.item(),
                      "gradient": torch.autograd.grad(loss, given)[0].tolist()})
    return {"meta": {"trl": trl.__version__, "torch": torch.__version__},
            "inputs": {"logits": logits.tolist(), "ids": ids.tolist(), "mask": mask.tolist()}, "cases": cases}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made()) + "\n", "utf-8")
