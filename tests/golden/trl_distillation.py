"""Makes `trl_distillation.json`: the divergence of GKD by TRL's own GKDTrainer.

Run it where TRL is installed beside the lab (`pip install trl==1.16.0`): `python -m tests.golden.trl_distillation`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import trl
from trl.experimental.gkd import GKDTrainer

BETAS, TEMPERATURES = (0.0, 0.1, 0.5, 0.9, 1.0), (1.0, 0.7)


def made() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(20)
    student, teacher = 2 * torch.randn(2, 2, 3, 6, generator=generator, dtype=torch.float64)
    labels = torch.tensor([[1, 4, -100], [0, 2, 5]])
    cases = []
    for beta in BETAS:
        for temperature in TEMPERATURES:
            given = student.clone().requires_grad_()
            loss = GKDTrainer.generalized_jsd_loss(given, teacher, labels, beta, temperature)
            cases.append({"beta": beta, "temperature": temperature, "loss": loss.item(),
                          "gradient": torch.autograd.grad(loss, given)[0].tolist()})
    return {"meta": {"trl": trl.__version__, "torch": torch.__version__},
            "inputs": {"student": student.tolist(), "teacher": teacher.tolist(), "labels": labels.tolist()},
            "cases": cases}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made()) + "\n", "utf-8")
