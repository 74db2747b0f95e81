"""Makes `trl_opponents.json`: the losses of XPO, Nash-MD and MiniLLM by TRL's own trainers, the last version with them.

Run it where that is installed (`pip install trl==1.9.0`): `python -m tests.golden.trl_opponents`.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from torch import Tensor
from trl.experimental.minillm.minillm_trainer import MiniLLMTrainer
from trl.experimental.nash_md.nash_md_trainer import NashMDTrainer
from trl.experimental.xpo.xpo_trainer import XPOTrainer

MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()


def drawn(generator: torch.Generator, *size: int) -> Tensor:
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def logprobs(generator: torch.Generator) -> Tensor:
    """Log-probs of three completions' tokens, 0 where not counted."""
    return (-drawn(generator, 3, 3).exp()).masked_fill(~MASK, 0)


def xpo(generator: torch.Generator, alpha: float, loss_type: str) -> dict[str, Any]:
    own, of_reference, ref_of_reference, ref_own = (logprobs(generator) for _ in range(4))
    won = torch.tensor([True, False, True])
    given = own.requires_grad_(), of_reference.requires_grad_()
    trainer = SimpleNamespace(beta=0.3, alpha=alpha, args=SimpleNamespace(loss_type=loss_type))
    loss = XPOTrainer._compute_losses(trainer, *given, ref_of_reference, ref_own, won)[0]
    gradients = torch.autograd.grad(loss, given)
    return {"alpha": alpha, "loss_type": loss_type, "beta": 0.3, "won": won.tolist(), "loss": loss.item(),
            "own": own.tolist(), "of_reference": of_reference.tolist(), "ref_own": ref_own.tolist(),
            "ref_of_reference": ref_of_reference.tolist(), "gradients": [each.tolist() for each in gradients]}


def nash_md(generator: torch.Generator, beta: float) -> dict[str, Any]:
    own, reference = logprobs(generator).requires_grad_(), logprobs(generator)
    rewards, opponents = drawn(generator, 2, 3)
    loss = NashMDTrainer._compute_losses(SimpleNamespace(beta=beta), own, reference,
                                         torch.sigmoid(rewards - opponents))[0]
    return {"beta": beta, "own": own.tolist(), "reference": reference.tolist(), "rewards": rewards.tolist(),
            "opponents": opponents.tolist(), "loss": loss.item(),
            "gradient": torch.autograd.grad(loss, own)[0].tolist()}


def minillm(generator: torch.Generator, gamma: float) -> dict[str, Any]:
    """The advantage of whole completions, and the single-step term with its gradient."""
    student, teacher = 2 * drawn(generator, 2, 3, 3, 5)
    ids = torch.tensor([[1, 4, 0], [0, 2, 3], [2, 2, 1]])
    own, theirs = (logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0] for logits in (student, teacher))
    trainer = SimpleNamespace(gamma=gamma, length_normalization=True)
    advantage = MiniLLMTrainer._compute_advantage(trainer, own, theirs, torch.ones(3, 3))
    given = student.clone().requires_grad_()
    loss = MiniLLMTrainer._single_step_decomposition_loss(trainer, given.log_softmax(-1), teacher.log_softmax(-1), MASK)
    return {"gamma": gamma, "student": student.tolist(), "teacher": teacher.tolist(), "ids": ids.tolist(),
            "advantage": advantage.tolist(), "loss": loss.item(),
            "gradient": torch.autograd.grad(loss, given)[0].tolist()}


def made() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(30)
    return {"meta": {"trl": trl.__version__, "torch": torch.__version__}, "mask": MASK.tolist(),
            "xpo": [xpo(generator, alpha, kind) for alpha in (0.0, 0.05) for kind in ("sigmoid", "ipo")],
            "nash_md": [nash_md(generator, beta) for beta in (0.0, 0.1)],
            "minillm": [minillm(generator, gamma) for gamma in (0.0, 0.5, 1.0)]}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made()) + "\n", "utf-8")
