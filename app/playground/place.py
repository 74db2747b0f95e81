"""The link parameters of the Playground: the models, the prompt and the sampling."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app import link
from app.link import param
from labcore.catalog.families.process import RANKINGS
from labcore.catalog.llm.knobs import MAX_NEW_TOKENS, TEMPERATURE, TOP_K, TOP_P
from labcore.errors import LabError, cut
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.model_names import parse
from labcore.tasks.task import Turn

MOST_MODELS, MOST_ANSWERS = 3, 8
ANSWERS, VOTE, BEST = "answers", "vote", "best"
MOST_RANKED = 64  # answers of best of n
ROLES = ("system", "user", "assistant", "tool")


def _models(said: str) -> tuple[str, ...]:
    """Read up to three models by their names."""
    kept, wrong = [], []
    for name in filter(None, said.split(",")):
        try:
            kept.append(parse(name).name)
        except LabError as error:
            wrong.append(str(error))
    wrong = wrong[:MOST_MODELS]
    if beyond := kept[MOST_MODELS:]:
        wrong.append(f"{MOST_MODELS} models answer side by side, so {cut(', '.join(beyond))} "
                     f"{'is' if len(beyond) == 1 else 'are'} left out.")
    if wrong:
        raise link.Partly(tuple(kept[:MOST_MODELS]), " ".join(wrong))
    return tuple(kept)


def _talk(said: str) -> tuple[Turn, ...]:
    """The turns of a conversation: [[role, content], …].

    >>> _talk('[["user", "a"], ["assistant", "b"]]')
    (Turn(role='user', content='a'), Turn(role='assistant', content='b'))
    """
    try:
        rows = json.loads(said)
        turns = tuple(Turn(*map(str, row)) for row in rows)
    except (ValueError, TypeError, RecursionError) as error:
        raise LabError("write the conversation as [[role, content], …]") from error
    if any(turn.role not in ROLES for turn in turns):
        raise LabError(f"the roles of a conversation are {', '.join(ROLES)}")
    return turns


def _talk_written(turns: Sequence[Turn]) -> str:
    return json.dumps([*map(list, turns)], ensure_ascii=False)


def _replay(said: str) -> tuple[int, int, int]:
    """Read a stored episode: the step, the group and the completion, from 0.

    >>> _replay("40.0.3")
    (40, 0, 3)
    """
    parts = said.split(".")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise LabError("write a stored episode as STEP.GROUP.COMPLETION, for example 40.0.3")
    step, group, completion = map(int, parts)
    return step, group, completion


def _temperature(said: str) -> float:
    return 0.0 if said in ("0", "0.0") else float(TEMPERATURE.parse(said))


@dataclass(frozen=True)
class Place:
    """`models` are names of `labcore.runs.spec.model_names`. `prompt` None: the task's first; `answer` None: the task's
    own, "": no verifier.

    `limit` None stands for the length limit of the first run. `scorer` is the reward model of best of n (None: the
    first that fits), `by` the score of its answers, `ranked` how many there are, and `step_separator`, `step_tag` and
    `label_tokens` say how a published one reads steps (None: as the first run, or by default). `own`: each vote is on
    the prompt. `talk` are the turns before the prompt (None: those of the task's own prompt), `system` is the system
    prompt (None: the run's own). `replay` is the stored episode that is played again: of the first model's run, its
    step, group and completion.
    """

    models: tuple[str, ...] = param((), _models, key="runs")
    prompt: str | None = param(None)
    answer: str | None = param(None)
    temperature: float = param(1.0, _temperature, key="t")
    top_k: int = param(0, TOP_K.parse)
    top_p: float = param(1.0, TOP_P.parse)
    seed: int = param(0, link.whole(*WHOLE["seed"]))
    count: int = param(3, link.whole(1, MOST_ANSWERS), key="n")
    limit: int | None = param(None, MAX_NEW_TOKENS.parse, key="max")
    view: str = param(ANSWERS, link.one_of((ANSWERS, VOTE, BEST)))
    own: bool = param(False, link.switch)
    talk: tuple[Turn, ...] | None = param(None, _talk, _talk_written)
    system: str | None = param(None)
    replay: tuple[int, int, int] | None = param(None, _replay, lambda place: ".".join(map(str, place)))
    scorer: str | None = param(None)
    by: str = param(RANKINGS[0], link.one_of(RANKINGS))
    ranked: int = param(16, link.whole(1, MOST_RANKED))
    step_separator: str | None = param(None)
    step_tag: str | None = param(None)
    label_tokens: str | None = param(None)


def now() -> Place:
    """The tab's present place. A widget's callback needs it, because its closure knows only the place at which it was
    drawn."""
    return link.read(Place)[0]


def go(**changes: Any) -> None:
    """Put other values of these fields into the link; the other fields keep their present values."""
    link.turn(Place, **changes)
