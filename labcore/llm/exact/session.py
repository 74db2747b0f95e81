"""A language model's session whose records also hold exact reference values.

The loops are the same as for any language model. Before the first update of a step, once the gradient of its batch is
computed, the policy that sampled the batch is run over all completions once, to get its exact values and gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.exact.problem import Enumerated, effective_beta, enumerate_problem, logprobs, rewarded_by
from labcore.llm.exact.teacher import optimum_of
from labcore.llm.exact.truth import Truth, expectation, gradient, truth
from labcore.llm.nets.forward import precision
from labcore.llm.nets.model import build, load
from labcore.llm.nets.table import TABLE, build_table
from labcore.llm.nets.tokenizer import letter_tokenizer
from labcore.llm.networks import NETWORKS, POLICY, REFERENCE, learnt
from labcore.llm.session import LlmSession
from labcore.runs.spec.run_spec import BASE_SEED, RunSpec
from labcore.runs.spec.session import Pictures, Record
from labcore.tasks.enumerable import Enumerable
from labcore.tasks.task import TextTask

# ---------------------------------------------------------------- picture
# The policy beside π_ref and π*, as JSON for the page: the completions that matter most, and all others together.

SHOWN = 24  # completions of a prompt


@torch.no_grad()
def of(problem: Enumerated, truth: Truth, logp: Tensor, ref_logp: Tensor, beta: float) -> dict[str, Any]:
    """`prompts`, each with `rows`, the likeliest first, and `rest`: how many others there are, and their probability.

    A row has its text, whether it ended, its mean reward and its probability under `policy`, `reference` and, where
    there is one, `optimum`. Likely is what is likely under any of the three.
    """
    columns = {"policy": logp, "reference": ref_logp}
    if truth.optimum is not None:
        columns["optimum"] = truth.optimum
    return {"beta": beta, "completions": len(problem.texts),
            "prompts": [_prompt(problem, place, {key: each[place].exp() for key, each in columns.items()})
                        for place in range(len(problem.problems))]}


def _prompt(problem: Enumerated, place: int, columns: dict[str, Tensor]) -> dict[str, Any]:
    likely = torch.stack([*columns.values()]).amax(0)
    first = likely.argsort(descending=True, stable=True)[:SHOWN]
    ended, rewards = (~problem.space.completions.truncated).tolist(), problem.rewards[place].tolist()
    lists = {key: column.tolist() for key, column in columns.items()}
    rows = [{"text": problem.texts[at], "ended": ended[at], "reward": rewards[at],
             **{key: round(each[at], 6) for key, each in lists.items()}} for at in first.tolist()]
    rest = {"count": len(problem.texts) - len(rows),
            **{key: round(max(0.0, 1 - float(column[first].sum())), 6) for key, column in columns.items()}}
    return {"prompt": problem.problems[place].prompt, "rows": rows, "rest": rest}


# ---------------------------------------------------------------- session

@dataclass(frozen=True)
class Measured:
    """Exact values before the updates of the step `step` + 1: `logp` and `ref_logp` (P, N), and metrics."""

    step: int
    beta: float
    truth: Truth
    logp: Tensor
    ref_logp: Tensor
    metrics: dict[str, float]


@dataclass
class ExactSession(LlmSession):
    """A session that adds exact values to each record. `beginning` is the policy with which they are compared: the
    reference, or a frozen copy of the initial policy if the algorithm has no reference. `enumerated` and `measured` are
    computed when they are first needed."""

    beginning: nn.Module | None = None
    enumerated: Enumerated | None = field(default=None, repr=False)
    measured: Measured | None = field(default=None, repr=False)

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> ExactSession:
        """As `LlmSession.start`. Raises LabError as that function, or if the model's tokens are not the problem's
        letters."""
        return ExactSession._start(spec, base_folder, resume)

    def fork(self, spec: RunSpec) -> ExactSession:
        super().fork(spec)
        self.enumerated = self.measured = None
        return self

    @staticmethod
    def _weights(source: str, task: TextTask, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """A table or a random transformer of exactly the problem's letters, the same for all seeds: so all runs of a
        problem have one reference and one optimum."""
        tokenizer, end = letter_tokenizer(task.characters), 0
        if source == TABLE:
            return build_table(len(tokenizer), 1 + cast(Enumerable, task).length, BASE_SEED, end), tokenizer
        if source in MODELS:
            return build(MODELS[source], tokenizer, BASE_SEED), tokenizer
        policy, theirs = load(source)
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise LabError(f"The model has {len(theirs)} tokens, and this problem is written in the letters "
                           f"{', '.join(task.characters)} and the end: take a run of the kind exact with as many "
                           "letters, table or tiny.")
        return policy, theirs

    def _equip(self, resume: Path | None = None) -> None:
        begun = self.beginning
        super()._equip(resume)
        self.beginning = self.models.get(REFERENCE) or begun or NETWORKS[REFERENCE].build(self.policy)

    def _teacher(self) -> PreTrainedModel:
        return optimum_of(self)

    def saved_networks(self) -> dict[str, nn.Module]:
        """As there, and the beginning of a fork that has no reference: its parent may be gone."""
        alone = REFERENCE not in self.models and self.spec.parent is not None
        return super().saved_networks() | ({"beginning": cast(nn.Module, self.beginning)} if alone else {})

    def optimise(self, name: str, learning_rate: float, loss: float) -> float:
        if name == POLICY and (self.measured is None or self.measured.step != self.step):
            self.measured = self._measure()
        return super().optimise(name, learning_rate, loss)

    def run(self) -> Iterator[Record | None]:
        for record in super().run():
            yield record if record is None else self._beside_truth(record)

    def _beside_truth(self, record: Record) -> Record:
        measured, problem = cast(Measured, self.measured), cast(Enumerated, self.enumerated)
        shown = partial(of, problem, measured.truth, measured.logp, measured.ref_logp, measured.beta)
        return replace(record, metrics=record.metrics | measured.metrics,
                       samples=None if record.samples is None else record.samples | {"exact": shown()},
                       look=partial(_look, record, shown))

    def _measure(self) -> Measured:
        """The truth of the policy as it is now, beside the gradient that its parameters hold."""
        if self.enumerated is None or self.enumerated.rewarded != rewarded_by(self):
            self.enumerated = enumerate_problem(self, cast(Enumerable, self.task))
        problem, beta = self.enumerated, effective_beta(self)
        lengths, parameters = problem.space.lengths, learnt(self.policy)
        logp = self._logprobs(self.policy)
        with torch.no_grad():
            ref_logp = self._logprobs(cast(nn.Module, self.beginning))
        found = truth(logp, ref_logp, problem.rewards, beta, lengths)
        exact = gradient(found.objective, parameters)
        own = torch.cat([(torch.zeros_like(weight) if weight.grad is None else weight.grad).double().flatten()
                         for weight in parameters])
        with torch.no_grad():
            ref_length = float(expectation(ref_logp, lengths.double()))
            metrics = {"exact/reward": found.reward, "exact/kl": found.kl / found.length,
                       "exact/kl_reverse": found.kl_reverse / ref_length, "exact/entropy": found.entropy / found.length,
                       "exact/objective": found.objective, "exact/best": found.best}
            if found.distance is not None:
                metrics["exact/distance"] = found.distance
            if (size := float(own.norm() * exact.norm())) > 0:
                metrics["exact/gradient_cosine"] = -(own @ exact) / size
            return Measured(self.step, beta, found, logp.detach(), ref_logp,
                            {key: float(value) for key, value in metrics.items() if value.isfinite()})

    def _logprobs(self, policy: nn.Module) -> Tensor:
        problem = cast(Enumerated, self.enumerated)
        with precision(policy, str(self.knobs["dtype"])):
            return logprobs(policy, problem.prompts, problem.space, float(self.knobs["temperature"]))


def _look(record: Record, shown: partial[dict[str, Any]]) -> Pictures:
    """The pictures of the record's own `look`, with the picture of the exact policies."""
    samples, line = record.look() if record.look else (None, None)
    return None if samples is None else samples | {"exact": shown()}, line
