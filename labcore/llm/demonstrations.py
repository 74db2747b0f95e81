"""Demonstrations in an online run: the right answers of a batch's own prompts are imitated beside the reward (CHORD).

    L = (1 − μ) L_RL + μ mean_t[ −φ_t log π(y*_t) ]

φ is 1, or p(1 − p) of each token, so that tokens which the policy knows or finds impossible count for little.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labcore.errors import LabError
from labcore.llm.generation import chosen
from labcore.llm.nets.forward import at_tokens, precision
from labcore.llm.rendering import encode_examples
from labcore.llm.rollout import Rollout
from labcore.llm.session import LlmSession
from labcore.maths.supervised import nll, uncertain
from labcore.tasks.task import Problem


def demonstrations(session: LlmSession, problems: Sequence[Problem]) -> tuple[Tensor | None, Tensor | None]:
    """The tokens of each problem's answer and a mask of the tokens that count, (P, D) each; (None, None) if the run
    imitates nothing. Raises LabError if no problem has an answer."""
    if not session.knobs.get("sft_weight"):
        return None, None
    has_answer = [bool(problem.answer.strip()) for problem in problems]
    if not any(has_answer):
        raise LabError("No prompt of the batch has an answer, so there is nothing to imitate: set `sft_weight=0`, or "
                       "use a file with answers.")
    answers = encode_examples(session.rendering, problems, session.context, session.device).answers
    return answers.ids, answers.mask & torch.tensor(has_answer, device=session.device)[:, None]


def imitate(session: LlmSession, part: Rollout, total: int) -> float:
    """Add to the gradients that of the demonstrations of a part of an update, of which all have `total` tokens; the sum
    of −log π of its tokens, nats."""
    knobs = session.in_force
    assert part.demonstrations is not None and part.demonstration_mask is not None, "the run imitates something"
    with precision(session.policy, knobs["dtype"]):
        logprobs = at_tokens(session.policy, part.prompts, part.demonstrations, chosen)[0]
    losses = (uncertain if knobs["sft_focus"] else nll)(logprobs)
    (knobs["sft_weight"] * (losses * part.demonstration_mask).sum() / max(total, 1)).backward()
    return float((nll(logprobs.detach()) * part.demonstration_mask).sum())
