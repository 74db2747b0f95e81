"""Collect the completions of a TRL trainer: their rewards, their advantages and the log-probs of their tokens.

TRL keeps the texts, rewards and advantages of a generation for its own log, and computes per-token log-probs and
entropies in every forward pass of the loss. Two methods of the trainer are wrapped to collect both, so no additional
forward pass is needed. Tensors stay on their device until the last update on them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

DIGITS = 5  # of the log-probs and entropies that are sent, in nats
_IDS = ("prompt_ids", "completion_ids", "completion_mask")
_FIXED = {"old_logprobs": "old_per_token_logps", "ref_logprobs": "ref_per_token_logps",  # ours -> TRL's
          "sampler_logprobs": "sampling_per_token_logps"}
WATCHED = GENERATES, SCORES = "_generate_and_score_completions", "_get_per_token_logps_and_entropies"
Failed = Callable[[str, BaseException], None]


class Wrapped:
    """The wrapped methods of a trainer, which `undo` restores."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def __contains__(self, name: str) -> bool:
        return any(name == each for _, each, _ in self._before)

    def put(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace a method by `make(method)`."""
        original = getattr(owner, name)
        self._before.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, functools.wraps(original)(make(original)))

    def undo(self) -> None:
        """Restore every replaced method."""
        while self._before:
            owner, name, before = self._before.pop()
            if before is None:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, before)


class Rollouts:
    """The completions of the generation that a trainer is training on.

    `tokens` counts completion tokens of all processes since the start of the run. One of `every` generations is sent,
    with the tokens of its first `most` completions. Errors are passed to `failed`, never to the trainer.
    """

    def __init__(self, every: int, most: int, failed: Failed) -> None:
        self.tokens = 0
        self.attached = False
        self._every, self._most, self._failed = max(every, 1), most, failed
        self._trainer: Any = None
        self._wrapped = Wrapped()
        self._generations = 0
        self._made: dict[str, Any] | None = None  # the current generation: TRL's log of it, and its tensors
        self._before: list[Any] = []  # log-probs computed during generation: (B, C) each
        self._passes: dict[int, tuple[Any, Any, Any]] = {}  # by slice: ids (b, P + C), log-probs, entropies (b, C)
        self._texts: dict[int, str] = {}  # of a token id

    def attach(self, trainer: Any) -> str:
        """Wrap the trainer's methods. Returns a sentence about the data that the lab will get."""
        if not all(hasattr(trainer, name) for name in (GENERATES, SCORES, "_logs")):
            return f"Metrics only: {type(trainer).__name__} generates no completions."
        self._trainer, self.attached = trainer, True
        self._made, self._before, self._passes = None, [], {}
        self._wrapped.put(trainer, GENERATES, self._generating)
        self._wrapped.put(trainer, SCORES, self._scoring)
        return ("Sent with each generation: prompts, completions, rewards by function and advantages; for the tokens "
                f"of the first {self._most} completions their entropy and their log-probs under the policy, the old "
                "policy, the reference model (with β > 0) and vLLM (if it samples).")

    def detach(self) -> None:
        """Restore the trainer."""
        self._wrapped.undo()
        self.attached, self._made, self._passes = False, None, {}

    # ------------------------------------------------------------ wrapped methods

    def _generating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(inputs: Any, *args: Any, **given: Any) -> Any:
            self._before = []
            output = original(inputs, *args, **given)
            try:
                if self._trainer.model.training:
                    self._generated(len(inputs), output)
            except Exception as error:
                self._failed("reading the completions", error)
            return output
        return wrapped

    def _scoring(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(model: Any, ids: Any, *args: Any, **given: Any) -> Any:
            output = original(model, ids, *args, **given)
            try:
                if not given.get("compute_entropy"):  # a pass of the old policy or the reference model, not of the loss
                    self._before.append(output[0])
                elif self._made is not None and self._trainer.model.training:
                    place = self._trainer._step % self._trainer.args.steps_per_generation
                    self._passes[place] = (ids, output[0].detach(), output[1].detach())
            except Exception as error:
                self._failed("reading the log-probs", error)
            return output
        return wrapped

    def _generated(self, rows: int, output: Any) -> None:
        """Record a generation: `rows` completions of this process; the trainer's log has those of all processes."""
        trainer, logs = self._trainer, self._trainer._logs
        rows *= trainer.accelerator.num_processes
        self.tokens += round(trainer._metrics["train"]["completions/mean_length"][-1] * rows)
        self._passes, self._made = {}, None
        self._generations += 1
        if (self._generations - 1) % self._every == 0:
            fixed = {name: output[key][:self._most] for name, key in _FIXED.items() if key in output}
            if "old_logps" in output:  # RLOO returns only sums over completions, and computes the old policy first
                fixed = dict(zip(_FIXED, (each[:self._most] for each in self._before), strict=False))
            self._made = {"prompts": list(logs["prompt"])[-rows:], "completions": list(logs["completion"])[-rows:],
                          "rewards": {name: list(each)[-rows:] for name, each in logs["rewards"].items()},
                          "advantages": list(logs["advantages"])[-rows:], "fixed": fixed,
                          "ids": [output[key][:self._most] for key in _IDS]}

    # ------------------------------------------------------------ sending

    def send(self, run: Any, step: int, ended: bool = False) -> None:
        """Send the generation after its last update, whose step is `step`, or when the run has `ended`."""
        trainer = self._trainer
        if self._made is None:
            return
        if trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations) and not ended:
            return
        made, self._made = self._made, None
        run.rollouts(step, group=int(trainer.num_generations), prompts=[sent_of(each) for each in made["prompts"]],
                     completions=[sent_of(each) for each in made["completions"]],
                     rewards=with_total(made["rewards"], trainer.reward_weights.tolist()),
                     advantages=numbers(made["advantages"]), **self._of_tokens(made))

    def _of_tokens(self, made: dict[str, Any]) -> dict[str, list[Any]]:
        """Return per-token columns: a list for each of the first completions of this process, None for all others."""
        (prompts, ids, mask), count = made["ids"], len(made["completions"])
        # A completion that the loss ignores has an empty mask, but it was sampled too.
        mask = mask.bool() | ((ids != self._tokenizer.pad_token_id) & ~mask.bool().any(1, keepdim=True))
        lengths = mask.sum(1).tolist()
        columns: dict[str, list[Any]] = {
            "tokens": [written(self._tokenizer, row[:length], self._texts)
                       for row, length in zip(ids.tolist(), lengths, strict=True)]}
        found: dict[bytes, tuple[list[float], list[float]]] = {}
        for seen, logprobs, entropies in self._passes.values():
            found |= zip(_keys(seen), zip(listed(logprobs), listed(entropies), strict=True), strict=True)
        rows = [prompt + completion for prompt, completion in zip(_keys(prompts), _keys(ids), strict=True)]
        if all(row in found for row in rows):
            columns["logprobs"], columns["entropy"] = (
                [found[row][part][:length] for row, length in zip(rows, lengths, strict=True)] for part in (0, 1))
        for name, values in made["fixed"].items():
            columns[name] = [row[:length] for row, length in zip(listed(values), lengths, strict=True)]
        if "logprobs" in columns:  # TRL skips the pass of the old policy if it equals the policy
            columns.setdefault("old_logprobs", columns["logprobs"])
        self._passes = {}
        return {name: [*values, *[None] * (count - len(values))] for name, values in columns.items()}

    @property
    def _tokenizer(self) -> Any:
        given = self._trainer.processing_class
        return getattr(given, "tokenizer", given)  # an image processor has one


def written(tokenizer: Any, ids: Sequence[int], known: dict[int, str]) -> list[str]:
    """Return the text of each token. `known` are those of earlier calls."""
    for each in {*ids} - known.keys():
        piece, text = tokenizer.convert_ids_to_tokens(each), tokenizer.decode([each])
        known[each] = f" {text}" if str(piece).startswith("▁") and not text.startswith(" ") else text
    return [known[each] for each in ids]


def _keys(ids: Any) -> list[bytes]:
    """Return a key for each row of ids."""
    return [row.tobytes() for row in ids.cpu().numpy()]


def listed(values: Any) -> list[list[float]]:
    """Return a tensor as rounded lists."""
    rounded: list[list[float]] = values.detach().double().cpu().round(decimals=DIGITS).tolist()
    return rounded


def numbers(values: Sequence[float | None]) -> list[float | None]:
    """Convert NaN to None: a completion that no function scored has no number."""
    return [None if each is None or math.isnan(each) else round(float(each), DIGITS) for each in values]


def with_total(rewards: Mapping[str, Sequence[float | None]],
               weights: Sequence[float]) -> dict[str, list[float | None]]:
    """Return the rewards of each function, and their weighted sum under "reward" as in TRL: without functions that did
    not score a completion, and None if no function did."""
    scores = [numbers(each) for each in rewards.values()]
    if len(scores) == 1 and weights[0] == 1:
        return dict(zip(rewards, scores, strict=True))
    total = [sum(weight * score for weight, score in zip(weights, row, strict=True) if score is not None)
             if any(score is not None for score in row) else None for row in zip(*scores, strict=True)]
    named = [f"function {name}" if name == "reward" else name for name in rewards]
    return {**dict(zip(named, scores, strict=True)), "reward": numbers(total)}


def sent_of(value: Any) -> str | list[dict[str, Any]]:
    """Return a prompt or a completion as it is sent: a text, or the messages of a conversation without pictures."""
    return value if isinstance(value, str) else [
        {"role": str(each.get("role", "")), "content": _content(each.get("content")),
         **({"tool_calls": each["tool_calls"]} if each.get("tool_calls") else {})} for each in value]


def _content(content: Any) -> str:
    if not isinstance(content, (list, tuple)):
        return str(content or "")
    return "".join(part.get("text", f"[{part.get('type')}]") for part in content)  # parts of text and pictures
