"""Play an episode yourself, against the model: both get the same hidden start, and stand side by side at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import streamlit as st

from app import jobs
from app.dialogue import CSS, card
from app.playground.place import Place
from labcore.runs.spec.model_names import parse
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.environment import EnvironmentTask, Play
from labcore.tasks.goal import QUIZ_STREAM
from labcore.tasks.task import make_task

KEPT = "playground:episode"  # the number of the episode, and the turns so far


def show(place: Place, spec: RunSpec, settings: Mapping[str, Any]) -> None:
    """The episode so far with a box for the next turn, and once it is over the model's own episode beside it."""
    task = make_task(spec.task_row, spec.knobs, spec.data)
    assert isinstance(task, EnvironmentTask), "its row of the catalog says so"
    with st.expander("Play it yourself, against the model"):
        kept = st.session_state.setdefault(KEPT, {"number": 0, "turns": []})
        seed = place.seed + int(kept["number"])
        played = of(task, seed, kept["turns"])
        over = played.done or len(played.moves) >= task.max_turns
        left, right = st.columns(2, gap="large")
        with left:
            st.html(f"{CSS}<p><b>You</b></p>{card(played.first, pictured(played) | {'open': not over}, 'you')}")
            if not over:
                _box(kept, len(played.moves) + 1, task.max_turns)
        with right:
            if over:
                _models(place, seed, played.first, settings)
            else:
                st.caption("When your episode is over, the model plays one with the same hidden start.")
        if over and st.button("New episode", icon=":material/refresh:"):
            st.session_state[KEPT] = {"number": int(kept["number"]) + 1, "turns": []}
            st.rerun()


def of(task: EnvironmentTask, seed: int, turns: list[str]) -> Play:
    """The episode that a model gets as its only question with this seed, after these turns."""
    [problem] = task.problems(1, np.random.default_rng((seed, QUIZ_STREAM)))
    play = task.begin(problem)
    for text in turns:
        play.step(text)
    return play


def pictured(play: Play) -> dict[str, Any]:
    """An episode as samples hold it."""
    return {"turns": [move._asdict() for move in play.moves], "ended": play.done, "truncated": False,
            "exact": bool(play.moves) and play.episode.score.exact}


def _box(kept: dict[str, Any], turn: int, most: int) -> None:
    with st.form(f"playground:turn:{kept['number']}:{turn}", border=False):
        text = st.text_input(f"Your turn {turn} of at most {most}", key=f"playground:said:{kept['number']}:{turn}")
        if st.form_submit_button("Send", icon=":material/send:") and text:
            kept["turns"].append(text)
            st.rerun()


def _models(place: Place, seed: int, first: str, settings: Mapping[str, Any]) -> None:
    """The first model's own episode."""
    name = parse(place.models[0]).pinned.name
    found, _ = jobs.result({"job": "quiz", "models": [name], "count": 1, "seed": seed, **settings},
                           "The model plays", "playground:play")
    if found is not None:
        [answer] = found["columns"][0]["answers"]
        st.html(f"<p><b>The model</b></p>{card(first, answer)}")
