"""The tasks' own answers as a third completion beside the two of a pair: the part of the loss that learns them.

They take a pass of their own, with micro-batches of their own, after that of the pairs. So the loss of pairs never sees
three sides, and the gradients add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labcore.errors import LabError
from labcore.llm import preference_objective as objective
from labcore.llm.generation import chosen
from labcore.llm.nets.forward import at_tokens, precision
from labcore.llm.nets.micro_batches import micro_batches
from labcore.llm.rendering import encode_answers
from labcore.llm.session import LlmSession
from labcore.tasks.task import Pair


@dataclass(frozen=True)
class OwnAnswers:
    """The answers that an update learnt: their texts and log-probs before it, nats/sequence; `tokens` of them all."""

    loss: float
    tokens: int
    texts: Sequence[str]
    logprobs: Sequence[float]

    @property
    def mean_logprob(self) -> float:
        return sum(self.logprobs) / len(self.logprobs)

    @property
    def shown(self) -> tuple[Sequence[str], Sequence[float]]:
        """The text and the log-prob of each."""
        return self.texts, [round(each, 5) for each in self.logprobs]


def learn_answers(session: LlmSession, pairs: Sequence[Pair]) -> OwnAnswers:
    """Add the gradient of the loss on the pairs' own answers to the policy's gradient. Raises LabError if a pair has no
    answer."""
    texts = _answers(pairs)
    prompts, answers = encode_answers(session.rendering, pairs, texts, session.context, session.device)
    tokens, loss, logprobs = int(answers.mask.sum()), 0.0, list[float]()
    for some, rows in micro_batches(session.policy, prompts, answers.ids, session.room):
        with precision(session.policy, session.knobs["dtype"]):
            found = at_tokens(session.policy, prompts[some], answers.ids[rows], chosen)[0]
        sums = (found * answers.mask[rows]).sum(1)
        part = objective.answer_loss(session.knobs, sums, tokens / len(texts), len(texts))
        part.backward()
        loss += float(part.detach())
        logprobs += sums.detach().tolist()
    return OwnAnswers(loss, tokens, texts, logprobs)


def _answers(pairs: Sequence[Pair]) -> list[str]:
    missing = next((pair for pair in pairs if not pair.answer), None)
    if missing:
        where = f" in line {missing.line} of your file" if missing.line else ""
        raise LabError(f"The pair{where} has no answer of its own, which the preference loss `answer_sft` learns: give "
                       "every pair the field 'reference', or choose another loss.")
    return [pair.answer for pair in pairs]
