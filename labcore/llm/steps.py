"""Answers cut into steps, as a process reward model reads them, and its scores at the end of each.

Without a separator every token is a step, the end token too, and the model reads the policy's own tokens. With one,
each step's text is encoded by itself and the separator stands behind it, also behind the last, as in TRL:

    prompt  step 1 ⏎  step 2 ⏎          read; a score at each ⏎
    prompt  step 1 ⏎  step 2 end        written; the scores stand at ⏎ and end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedTokenizerBase

from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts, padded_prompts
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs, precision
from labcore.llm.nets.micro_batches import WHOLE, Room, micro_batches
from labcore.llm.rendering import Rendering
from labcore.llm.token_texts import token_texts
from labcore.tasks.task import Problem

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Steps:
    """The steps of one answer: their `texts`, the `ids` of each as the model reads them, and `places`, the token of the
    answer at which each step ends; empty if the answer is read from a file."""

    texts: tuple[str, ...]
    ids: tuple[Ids, ...]
    places: tuple[int, ...] = ()

    def beginning(self, step: int) -> str:
        """The answer up to the end of a step."""
        return "".join(self.texts[:step + 1])


def cut_into_steps(tokenizer: PreTrainedTokenizerBase, written: Sequence[int], ends: Sequence[int],
                   separator: str) -> Steps:
    """The steps of an answer with the tokens `written`, of which `ends` are end tokens. The text of a step includes its
    separator; a text between two separators that holds no letter belongs to the step before it."""
    texts = token_texts(tokenizer, [token for token in written if token not in ends])
    texts += [""] * (len(written) - len(texts))
    if not separator:
        return Steps(tuple(texts), tuple((token,) for token in written), tuple(range(len(written))))
    found, places, stop = list[str](), list[int](), 0
    whole, upto = "".join(texts), _lengths(texts)
    for piece in step_texts(whole, separator):
        stop += len(piece)
        found.append(piece)
        places.append(next(place for place, length in enumerate(upto) if length >= stop))
    places[-1] = len(written) - 1
    behind = _encoded(tokenizer, separator)
    ids = [(*_encoded(tokenizer, _without(text, separator)), *behind) for text in found]
    return Steps(tuple(found), tuple(ids), tuple(places))


def given_steps(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], separator: str) -> Steps:
    """The steps of an answer from a file, each with the separator behind it.

    Source: TRL 1.13, `PRMTrainer.tokenize_row`.
    """
    behind = _encoded(tokenizer, separator)
    return Steps(tuple(text + separator for text in texts),
                 tuple((*_encoded(tokenizer, text), *behind) for text in texts))


def step_texts(text: str, separator: str) -> list[str]:
    """Cut a text behind each separator. A piece of separators and whitespace only belongs to the step before it.

    >>> step_texts("2+2=4\\n\\nso 5", "\\n")
    ['2+2=4\\n\\n', 'so 5']
    """
    *closed, rest = text.split(separator)
    found = list[str]()
    for piece in [part + separator for part in closed] + ([rest] if rest or not closed else []):
        if found and not piece.replace(separator, "").strip():
            found[-1] += piece
        else:
            found.append(piece)
    return found


def _without(text: str, separator: str) -> str:
    while text.endswith(separator):
        text = text.removesuffix(separator)
    return text


def _lengths(texts: Sequence[str]) -> list[int]:
    found, length = list[int](), 0
    for text in texts:
        length += len(text)
        found.append(length)
    return found


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


# ---------------------------------------------------------------- encoded

@dataclass(frozen=True)
class Read:
    """P prompts with P·G answers as the model reads them: ids (B, T); `ends` (B, K) are the places of the last token of
    each step, and `steps` (B, K) is False where an answer has fewer."""

    prompts: Prompts
    ids: Tensor
    ends: Tensor
    steps: Tensor

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        last = self.ends.masked_fill(~self.steps, -1).amax(1)
        return int((last + 1).sum())


def encode_steps(rendering: Rendering, problems: Sequence[Problem], answers: Sequence[Steps], context: int,
                 device: torch.device) -> Read:
    """P problems and the steps of P·G answers to them. What does not fit into the `context` is cut off, and the steps
    in it end at the last token that does. Raises LabError if a prompt is empty, cannot be rendered, or fills the
    context."""
    asked = rendering.prompts(problems)
    room = context - max(map(len, asked))
    if room < 1 or not all(asked):
        raise LabError(f"A prompt has {max(map(len, asked))} tokens, but the process reward model reads at most "
                       f"{context} of prompt and answer: shorten the prompt, or choose a model with a longer context.")
    rows = [[token for step in each.ids for token in step][:room] for each in answers]
    ends = [[min(length, room) - 1 for length in _lengths(["x" * len(step) for step in each.ids])] for each in answers]
    width, most = max(map(len, rows)), max(map(len, ends))
    fill = rendering.padding
    return Read(padded_prompts(asked, fill, device),
                torch.tensor([row + [fill] * (width - len(row)) for row in rows], device=device),
                torch.tensor([row + [0] * (most - len(row)) for row in ends], device=device),
                torch.tensor([[True] * len(row) + [False] * (most - len(row)) for row in ends], device=device))


# ---------------------------------------------------------------- scored


def step_logits(model: Critic, prompts: Prompts, ids: Tensor, ends: Tensor, dtype: str) -> Tensor:
    """The two logits after the last token of each step, with their gradient. ids (B, T), ends (B, K) -> (B, K, 2)"""
    with precision(model, dtype):
        outputs = completion_outputs(model, prompts, pad(ids, (0, 1))).float()[:, 1:]  # after each token
    return outputs.gather(1, ends[..., None].expand(-1, -1, outputs.shape[2]))


@torch.no_grad()
def step_scores(model: Critic, read: Read, dtype: str, room: Room = WHOLE) -> Tensor:
    """The probability that each step is right, NaN where there is no step. (B, K)"""
    found = torch.cat([step_logits(model, read.prompts[some], read.ids[rows], read.ends[rows], dtype)
                       for some, rows in micro_batches(model, read.prompts, read.ids, room)])
    return found.softmax(-1)[..., 1].masked_fill(~read.steps, torch.nan)


def at_places(values: Tensor, answers: Sequence[Steps], width: int) -> Tensor:
    """Values (B, K) of steps at the tokens where these end: of several that end at one token the sum. -> (B, width)"""
    placed = values.new_zeros(len(answers), width)
    for row, each in enumerate(answers):
        for place, value in zip(each.places, values[row].tolist(), strict=False):
            placed[row, place] += value
    return placed


def steps_of_completions(tokenizer: PreTrainedTokenizerBase, completions: Completions, ends: Sequence[int],
                         separator: str) -> list[Steps]:
    """The steps of sampled completions."""
    rows = zip(completions.ids.tolist(), completions.lengths.tolist(), strict=True)
    return [cut_into_steps(tokenizer, ids[:length], ends, separator) for ids, length in rows]
