"""The answers of up to three models side by side, token by token: drawn in the browser, for its hover and its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.chat_text import thought
from app.components.component import Component
from app.theme import DARK, LIGHT, on
from labcore.runs.spec.model_names import BASE, parse

VIEW = Component(Path(__file__).parent)
REACHES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)  # nats at which the colour is full
MOST_FULL = 0.05  # share of tokens that may lie beyond it


def playground_view(data: dict[str, Any], key: str) -> None:
    """Mount the view. `data` is what `payload` makes."""
    VIEW(key=key, data=data)


def payload(found: dict[str, Any], titles: list[str], runs: list[str], stale: bool = False) -> dict[str, Any]:
    """Prepare the answers `found` by the job "answer" for the browser. `titles` name the models, `runs` their runs;
    `stale`: newer ones are on their way."""
    columns = [{"letter": "ABC"[place], "title": title, "run": run, "name": column["model"],
                "colour": [LIGHT[place], DARK[place]],
                "ink": [on(LIGHT[place]), on(DARK[place])], "ends": column["ends"],
                "base": is_base(column),
                "answers": [each | {"thought": thought(each["tokens"])} for each in column["answers"]]}
               for place, (column, title, run) in enumerate(zip(found["columns"], titles, runs, strict=True))]
    return {"columns": columns, "reach": reach(found), "stale": stale}


def is_base(column: dict[str, Any]) -> bool:
    """Return True if the model is its own base, so that there is nothing to compare it with."""
    return parse(column["model"]).stage == BASE


def reach(found: dict[str, Any]) -> float:
    """Return the log-ratio of the full colour, nats: the least round number that few tokens lie beyond.

    >>> answer = {"logprobs": [-0.1, -0.2, -3.0], "base_logprobs": [-0.1, -0.6, -1.5]}
    >>> reach({"columns": [{"model": "a@3", "answers": [answer]}]})
    2.0
    """
    sizes = sorted(abs(own - base) for column in found["columns"] if not is_base(column) for answer in column["answers"]
                   for own, base in zip(answer["logprobs"], answer["base_logprobs"], strict=True))
    inside = sizes[min(len(sizes) - 1, int(len(sizes) * (1 - MOST_FULL)))] if sizes else 0.0
    return next((each for each in REACHES if inside <= each), REACHES[-1])
