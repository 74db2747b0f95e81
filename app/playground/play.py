"""Play an episode together with the model: write turns, go back to a turn, or answer in place of the environment.

The hidden start is drawn from the seed, or is that of a stored episode, which is then played again. At the end, an
episode that the model plays by itself from the same start is shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from app import jobs
from app.dialogue import CSS, card
from app.playground.place import Place, go
from app.training import files
from app.widget_state import widget_state
from labcore.runs.spec.model_names import parse
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.environment import Begun, EnvironmentTask, Play
from labcore.tasks.goal import QUIZ_STREAM
from labcore.tasks.task import Problem, make_task

KEPT = "playground:episode"
YOU, MODEL, STORED = "you", "model", "stored"


@dataclass
class Kept:
    """The episode in this browser tab. `of` identifies its start, and `number` counts new episodes. `turns` are the
    turns so far, and `by` says who wrote each. `asked`: number of turns that the model is to write, None for all."""

    of: Any
    number: int = 0
    turns: list[Begun] = field(default_factory=list)
    by: list[str] = field(default_factory=list)
    asked: int | None = 0

    def add(self, text: str, by: str) -> None:
        self.turns.append(Begun(text))
        self.by.append(by)

    def back(self, turn: int) -> None:
        """Forget this turn, from 1, and all after it, and what the model was asked for."""
        del self.turns[turn - 1:], self.by[turn - 1:]
        self.asked = 0


def show(place: Place, spec: RunSpec, settings: Mapping[str, Any]) -> None:
    """The episode so far, with buttons to continue it; at its end, the episode of the model by itself."""
    task = make_task(spec.task_row, spec.knobs, spec.data)
    assert isinstance(task, EnvironmentTask), "its row of the catalog says so"
    with st.expander("Play an episode, with or against the model", expanded=place.replay is not None):
        stored = _stored(place)
        kept = _kept((spec.task, spec.of_task, place.seed, place.replay and place.models[0], place.replay), stored)
        seed, row = place.seed + kept.number, stored[0] if stored else None
        about = {"job": "episode", "model": parse(place.models[0]).pinned.name, "seed": seed, "row": row, **settings}
        played = of(task, seed, kept.turns, row)
        over = played.done or len(played.moves) >= task.max_turns
        left, right = st.columns([1.5, 1], gap="large")
        with left:
            st.html(f"{CSS}{card(played.first, pictured(played, kept.turns) | {'open': not over}, kept.by)}")
            if kept.asked != 0 and not over:
                _model_writes(kept, about)
            elif not over:
                _go_on(kept, played, task.max_turns)
            _back(kept, place)
        with right:
            if over:
                _models(about)
            else:
                st.caption("At the end of this episode, the model plays one by itself with the same hidden start.")


def _kept(of_link: Any, stored: tuple[Any, list[Begun]] | None) -> Kept:
    """This tab's episode: it begins anew where the link has another start, or a run of another environment."""
    kept = st.session_state.get(KEPT)
    if kept is None or kept.of != of_link:
        turns = stored[1] if stored else []
        kept = st.session_state[KEPT] = Kept(of_link, turns=[*turns], by=[STORED] * len(turns))
    return kept


def _stored(place: Place) -> tuple[Any, list[Begun]] | None:
    """The hidden row of the link's stored episode, and its turns; None where there is none."""
    if place.replay is None:
        return None
    step, group, completion = place.replay
    groups = (files.read(parse(place.models[0]).run, "samples", step) or {}).get("groups") or []
    found = groups[group] if group < len(groups) else {}
    members = found.get("completions") or []
    if "row" not in found or completion >= len(members):
        st.info(f"Episode {completion + 1} of group {group + 1} at step {step:,} is not stored, so it cannot be played "
                "again. This is a new episode.", icon=":material/info:")
        return None
    return found["row"], [Begun(turn["text"]) for turn in members[completion]["turns"]]


