"""Collect the texts that a TRL trainer learns preferences from: the pairs of DPOTrainer, the labelled completions of
KTOTrainer.

Their batches hold token ids, and their loss computes the log-probs of the tokens under the policy and the reference
model. The method that computes the loss is wrapped, and hooks read both models' outputs while it runs, so no additional
forward pass is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from labcore.watch.trl.rollouts import Failed, Wrapped, listed, numbers, written

LOSS = "compute_loss"
TRAINERS = ("DPOTrainer", "KTOTrainer")
REST = 300.0  # times as long as it took to collect texts, until texts are collected again


class Given:
    """The pairs, or the labelled completions, of a step's first micro-batch.

    Those of one of `every` steps are sent, at most `most` completions, and so seldom that it costs less than 1 % of the
    time; at the end those of the last step. Errors are passed to `failed`, never to the trainer.
    """

    tokens, attached = 0, False  # the trainer counts its tokens itself

    def __init__(self, every: int, most: int, failed: Failed) -> None:
        self._every, self._most, self._failed = max(every, 1), most, failed
        self._trainer: Any = None
        self._wrapped = Wrapped()
        self._made: dict[str, Any] | None = None  # the batch of a step, and columns of log-probs (B, T)
        self._next = 0.0  # time from which texts are sent again
        self._texts: dict[int, str] = {}  # of a token id

    @staticmethod
    def fits(trainer: Any) -> bool:
        """True if this is a trainer whose batches are pairs or labelled completions."""
        return any(each.__name__ in TRAINERS for each in type(trainer).__mro__)

    def attach(self, trainer: Any) -> str:
        """Wrap the trainer's loss. Returns a sentence about the data that the lab will get."""
        self._trainer, self._made, self._next = trainer, None, 0.0
        self._wrapped.put(trainer, LOSS, self._losing)
        return (f"Sent with a step: prompts and completions of its first micro-batch, at most {self._most}, with their "
                "implicit rewards and the log-probs of their tokens under the policy and the reference model. Steps "
                "are skipped if it takes more than 1 % of the time.")

    def detach(self) -> None:
        """Restore the trainer."""
        self._wrapped.undo()
        self._made = None

    # ------------------------------------------------------------ the wrapped method

    def _losing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(model: Any, inputs: Any, *args: Any, **given: Any) -> Any:
            if not (self._trainer.model.training and self._due()):
                return original(model, inputs, *args, **given)
            with self._listening(inputs):
                return original(model, inputs, *args, **given)
        return wrapped

    def _due(self) -> bool:
        """True in the first micro-batch of a step, if its texts may be sent."""
        step = self._trainer.state.global_step
        return step % self._every == 0 and (self._made is None or self._made["step"] != step + 1)

    @contextmanager
    def _listening(self, inputs: Any) -> Iterator[None]:
        """Read the outputs of the policy and of the reference model for a batch."""
        hooks: list[Any] = []
        try:
            self._made = {"step": self._trainer.state.global_step + 1, "inputs": dict(inputs), "columns": {}}
            models: list[Any] = [self._trainer.model, getattr(self._trainer, "ref_model", None)]
            hooks += [each.register_forward_hook(self._heard, with_kwargs=True) for each in models if each is not None]
        except Exception as error:
            self._failed("reading the batch", error)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _heard(self, module: Any, args: Any, given: dict[str, Any], output: Any) -> None:
        """Keep the log-probs of a pass over the batch; KTO's pass over mismatched completions is another one."""
        try:
            assert self._made is not None
            ids, logprobs = given.get("input_ids"), getattr(output, "log_probs", None)
            if logprobs is None or ids is None or ids.data_ptr() != self._made["inputs"]["input_ids"].data_ptr():
                return
            length, columns = ids.shape[1] - 1, self._made["columns"]
            if logprobs.requires_grad:
                columns |= {"logprobs": logprobs[:, -length:].detach(), "entropy": output.entropy[:, -length:].detach()}
            else:
                columns["ref_logprobs"] = logprobs[:, -length:].detach()
        except Exception as error:
            self._failed("reading the log-probs", error)

    # ------------------------------------------------------------ sending

    def send(self, run: Any, step: int, ended: bool = False) -> None:
        """Send the texts of the step that ended, or when the run has `ended` those of its last step."""
        made, begun = self._made, time.monotonic()
        if made is None or (begun < self._next and not ended):
            return
        self._made = None
        inputs, rows = made["inputs"], self._rows(made["inputs"])
        ids, masks, there = (inputs[name][rows].tolist() for name in ("input_ids", "completion_mask", "attention_mask"))
        answers = [[each for each, counts in zip(row, mask, strict=True) if counts]
                   for row, mask in zip(ids, masks, strict=True)]
        prompts = [[each for each, counts, used in zip(row, mask, all_, strict=True) if used and not counts]
                   for row, mask, all_ in zip(ids, masks, there, strict=True)]
        columns = {name: [[value for value, counts in zip(row, mask[1:], strict=True) if counts]
                          for row, mask in zip(listed(values[rows]), masks, strict=True)]
                   for name, values in made["columns"].items()}
        paired = "label" not in inputs
        prompts = prompts[::2] if paired else prompts
        run.rollouts(made["step"], group=2 if paired else 1, prompts=[self._tokenizer.decode(each) for each in prompts],
                     completions=[self._tokenizer.decode(each, skip_special_tokens=True) for each in answers],
                     rewards=self._rewards(inputs, rows, columns), pairs=paired,
                     tokens=[written(self._tokenizer, each, self._texts) for each in answers], **columns)
        self._next = time.monotonic() + REST * (time.monotonic() - begun)

    def _rows(self, inputs: Any) -> list[int]:
        """The rows of a batch that are sent. In a batch of pairs all chosen completions come first; sent are the chosen
        and the rejected one of each pair in turn."""
        count = len(inputs["input_ids"])
        if "label" in inputs:
            return list(range(min(count, self._most)))
        half = count // 2
        return [row for pair in range(min(half, max(self._most // 2, 1))) for row in (pair, half + pair)]

    def _rewards(self, inputs: Any, rows: list[int], columns: dict[str, list[list[float]]]) -> dict[str, list[Any]]:
        """Return the implicit reward β (log π − log π_ref) of each completion, nats; with KTO's labels beside it. TRL
        may have computed the sums of the reference model before the training."""
        found: dict[str, list[Any]] = {}
        known = [inputs[name].tolist() for name in ("ref_chosen_logps", "ref_rejected_logps") if name in inputs]
        sums = [value for pair in zip(*known, strict=True) for value in pair] or (
            inputs["ref_logps"].tolist() if "ref_logps" in inputs else [sum(row) for row in columns.get(
                "ref_logprobs", [])])
        if "logprobs" in columns and sums and getattr(self._trainer, "ld_alpha", None) is None:
            beta = float(self._trainer.beta)
            found["reward"] = numbers([beta * (sum(row) - reference) for row, reference in zip(
                columns["logprobs"], sums, strict=False)])
        if "label" in inputs:
            found["desirable"] = [float(label) for label in inputs["label"][rows].tolist()]
            if "reward" in found:
                found["implicit reward"] = found["reward"]
        return found

    @property
    def _tokenizer(self) -> Any:
        given = self._trainer.processing_class
        return getattr(given, "tokenizer", given)  # an image processor has one
