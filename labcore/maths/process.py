"""Process rewards: the loss of a process reward model on steps, how well it finds wrong steps, and the rewards that the
scores of an answer's steps become.

A score s is the probability that a step is right; `steps` says which of K places of a row are steps, the first ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

# ---------------------------------------------------------------- the model


def step_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """L = −y log s − (1 − y) log(1 − s), with s = softmax(z)₁. (N, 2), (N,) -> (N,)

    In nats. A label y is 1 for a right step and 0 for a wrong one, or a share in between. At z = 0 the loss is log 2.

    Source: Lightman et al. 2023, arXiv:2305.20050; TRL 1.13, `PRMTrainer` (y of 0 and 1).
    """
    wrong, right = logits.log_softmax(-1).unbind(-1)
    return -(labels * right + (1 - labels) * wrong)


def auc(scores: Tensor, right: Tensor) -> float:
    """P(score of a right step > score of a wrong step), ties counted half. (N,), bool (N,) -> share; NaN if all steps
    are right or all are wrong.

    Source: Hanley and McNeil 1982, Radiology 143:29 (the area under the ROC curve).
    """
    good, bad = scores[right].double(), scores[~right].double()
    if not len(good) or not len(bad):
        return float("nan")
    ordered = bad.sort().values
    below, up_to = torch.searchsorted(ordered, good), torch.searchsorted(ordered, good, right=True)
    return float((below + up_to).double().mean() / 2 / len(bad))


def first_errors(right: Tensor, steps: Tensor) -> Tensor:
    """The place of the first wrong step of each answer, K where none is. bool (B, K) x 2 -> (B,)

    Source: Zheng et al. 2024, arXiv:2412.06559 (ProcessBench).
    """
    wrong = ~right & steps
    return torch.where(wrong.any(1), wrong.long().argmax(1), right.shape[1])


def best_of_n(scores: Tensor, right: Tensor) -> float:
    """The share of prompts whose highest-scored answer is right; if several answers have the highest score, the share
    of right ones among them. (P, G), bool (P, G) -> share

    Source: Lightman et al. 2023, arXiv:2305.20050, section 3 (best-of-N search with a reward model).
    """
    best = (scores == scores.amax(1, keepdim=True)).double()
    return float(((best * right).sum(1) / best.sum(1)).mean())


# ---------------------------------------------------------------- rewards of steps
# One function for each choice: (B, K) scores -> (B, K) rewards, 0 where there is no step. The sum of a row is what its
# answer earns, by which answers are ranked.


def each_step(scores: Tensor, steps: Tensor) -> Tensor:
    """r_k = s_k. (B, K), bool (B, K) -> (B, K)

    In score. The sum grows with the number of steps, whatever they are worth.

    Source: Lightman et al. 2023, arXiv:2305.20050; Wang et al. 2023, arXiv:2312.08935.
    """
    return torch.where(steps, scores, 0)


def min_form(scores: Tensor, steps: Tensor, min_temperature: float) -> Tensor:
    """r_k = w_k u_k, with u = 2s − 1 and w = softmax(−u/T). (B, K), bool (B, K) -> (B, K)

    From −1 to 1, where u is P(right) − P(wrong): steps before an error share in its loss, later ones do not. As T → 0
    the lowest u alone is earned, where it stands; as T → ∞ the mean.

    Source: Cheng et al. 2025, arXiv:2504.15275 (PURE), as their code has it: CJReinforce/PURE at 41f9363,
    `turn_process_reward_logits_to_reward` (T = 0.1).
    """
    signed = 2 * scores - 1
    weights = (-signed / min_temperature).masked_fill(~steps, -torch.inf).softmax(1)
    return torch.where(steps, weights * signed, 0)


def difference(scores: Tensor, steps: Tensor) -> Tensor:
    """r_k = s_k − s_{k−1}, with s_0 = 0. (B, K), bool (B, K) -> (B, K)

    In score. The sum is the last score, however many steps there are.

    Source: Ng et al. 1999, ICML (a difference of potentials); Setlur et al. 2024, arXiv:2410.08146 (progress).
    """
    before = torch.nn.functional.pad(scores[:, :-1], (1, 0))
    return torch.where(steps, scores - before, 0)


def lowest(scores: Tensor, steps: Tensor) -> Tensor:
    """r_n = min_k s_k at the last step n, else 0. (B, K), bool (B, K) -> (B, K)

    In score.

    Source: Lightman et al. 2023, arXiv:2305.20050, appendix F.
    """
    return _at_last(scores.masked_fill(~steps, torch.inf).amin(1), steps)


def product(scores: Tensor, steps: Tensor) -> Tensor:
    """r_n = Π_k s_k at the last step n, else 0: the probability that every step is right. (B, K), bool (B, K) -> (B, K)

    Without a unit. It falls with every step.

    Source: Lightman et al. 2023, arXiv:2305.20050, section 2.6.
    """
    return _at_last(scores.masked_fill(~steps, 1).prod(1), steps)


def last(scores: Tensor, steps: Tensor) -> Tensor:
    """r_n = s_n at the last step n, else 0. (B, K), bool (B, K) -> (B, K)

    In score.
    """
    return _at_last(scores.gather(1, _last(steps))[:, 0], steps)


def _last(steps: Tensor) -> Tensor:
    return (steps.sum(1, keepdim=True) - 1).clamp(min=0)


def _at_last(values: Tensor, steps: Tensor) -> Tensor:
    placed = values.new_zeros(steps.shape).scatter(1, _last(steps), values[:, None])
    return torch.where(steps, placed, 0)