def of(task: EnvironmentTask, seed: int, turns: list[Begun], row: Any = None) -> Play:
    """The episode of a hidden row, or the one that a model gets as its only question with this seed, after these turns.
    """
    [drawn] = task.problems(1, np.random.default_rng((seed, QUIZ_STREAM)))
    play = task.begin(drawn if row is None else Problem("", "", columns=row))
    for text, instead in turns:
        if not play.done:
            play.step(text, instead)
    return play


def pictured(play: Play, begun: Sequence[Begun] = ()) -> dict[str, Any]:
    """An episode as samples hold it, and which of its turns you have answered in place of the environment."""
    answered = [YOU if each.instead is not None else "" for each in begun] + [""] * len(play.moves)
    return {"turns": [move._asdict() | {"answered": by} for move, by in zip(play.moves, answered, strict=False)],
            "ended": play.done, "truncated": False, "exact": bool(play.moves) and play.episode.score.exact}


def _go_on(kept: Kept, played: Play, most: int) -> None:
    """A box for the next turn, buttons for the model's turns, and a box for an answer of the environment."""
    turn, key = len(played.moves) + 1, f"{kept.number}:{len(kept.turns)}"
    with st.form(f"playground:turn:{key}", border=False), st.container(
            horizontal=True, vertical_alignment="bottom", gap="small"):
        text = st.text_input(f"Your turn {turn} of at most {most}", key=f"playground:said:{key}", width="stretch")
        if st.form_submit_button("Send", icon=":material/send:") and text:
            kept.add(text, YOU)
            st.rerun()
    with st.container(horizontal=True, gap="small"):
        for words, count, icon in (("Model writes this turn", 1, "smart_toy"),
                                   ("Model plays to the end", None, "fast_forward")):
            if st.button(words, icon=f":material/{icon}:", key=f"playground:model:{count}:{key}"):
                kept.asked = count
                st.rerun()
        if played.moves:
            _environment(kept, played.moves[-1].observation, key)


def _environment(kept: Kept, said: str, key: str) -> None:
    """Answer the last turn in place of the environment, whose state and rewards stay as they are."""
    with st.popover("Answer as the environment", icon=":material/edit:"), st.form(f"playground:instead:{key}",
                                                                                  border=False):
        text = st.text_input("The model reads", said, key=f"playground:reads:{key}",
                             help="The model reads this text in place of the environment's last answer. The state and "
                                  "the rewards of the environment do not change.")
        if st.form_submit_button("Replace the answer") and text:
            kept.turns[-1] = kept.turns[-1]._replace(instead=text)
            st.rerun()


def _model_writes(kept: Kept, about: Mapping[str, Any]) -> None:
    """Have the model write the turns that it was asked for, and add them to the episode."""
    found, fresh = jobs.result({**about, "begun": [*map(list, kept.turns)], "turns": kept.asked}, "The model plays",
                               "playground:writes")
    if found is not None and fresh:
        kept.asked = 0
        for turn in found["turns"][len(kept.turns):]:
            kept.add(turn["text"], MODEL)
        st.rerun()


def _back(kept: Kept, place: Place) -> None:
    """Buttons that go back to a turn or begin a new episode."""
    if not kept.turns:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        shown = widget_state("playground:back", None, tuple(range(len(kept.turns))))
        st.pills("Take over from turn", range(1, len(kept.turns) + 1), default=shown.value, key=shown.key,
                 on_change=lambda: kept.back(shown.taken()) if shown.taken() else None)
        st.button("New episode", icon=":material/refresh:", key="playground:again", on_click=_new, args=(kept, place))


def _new(kept: Kept, place: Place) -> None:
    if place.replay is not None:
        go(replay=None)
    else:
        st.session_state[KEPT] = Kept(kept.of, kept.number + 1)


def _models(about: Mapping[str, Any]) -> None:
    """The episode that the model plays by itself."""
    found, _ = jobs.result({**about, "begun": [], "turns": None}, "The model plays alone", "playground:play")
    if found is not None:
        st.html(f"{CSS}<p style='font-size:14px;margin:0 0 4px'>The model by itself, with the same hidden start</p>"
                f"{card(found['first'], found)}")
