"""Losses of answers' tokens: by hand, beside TRL's GKDTrainer with gradients, and at their limits."""

from math import log

import torch

from labcore.maths.supervised import dft, forward_kl, generalised_jsd, nll, reverse_kl
from tests.references import golden

TRL = golden("trl_distillation")
TWO = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64).log()  # a policy and its teacher


def test_the_divergences_worked_by_hand(close):
    policy, teacher = TWO
    close(forward_kl(policy, teacher), 0.9 * log(0.9 / 0.5) + 0.1 * log(0.1 / 0.5))
    close(reverse_kl(policy, teacher), 0.5 * log(0.5 / 0.9) + 0.5 * log(0.5 / 0.1))
    mixed = (0.7, 0.3)  # β = 1/2
    close(generalised_jsd(policy, teacher, 0.5), sum(
        0.5 * p * log(p / m) + 0.5 * q * log(q / m) for p, q, m in zip((0.5, 0.5), (0.9, 0.1), mixed, strict=True)))
    close(nll(policy[:1]), [log(2)])
    close(dft(policy[:1]), [log(2) / 2])


def test_the_loss_and_its_gradient_are_those_of_gkd_in_trl(close):
    logits, teacher = (torch.tensor(TRL["inputs"][key], dtype=torch.float64) for key in ("student", "teacher"))
    counted = torch.tensor(TRL["inputs"]["labels"]) != -100
    logits.requires_grad_()
    assert {case["beta"] for case in TRL["cases"]} >= {0, 0.5, 1}
    for case in TRL["cases"]:
        policy, theirs = ((each / case["temperature"]).log_softmax(-1) for each in (logits, teacher))
        loss = generalised_jsd(policy, theirs, case["beta"])[counted].sum() / counted.sum()
        close(loss, case["loss"])
        close(torch.autograd.grad(loss, logits)[0], case["gradient"])


def test_limits(close):
    generator = torch.Generator().manual_seed(0)
    policy, teacher = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64).log_softmax(-1)
    assert (forward_kl(policy, teacher) > 0).all() and (reverse_kl(policy, teacher) > 0).all()
    for of in (forward_kl, reverse_kl, lambda p, q: generalised_jsd(p, q, 0.3)):
        close(of(policy, policy), torch.zeros(4))
    small = 1e-6
    torch.testing.assert_close(generalised_jsd(policy, teacher, small) / small, forward_kl(policy, teacher), rtol=1e-5,
                               atol=0)
    torch.testing.assert_close(generalised_jsd(policy, teacher, 1 - small) / small, reverse_kl(policy, teacher),
                               rtol=1e-5, atol=0)
    apart = torch.tensor([[0.0, -800.0], [-800.0, 0.0]], dtype=torch.float64)  # no token in common
    close(generalised_jsd(apart[0], apart[1], 0.5), log(2))
