"""Render a prompt and its answer as the token ids that the model was trained on.

    no template   the tokenizer's own encoding of the text, with its BOS
    template      system, turns and generation prompt by the model's chat template, which writes its own BOS
    an answer     prompt and answer encoded together: it starts where that leaves the prompt alone
    messages      a conversation encoded once; each turn of the assistant starts where its prompt ends

The ids are those of TRL for the same row. Templates are rendered by transformers in its sandbox; no code of a model's
folder is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Protocol

import regex
import torch
from jinja2 import TemplateError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.errors import LabError, first_line
from labcore.llm.batch import Completions, Prompts, padded_completions, padded_prompts
from labcore.llm.templates import Ending, chatml, ends_of, own_template
from labcore.tasks.environment import Episode
from labcore.tasks.task import Problem, Turn, Turns

ASSISTANT, SYSTEM, USER = "assistant", "system", "user"
Ids = Sequence[int] | None
PROBE = "probe"
THINKING = "enable_thinking"  # the argument by which templates switch it
MARKS = regex.compile(r"\{%-?\s*generation\s*-?%\}")  # with which a template marks what the assistant says


class Asked(Protocol):
    """A row of a task that a model can answer: a text, or the turns of a conversation. `line` is its line in the file.
    """

    @property
    def prompt(self) -> str: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def line(self) -> int | None: ...


@dataclass(frozen=True)
class Rendering:
    """The format of a run's prompts: `template` (None: the text unchanged), a `system` turn for prompts that
    have none, `thinking` if the template has such a switch, and the text that every answer `begins_with`.

    `ends` are the ids that end a completion, the tokenizer's own first. A prompt of more than `most` tokens loses its
    beginning. `observer` is the role that answers the model in a task with several turns.
    """

    tokenizer: PreTrainedTokenizerBase
    ends: tuple[int, ...]
    template: str | None = None
    system: str = ""
    thinking: bool | None = None
    begins_with: str = ""
    most: int | None = None
    observer: str = USER

    @staticmethod
    def of(tokenizer: PreTrainedTokenizerBase, model: Ending, knobs: Mapping[str, Any]) -> Rendering:
        """The rendering that a run's knobs ask for, on its model."""
        how, own = knobs.get("template", "auto"), own_template(tokenizer)
        template = None if how == "off" else own if how == "auto" else chatml(tokenizer)
        thinking = {"on": True, "off": False}.get(str(knobs.get("thinking", "auto")))
        found = Rendering(tokenizer, ends_of(tokenizer, model), template, str(knobs.get("system_prompt", "")), thinking,
                          str(knobs.get("begins_with", "")), observer=str(knobs.get("observation_role", USER)))
        return replace(found, ends=tuple(dict.fromkeys((*found.ends, *found.closing))))

    def note_in(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> None:
        """Have them say, once they are saved, how this run wrote prompts and where its completions end."""
        if self.template not in (None, own_template(tokenizer)):
            tokenizer.chat_template = self.template
        if len(self.ends) > 1:
            model.generation_config.eos_token_id = [*self.ends]

    @property
    def closing(self) -> list[int]:
        """The special token with which the template closes an answer: a base model's own end may be another one."""
        if self.template is None:
            return []
        try:
            text = self._written([{"role": USER, "content": PROBE}, {"role": ASSISTANT, "content": PROBE}])
        except TemplateError:
            return []
        first = self._ids([text.rpartition(PROBE)[2]])[0][:1]
        special = {id for id, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        return [token for token in first if token in special.union(self.tokenizer.all_special_ids)]

    @property
    def padding(self) -> int:
        return int(self.tokenizer.pad_token_id)

    @cached_property
    def takes_system(self) -> bool:
        """True if the template has a place for a system turn; without one its text is put before the user's."""
        try:
            self._written([{"role": SYSTEM, "content": "s"}, {"role": USER, "content": "u"}])
        except TemplateError:
            return False
        return True

    def prompts(self, rows: Sequence[Asked]) -> list[list[int]]:
        """The ids of each prompt, up to where the model answers. Raises LabError if a row cannot be rendered."""
        return [self._cut(ids) for ids in self.whole_prompts(rows)]

    def whole_prompts(self, rows: Sequence[Asked]) -> list[list[int]]:
        """The ids of prompts of any length. Raises LabError as `prompts`."""
        return self._ids([self.text(row) for row in rows])

    def answers(self, rows: Sequence[Asked], texts: Sequence[str], ended: Sequence[bool],
                sampled: Sequence[Ids] = ()) -> tuple[list[list[int]], list[list[int]]]:
        """The ids of the prompts of `rows` (P) and of their answers (P·G), encoded together: a prompt ends where
        it alone differs from the text of one of its answers. An answer that `ended` has its end token.

        Where an answer was `sampled` these are its ids, because its text may not encode to them again.
        """
        prompts, size = self.whole_prompts(rows), len(texts) // len(rows)
        given = [rows[place // size] for place in range(len(texts))]
        if all(sampled) and sampled:
            return [self._cut(prompt) for prompt in prompts], [[*ids] for ids in sampled if ids]
        wholes = self._ids([self._answered(row, text, end) for row, text, end in zip(given, texts, ended, strict=True)])
        if self.template is None:
            wholes = [[*whole, self.ends[0]] if end else whole for whole, end in zip(wholes, ended, strict=True)]
        for place, ids in enumerate(sampled or [None] * len(texts)):
            text = texts[place]
            ids = self.episode(text)[0] if ids is None and isinstance(text, Episode) else ids
            wholes[place] = wholes[place] if ids is None else [*prompts[place // size], *ids]
        made = [self._parted(prompt, wholes[place * size: (place + 1) * size], texts[place * size: (place + 1) * size])
                for place, prompt in enumerate(prompts)]
        return [self._cut(prompt) for prompt, _ in made], [answer for _, answers in made for answer in answers]

    def _parted(self, prompt: list[int], wholes: list[list[int]],
                texts: Sequence[str]) -> tuple[list[int], list[list[int]]]:
        """The ids that the prompt and all of `wholes` start with, and the rest of each whole.

        Where the only token of a prompt is merged with the answers, nothing is shared. The first token, which no model
        predicts, is then the prompt; where the answers begin with different ones, each is encoded by itself.
        """
        shared = min(_common(prompt, whole) for whole in wholes)
        if shared or not prompt:
            return prompt[:shared], [whole[shared:] for whole in wholes]
        if len({whole[0] for whole in wholes}) == 1 and all(whole[1:] for whole in wholes):
            return wholes[0][:1], [whole[1:] for whole in wholes]
        alone = self.tokenizer([*texts], add_special_tokens=False)["input_ids"]
        return prompt, [[*ids, *whole[-1:]] if whole[-1] in self.ends else ids
                        for ids, whole in zip(alone, wholes, strict=True)]

    def episode(self, episode: Episode) -> tuple[list[int], list[bool]]:
        """The ids of an episode after its prompt, and which of them are the model's: its turns, with their ends."""
        ids: list[int] = []
        own: list[bool] = []
        for place, move in enumerate(episode.moves):
            turn = self.turn(move.text)
            seen = self.observation(move.observation, True) if place + 1 < len(episode.moves) else []
            ids, own = [*ids, *turn, *seen], [*own, *[True] * len(turn), *[False] * len(seen)]
        return ids, own

    def turn(self, text: str) -> list[int]:
        """The ids of a turn of the model in an episode, with its end."""
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], (self.closing or self.ends)[0]]

    def observation(self, text: str, ended: bool) -> list[int]:
        """The ids between two turns of the model: the template's text and the observation. They start with the end of
        the turn unless the model `ended` it itself. Without a template the observation has lines of its own. Raises
        LabError if the template refuses a turn of that role."""
        if self.template is None:
            found: list[int] = self.tokenizer(f"\n{text}\n{self.begins_with}", add_special_tokens=False)["input_ids"]
            return found if ended else [self.ends[0], *found]
        said = [{"role": USER, "content": PROBE}, {"role": ASSISTANT, "content": PROBE}]
        row, before = Problem(PROBE, ""), self._written(said)
        whole = self._conversation(row, [*said, {"role": self.observer, "content": text}], add_generation_prompt=True)
        ids = self._ids([whole[before.rindex(PROBE) + len(PROBE):] + self.begins_with])[0]
        return ids[ended and ids[0] in self.ends:]

    def _cut(self, prompt: list[int]) -> list[int]:
        return prompt[max(0, len(prompt) - (self.most or len(prompt))):]

    def conversation(self, row: Problem) -> tuple[list[int], list[bool]] | None:
        """The ids of a row's turns with its answer, and a mask of the assistant's turns with their end tokens. The mask
        is the template's, or the span from the prompt of each turn to the start of the next turn.

        None where a turn reads otherwise once others follow, as where the template drops its thoughts: then only the
        last one is what a model would write.
        """
        turns = [*self._turns(row), {"role": ASSISTANT, "content": self.begins_with + row.answer}]
        if MARKS.search(self.template or "") and not self.begins_with:
            marked = self._applied(row, turns, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            return marked["input_ids"], [*map(bool, marked["assistant_masks"])]
        said = [place for place, turn in enumerate(turns) if turn["role"] == ASSISTANT and place]
        *before, last = [self._conversation(row, turns[:place], add_generation_prompt=True) for place in said]
        whole, *parts = self._ids([self._conversation(row, turns), *before, last + self.begins_with,
                                   *(self._conversation(row, turns[:place + 1]) for place in said[:-1])])
        starts, ends = [_common(whole, part) for part in parts[:len(said)]], [*map(len, parts[len(said):]), len(whole)]
        if any(whole[:len(part)] != part for part in parts[len(said):]):
            return None
        spans = [*zip(starts, ends, strict=True)]
        return whole, [any(start <= place < end for start, end in spans) for place in range(len(whole))]

    def text(self, row: Asked) -> str:
        """A prompt as the model reads it, special tokens written out, but for the BOS of a tokenizer."""
        if self.template is None:
            return self._plain(row) + self.begins_with
        return self._conversation(row, self._turns(row), add_generation_prompt=True) + self.begins_with

    def shown(self, row: Asked) -> dict[str, str]:
        """A row's prompt for the page, and `rendered`, the text that the model reads, if the two differ."""
        text = self.text(row)
        return {"prompt": row.prompt, **({"rendered": text} if text != row.prompt else {})}

    def _answered(self, row: Asked, answer: str, ended: bool) -> str:
        if self.template is None or not ended:  # an answer that was cut stands where the model wrote it
            return self.text(row) + answer
        return self._conversation(row, [*self._turns(row), {"role": ASSISTANT, "content": self.begins_with + answer}])

    def with_answer(self, row: Asked, answer: str) -> str:
        """A prompt and its answer as the model reads them; of plain text without the end token."""
        return self._answered(row, answer, True)

    def encoded(self, text: str) -> list[int]:
        """The ids of a rendered text."""
        return self._ids([text])[0]

    def contents(self, row: Asked) -> list[str]:
        """The texts that a template is given, in their order; of plain text the prompt."""
        return [row.prompt] if self.template is None else [turn["content"] for turn in self._turns(row)]

    def _plain(self, row: Asked) -> str:
        if row.turns and own_template(self.tokenizer) is not None:
            raise LabError(f"The prompt{_place(row)} is a conversation, and the model's chat template is off: set "
                           "template=auto.")
        if row.turns:
            raise LabError(f"The prompt{_place(row)} is a conversation, and this model has no chat template: set "
                           "template=chatml, or choose an instruct model.")
        return row.prompt

    def _turns(self, row: Asked) -> list[dict[str, str]]:
        """The turns of a prompt as a template takes them, with the system turn where it belongs."""
        turns = [{"role": role, "content": content} for role, content in row.turns or (Turn(USER, row.prompt),)]
        if self.system and turns[0]["role"] != SYSTEM:
            turns = [{"role": SYSTEM, "content": self.system}, *turns]
        if turns[0]["role"] == SYSTEM and len(turns) > 1 and not self.takes_system:
            first, second, *rest = turns
            turns = [{**second, "content": f"{first['content']}\n\n{second['content']}"}, *rest]
        return turns

    def _conversation(self, row: Asked, turns: list[dict[str, str]], **given: Any) -> str:
        found = self._applied(row, turns, tokenize=False, **given)
        assert isinstance(found, str)
        return found

    def _applied(self, row: Asked, turns: list[dict[str, str]], **given: Any) -> Any:
        try:
            return self._templated(turns, **given)
        except (TemplateError, ValueError, TypeError, KeyError) as error:  # what a template may do to its own arguments
            raise LabError(f"The model's chat template refuses the prompt{_place(row)} ({first_line(error)[:200]}): "
                           "check the order of its roles, or set template=chatml.") from error

    def _written(self, turns: list[dict[str, str]]) -> str:
        return str(self._templated(turns, tokenize=False))

    def _templated(self, turns: list[dict[str, str]], **given: Any) -> Any:
        switched = {} if self.thinking is None else {THINKING: self.thinking}
        return self.tokenizer.apply_chat_template(turns, chat_template=self.template, **switched, **given)

    @property
    def encoding(self) -> dict[str, bool]:
        """Arguments of the tokenizer. A template's text already contains its special tokens, and the character
        tokenizer must not split them into letters."""
        return {"add_special_tokens": True} if self.template is None else {
            "add_special_tokens": False, "split_special_tokens": False}

    def _ids(self, texts: list[str]) -> list[list[int]]:
        found: list[list[int]] = self.tokenizer(texts, **self.encoding)["input_ids"]
        return [ids[:-self._closed] for ids in found] if self.template is None and self._closed else found

    @cached_property
    def _closed(self) -> int:
        """The number of ids that the tokenizer appends to a text, as with add_eos_token; prompts must not have them."""
        alone = self.tokenizer(PROBE, add_special_tokens=False)["input_ids"]
        whole = self.tokenizer(PROBE)["input_ids"]
        size = len(whole) - len(alone)
        return next((after for after in range(size + 1) if whole[size - after:len(whole) - after] == alone), 0)


def encode_prompts(rendering: Rendering, rows: Sequence[Asked], room: int, device: torch.device) -> Prompts:
    """The prompts of `rows` as tensors, of at most `room` tokens: the model's context without the room for completions.
    Raises LabError if a prompt is empty, cannot be rendered, or is longer than `room`; the message names its line."""
    return padded_prompts(_fitting(rows, rendering.prompts(rows), room), rendering.padding, device)


def encode_answers(rendering: Rendering, rows: Sequence[Asked], texts: Sequence[str], context: int,
                   device: torch.device, unended: Sequence[bool] = (),
                   sampled: Sequence[Ids] = ()) -> tuple[Prompts, Completions]:
    """The prompts of `rows` (P) and given answers to them (P·G), each with its end token. Answers are cut if they do
    not fit into the `context` after the longest prompt.

    Where `unended` is True the answer was itself cut when it was sampled, and gets no end token. `sampled` has the ids
    of answers that were sampled, None for each that was not. Raises LabError as `encode_prompts`.
    """
    ended = [not cut for cut in unended or [False] * len(texts)]
    prompts, answers = rendering.answers(rows, texts, ended, sampled)
    return _padded(rendering, rows, prompts, answers, ended, context, device)


@dataclass(frozen=True)
class Examples:
    """SFT examples (N). The mask of `answers` has holes where others than the assistant speak; `last_only` says
    in how many conversations only the last answer is learnt, though there are others."""

    prompts: Prompts
    answers: Completions
    last_only: int


def encode_examples(rendering: Rendering, rows: Sequence[Problem], context: int, device: torch.device) -> Examples:
    """`rows` with their own answers; of whole conversations every turn of the assistant is learnt. Raises LabError as
    `encode_prompts`."""
    prompts, answers = rendering.answers(rows, [row.answer for row in rows], [True] * len(rows))
    learnt, last_only = [[True] * len(answer) for answer in answers], 0
    for place, row in enumerate(rows):
        if isinstance(row.answer, Episode):
            learnt[place] = rendering.episode(row.answer)[1]
        elif row.whole and rendering.template is not None:
            found = rendering.conversation(row)
            if found is None:
                last_only += any(turn.role == ASSISTANT for turn in row.turns)
            elif any(found[1]):
                ids, mask = found
                start = mask.index(True)
                prompts[place], answers[place] = rendering._cut(ids[:start]), ids[start:]
                learnt[place] = mask[start:]
    asked, completions = _padded(rendering, rows, prompts, answers, [True] * len(rows), context, device)
    width = completions.ids.shape[1]
    taught = torch.tensor([[*row, *[False] * width][:width] for row in learnt], device=device)
    return Examples(asked, replace(completions, mask=completions.mask & taught), last_only)


def _padded(rendering: Rendering, rows: Sequence[Asked], prompts: list[list[int]], answers: list[list[int]],
            ended: Sequence[bool], context: int, device: torch.device) -> tuple[Prompts, Completions]:
    limit = context - max(map(len, _fitting(rows, prompts, context - 1)))
    cut = [not end or len(answer) > limit for answer, end in zip(answers, ended, strict=True)]
    return (padded_prompts(prompts, rendering.padding, device),
            padded_completions([answer[:limit] for answer in answers], cut, rendering.padding, device))


def _fitting(rows: Sequence[Asked], ids: list[list[int]], room: int) -> list[list[int]]:
    for row, each in zip(rows, ids, strict=True):
        if not each:
            raise LabError(f"A prompt{_place(row)} is empty: give every prompt at least one character.")
        if len(each) > room:
            raise LabError(f"A prompt{_place(row)} has {len(each)} tokens, but the model has room for {room} before "
                           "the completion: shorten it, lower `max_new_tokens`, or choose a model with a longer "
                           "context.")
    return ids


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of ids that both begin with."""
    if one == other[:len(one)]:  # the usual case, at once
        return len(one)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _place(row: Asked) -> str:
    return f" (line {row.line})" if row.line else ""
