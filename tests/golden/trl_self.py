"""Makes `trl_self.json`: the losses of SDFT and SDPO and the teacher's prompts of SDPO, by TRL's own trainers.

Run it where TRL is installed beside the lab (`pip install trl==1.16.0`): `python -m tests.golden.trl_self`.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl
from torch import Tensor
from trl.experimental.sdft.sdft_trainer import DistillationLogits as SDFTLogits
from trl.experimental.sdft.sdft_trainer import SDFTTrainer
from trl.experimental.sdpo.sdpo_trainer import DistillationLogits as SDPOLogits
from trl.experimental.sdpo.sdpo_trainer import SDPOTrainer, SuccessfulRolloutTeacherContextBuilder

MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]])
IDS = torch.tensor([[1, 4, 0], [0, 2, 0], [2, 0, 0], [3, 3, 1]])
CONTEXTS = ([1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0])  # of SDPO: which completions have one
ACCELERATOR = SimpleNamespace(device=torch.device("cpu"), process_index=0, gather=lambda found: found,
                              pad_across_processes=lambda found, **_: found)


def loss(trainer: type, logits: Any, mode: str, student: Tensor, teacher: Tensor, temperature: float,
         contexts: list[int]) -> Tensor:
    """The loss of a trainer on logits before they are divided by the temperature."""
    found = SimpleNamespace(
        args=SimpleNamespace(distillation_mode=mode, distillation_alpha=1.0, distillation_is_clip=2.0),
        accelerator=ACCELERATOR, _log_self_distillation_metric=lambda *_: None)
    mask = MASK * torch.tensor(contexts)[:, None]
    own = student / temperature
    rows = {"completion_ids": IDS, "loss_mask": mask, "student_logits": own, "teacher_logits": teacher / temperature}
    if trainer is SDPOTrainer:
        rows["completion_mask"] = MASK
    old = own.detach().log_softmax(-1).gather(-1, IDS[..., None])[..., 0]
    return trainer._compute_self_distillation_loss(found, SimpleNamespace(training=True), {"old_per_token_logps": old},
                                                   logits(**rows))


def losses(generator: torch.Generator) -> list[dict[str, Any]]:
    cases = []
    for trainer, logits, contexts in ((SDFTTrainer, SDFTLogits, CONTEXTS[0]),
                                      *((SDPOTrainer, SDPOLogits, each) for each in CONTEXTS)):
        for mode in ("full_logits", "sampled_token"):
            for temperature in (1.0, 0.7):
                student, teacher = 2 * torch.randn(2, 4, 3, 5, generator=generator, dtype=torch.float64)
                given = student.clone().requires_grad_()
                value = loss(trainer, logits, mode, given, teacher, temperature, contexts)
                cases.append({"trainer": trainer.__name__, "mode": mode, "temperature": temperature,
                              "contexts": contexts, "student": student.tolist(), "teacher": teacher.tolist(),
                              "loss": value.item(), "gradient": torch.autograd.grad(value, given)[0].tolist()})
    return cases


TEXTS = ["ab", "cd", "ef", "gh", "ij", "kl"]
RIGHT = [[0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]]
FEEDBACK = ["not ab", "yes, cd\n", "", "not gh", "yes, ij", " "]  # in TRL right completions get feedback too


def prompts(right: list[int], success: bool, feedback: bool, only_without: bool) -> dict[str, Any]:
    """The teacher's prompts of six completions in two groups, and which completions have a context."""
    read: list[str] = []

    def tokenize(texts: list[str]) -> list[list[int]]:
        read.extend(texts)
        return [[1]] * len(texts)
    trainer = SimpleNamespace(
        accelerator=ACCELERATOR, model=SimpleNamespace(training=True), num_generations=3,
        args=SimpleNamespace(success_reward_threshold=1.0, dont_reprompt_on_self_success=True,
                             use_successful_as_teacher=success, include_environment_feedback=feedback,
                             environment_feedback_only_without_solution=only_without, max_reprompt_len=64,
                             remove_thinking_from_demonstration=False, reprompt_template="{prompt}{solution}{feedback}",
                             solution_template="|right: {successful_previous_attempt}",
                             feedback_template="|said: {feedback_raw}"),
        _tokenizer=SimpleNamespace(pad_token_id=0), _tokenize_prompts_untruncated=tokenize,
        processing_class=SimpleNamespace(decode=lambda ids, **_: TEXTS[int(ids[0]) - 1]))
    completions = torch.arange(1, 7)[:, None]
    made = SuccessfulRolloutTeacherContextBuilder(trainer).build(
        {"completion_ids": completions, "completion_mask": torch.ones_like(completions)},
        ["p"] * 3 + ["q"] * 3, torch.tensor(right).float(), FEEDBACK)
    return {"right": right, "success": success, "feedback": feedback, "only_without": only_without, "read": read,
            "contexts": made["self_distillation_mask"].int().tolist()}


def made() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(31)
    kinds = ((True, False, False), (False, True, False), (True, True, True))
    return {"meta": {"trl": trl.__version__, "torch": torch.__version__}, "mask": MASK.tolist(), "ids": IDS.tolist(),
            "losses": losses(generator), "texts": TEXTS, "says": FEEDBACK,
            "prompts": [prompts(right, *kind) for right in RIGHT for kind in kinds]}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made()) + "\n", "utf-8")
