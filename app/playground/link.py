"""What a link to the Playground says: which models answer what, and how they draw. Only what is no default is in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from labcore.catalog.llm.knobs import MAX_NEW_TOKENS, TEMPERATURE, TOP_K, TOP_P
from labcore.errors import LabError
from labcore.jobs.models import parse
from labcore.spec.run_spec import WHOLE

MOST_MODELS, MOST_ANSWERS = 3, 8
LATE_SECONDS = 5.0  # a rerun with the link of before comes no later
CHOSEN = "playground:chosen"
ANSWERS, VOTE = "answers", "vote"


@dataclass(frozen=True)
class Place:
    """`models` as `labcore.jobs.models` names them. `prompt` None: the task's first; `answer` None: the task's own,
    "": nobody judges.

    `limit` None is the length limit of the first run. `own`: each vote is on the prompt.
    """

    models: tuple[str, ...] = ()
    prompt: str | None = None
    answer: str | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    count: int = 3
    limit: int | None = None
    view: str = ANSWERS
    own: bool = False

    def to_url(self) -> dict[str, str]:
        """The query that opens this again."""
        there = {key: getattr(self, field) for key, (field, _) in KEYS.items()
                 if getattr(self, field) != getattr(Place(), field)}
        return {"runs": ",".join(self.models), **{key: f"{value:g}" if isinstance(value, float | bool) else str(value)
                                                  for key, value in there.items()}}


def _whole(name: str, low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 12 or not low <= int(text) <= high:
            raise LabError(f"{name} must be a whole number from {low} to {high}, not {text!r}")
        return int(text)
    return read


def _temperature(text: str) -> float:
    return 0.0 if text in ("0", "0.0") else float(TEMPERATURE.parse(text))


def _view(text: str) -> str:
    if text not in (ANSWERS, VOTE):
        raise LabError(f"view must be {ANSWERS} or {VOTE}, not {text!r}")
    return text


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise LabError(f"it must be 1 or 0, not {text!r}")
    return text == "1"


# The key in the link: the field, and what reads it.
KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "prompt": ("prompt", str), "answer": ("answer", str), "t": ("temperature", _temperature),
    "top_k": ("top_k", TOP_K.parse), "top_p": ("top_p", TOP_P.parse), "seed": ("seed", _whole("seed", *WHOLE["seed"])),
    "n": ("count", _whole("n", 1, MOST_ANSWERS)), "max": ("limit", MAX_NEW_TOKENS.parse), "view": ("view", _view),
    "own": ("own", _switch),
}


def of(query: dict[str, str]) -> tuple[Place, list[str]]:
    """The place that a query names, and a sentence for each part that cannot be."""
    place, faults, names = Place(), [], []
    for name in filter(None, query.get("runs", "").split(",")):
        try:
            names.append(parse(name).name)
        except LabError as error:
            faults.append(str(error))
    if len(names) > MOST_MODELS:
        faults.append(f"{MOST_MODELS} models answer side by side: {', '.join(names[MOST_MODELS:])} "
                      f"{'is' if len(names) == MOST_MODELS + 1 else 'are'} left out.")
    for key, (field, read) in KEYS.items():
        if key in query:
            try:
                place = replace(place, **{field: read(query[key])})
            except LabError as error:
                faults.append(f"The link holds {key}={query[key]!r}, which is left out: {str(error).rstrip('.')}.")
    return replace(place, models=tuple(names[:MOST_MODELS])), faults


def here() -> dict[str, str]:
    """The query of the link, or the one that this tab has just put there.

    A rerun that was under way when the user chose still brings the link of before: then the choice counts.
    """
    said = st.query_params.to_dict()
    query, before, until = st.session_state.get(CHOSEN, ({}, [], 0.0))
    if said not in before or time.monotonic() >= until:
        return said
    st.query_params.from_dict(query)
    return query


def now() -> Place:
    """Where the tab is at this moment, which a widget's closure cannot know: it was drawn before."""
    return of(here())[0]


def go(**changes: Any) -> None:
    """Put other values of these fields into the URL; the others stay as they are by now."""
    was = here()
    query = replace(of(was)[0], **changes).to_url()
    st.session_state[CHOSEN] = query, [each for each in (was, st.query_params.to_dict()) if each != query], (
        time.monotonic() + LATE_SECONDS)
    st.query_params.from_dict(query)
