"""Rollouts with several turns: the model writes a turn, the environment answers, and both stand in the context.

A completion is then the whole episode after its prompt. Its mask is True at the tokens of the model alone, ends
included, so whatever is counted, learnt or measured by the mask leaves observations out. Each turn is one call of the
sampler with everything before it as the prompt, so every sampler of the lab plays episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from labcore.llm.batch import Completions, Prompts, decode, padded_prompts
from labcore.llm.rendering import Rendering
from labcore.maths import turns
from labcore.tasks.environment import Begun, EnvironmentTask, Episode, Play
from labcore.tasks.task import Problem


class Draw(Protocol):
    """Completions of prompts, `size` each, of at most `most` tokens."""

    def __call__(self, asked: Prompts, size: int, most: int) -> Completions: ...


@dataclass
class Line:
    """The tokens of an unfinished episode: the prompt, then the later tokens with their log-probs, nats. `own`: the
    model sampled the token. `cut`: a limit of tokens ended the episode."""

    play: Play
    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cut: bool = False

    def add(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Append sampled tokens with their log-probs, or tokens of an observation without log-probs."""
        self.ids += ids
        self.own += [logprobs is not None] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)

    def repeat(self, rendering: Rendering, begun: Sequence[Begun], limit: int) -> bool:
        """Play the turns with which the episode begins. True if another one may follow."""
        for text, instead in begun:
            if self.play.done or self.cut:
                return False
            self.add(rendering.turn(text), [0.0] * len(rendering.turn(text)))
            move = self.play.step(text, instead)
            self.cut = len(self.ids) >= limit
            if not self.play.done and not self.cut:
                self.see(rendering.observation(move.observation, True), limit)
        return not (self.play.done or self.cut)

    def see(self, observation: Sequence[int], limit: int) -> bool:
        """Append an observation. True if the next turn has room for a token."""
        self.cut = len(self.ids) + len(observation) >= limit
        if not self.cut:
            self.add(observation)
        return not self.cut


def played(task: EnvironmentTask, rendering: Rendering, problems: Sequence[Problem], group_size: int,
           prompts: Prompts, limit: int, draw: Draw, begun: Sequence[Begun] = (),
           most: int | None = None) -> tuple[Completions, list[str]]:
    """Play `group_size` episodes of each problem; all episodes of a group start in the same state. `limit` counts the
    tokens of an episode with its observations; `truncated` marks episodes that reached it. Episodes that reach the
    limit of turns are not truncated.

    All episodes continue after the turns `begun`, whose log-probs are 0; the model writes at most `most` further turns.
    Raises LabError if the environment raises or answers with something else than it should.
    """
    rows = [ids[mask].tolist() for ids, mask in zip(prompts.ids, prompts.mask, strict=True)]
    lines = [Line(task.begin(problem), prompt) for problem, prompt in zip(problems, rows, strict=True)
             for _ in range(group_size)]
    going, asked, size = [line for line in lines if line.repeat(rendering, begun, limit)], prompts, group_size
    end = task.max_turns if most is None else min(task.max_turns, len(begun) + most)
    for turn in range(len(begun), end):
        found = list[Line]()
        # Those with less room are drawn by themselves: no token is ever drawn beyond the model's context.
        for room, some in _by_room(going, limit, task.turn_tokens):
            if turn:
                asked, size = padded_prompts([line.prompt + line.ids for line in some], rendering.padding,
                                             prompts.ids.device), 1
            found += _answered(rendering, some, draw(asked, size, room), limit, turn + 1 == end)
        going = found
    return _completions(lines, rendering.padding, prompts.ids.device), [line.play.episode for line in lines]


def warnings(task: EnvironmentTask, completions: Completions, texts: Sequence[str], limit: int) -> Iterator[str]:
    """A sentence for each limit that the episodes of a step should not have met: none ended, or observations were cut
    or did not fit into the `limit` of tokens."""
    found = episodes_of(texts)
    if found and not any(episode.done for episode in found) and not completions.truncated.any():
        yield (f"The environment {task.name} ended no episode of a step: all reached the turn limit of "
               f"{task.max_turns}. Have step return done=True, or raise `max_turns`.")
    if any(episode.cut for episode in found):
        yield (f"Observations of the environment {task.name} were cut to the {task.observation_length} characters that "
               "`observation_length` allows.")
    if found and (completions.truncated & (completions.extents < limit)).any():
        yield (f"Observations of the environment {task.name} did not fit into the {limit} tokens of an episode, which "
               "ended there: return shorter texts, lower `observation_length`, or raise `max_new_tokens`.")


def _by_room(going: Sequence[Line], limit: int, turn_tokens: int) -> Iterator[tuple[int, list[Line]]]:
    """The episodes by how many tokens their next turn may have, most first; all alike unless some near the `limit`."""
    rooms = [min(turn_tokens, limit - len(line.ids)) for line in going]
    for most in sorted({*rooms}, reverse=True):
        yield most, [line for line, room in zip(going, rooms, strict=True) if room == most]


def _answered(rendering: Rendering, going: Sequence[Line], drawn: Completions, limit: int, last: bool) -> list[Line]:
    """Add the sampled turn and its observation to each episode. Returns the episodes that continue; none after the
    `last` turn."""
    found, texts = list[Line](), decode(rendering.tokenizer, drawn, rendering.ends)
    turns = zip(going, texts, drawn.ids.tolist(), drawn.lengths.tolist(), drawn.sampled_logprobs.tolist(),
                drawn.truncated.tolist(), strict=True)
    for line, text, ids, length, logprobs, truncated in turns:
        line.add(ids[:length], logprobs[:length])
        move = line.play.step(text)
        if line.play.done:
            continue
        if last:
            line.cut = truncated and len(line.ids) == limit
        elif line.see(rendering.observation(move.observation, not truncated), limit):
            found.append(line)
    return found


def _completions(lines: Sequence[Line], fill: int, device: torch.device) -> Completions:
    """The episodes as tensors, padded with `fill` on the right."""
    width = max(len(line.ids) for line in lines)

    def column(rows: Sequence[Sequence[float]], filled: float) -> torch.Tensor:
        return torch.tensor([[*row, *[filled] * (width - len(row))] for row in rows], device=device)
    return Completions(column([line.ids for line in lines], fill), column([line.own for line in lines], False),
                       torch.tensor([line.cut for line in lines], device=device),
                       column([line.logprobs for line in lines], 0.0))


def rewards_at_turns(texts: Sequence[str], completions: Completions) -> torch.Tensor | None:
    """The reward of each turn of some episodes, at the last token of the turn; None of other completions. (B, T)"""
    episodes = episodes_of(texts)
    if not episodes:
        return None
    found = torch.zeros(completions.mask.shape, dtype=torch.float64)
    rows, places = turns.lasts(completions.mask).cpu().nonzero(as_tuple=True)  # turn by turn, episode by episode
    found[rows, places] = torch.tensor([reward for episode in episodes for reward in episode.rewards]).double()
    return found


def episodes_of(texts: Sequence[str]) -> list[Episode]:
    """The episodes among some completions: all of them in a task with several turns, else none."""
    return [text for text in texts if isinstance(text, Episode)]
