"""Advantages from a teacher's log-probs: by hand, beside a slow loop, and at their limits."""


import pytest
import torch

from labcore.llm.teacher import with_divergence
from labcore.maths.aggregation import token_mean
from labcore.maths.token_advantages import teacher_log_ratio, teacher_mean_log_ratio
from tests.references import golden

TRL = golden("trl_opponents")

OLD = torch.tensor([[-1.0, -2.0, -0.5], [-0.25, -9.0, -9.0]], dtype=torch.float64)
TEACHER = torch.tensor([[-0.5, -4.0, -0.5], [-1.25, 7.0, 7.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_worked_by_hand(close):
    close(teacher_log_ratio(TEACHER, OLD, MASK, 0.0, False), [[0.5, -2.0, 0.0], [-1.0, 0.0, 0.0]])
    close(teacher_log_ratio(TEACHER, OLD, MASK, 0.5, False), [[0.5 - 1.0, -2.0, 0.0], [-1.0, 0.0, 0.0]])
    close(teacher_mean_log_ratio(TEACHER, OLD, MASK, 1.0, False), [[-0.5, -1.0, 0.0], [-1.0, 0.0, 0.0]])
    close(teacher_mean_log_ratio(TEACHER, OLD, MASK, 0.5, False), [[-0.5 / 1.75, -2 / 1.5, 0.0], [-1.0, 0.0, 0.0]])


def test_with_the_single_step_term_later_tokens_alone_count(close):
    close(teacher_log_ratio(TEACHER, OLD, MASK, 0.0, True), [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    close(teacher_log_ratio(TEACHER, OLD, MASK, 0.5, True), [[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    later = teacher_mean_log_ratio(TEACHER, OLD, MASK, 0.5, True)
    of_next = teacher_mean_log_ratio(TEACHER, OLD, MASK, 0.5, False)[:, 1:]
    close(later[:, :-1], of_next * MASK[:, 1:])
    assert not later[:, -1].any() and not later[1].any()


@pytest.mark.parametrize("case", TRL["minillm"], ids=lambda case: f"gamma {case['gamma']}")
def test_beside_minillm_in_trl(close, case):
    """Its advantage has the token's own log-ratio too; its single-step term is the KL of each token's distribution."""
    student, teacher = (torch.tensor(case[key], dtype=torch.float64) for key in ("student", "teacher"))
    ids, mask = torch.tensor(case["ids"]), torch.tensor(TRL["mask"])
    own, theirs = (logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0] for logits in (student, teacher))
    close(teacher_mean_log_ratio(theirs, own, torch.ones(3, 3).bool(), case["gamma"], False), case["advantage"])
    student.requires_grad_()
    kl = with_divergence(student, ids, ids, teacher, torch.nn.Identity(), 1.0, False)[3]
    loss = token_mean(kl, mask, total_tokens=int(mask.sum()))
    close(loss, case["loss"], torch.float32)
    close(torch.autograd.grad(loss, student)[0], case["gradient"], torch.float32)


@pytest.mark.parametrize("discount", [0.0, 0.3, 1.0])
def test_beside_a_slow_loop(close, discount):
    generator = torch.Generator().manual_seed(1)
    old, teacher = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([6, 4, 1, 3])[:, None]
    for row in range(4):
        ratios = [float(teacher[row, t] - old[row, t]) for t in range(6) if mask[row, t]]
        for t in range(len(ratios)):
            weights = [discount ** (s - t) for s in range(t, len(ratios))]
            summed = sum(weight * each for weight, each in zip(weights, ratios[t:], strict=True))
            close(teacher_log_ratio(teacher, old, mask, discount, False)[row, t], summed)
            close(teacher_mean_log_ratio(teacher, old, mask, discount, False)[row, t], summed / sum(weights))


def test_a_policy_that_is_its_teacher_has_nothing_to_learn():
    for of in (teacher_log_ratio, teacher_mean_log_ratio):
        assert not of(OLD, OLD, MASK, 0.7, False).any()
