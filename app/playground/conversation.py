"""The conversation that a prompt continues: the turns before it, the system prompt, and an answer as the next turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.playground.models import LETTERS
from app.playground.place import Place, go, now
from app.tokens import literal
from app.widget_state import widget_state
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.task import Problem, Turn, Turns

SHOWN = {"user": "user", "assistant": "assistant"}  # with Streamlit's own pictures


def before(place: Place, known: Mapping[str, Problem], prompt: str) -> Turns:
    """The turns before the prompt: those of the link, else those that the task's own prompt has."""
    if place.talk is not None:
        return place.talk
    return tuple(known[prompt].turns[:-1]) if prompt in known else ()


def asked(place: Place, turns: Turns) -> dict[str, Any]:
    """Return the part of a job's spec about the conversation; empty where there is none."""
    said = [turn._asdict() for turn in turns if turn.role != "system" or place.system is None]
    return ({"turns": said} if said else {}) | ({} if place.system is None else {"system": place.system})


def show(place: Place, spec: RunSpec, turns: Turns) -> None:
    """The system prompt, the turns so far, and the way back to an empty conversation."""
    own = next((turn.content for turn in turns if turn.role == "system"), str(spec.knobs.get("system_prompt", "")))
    typed = widget_state("playground:system", own if place.system is None else place.system)
    st.text_input("System prompt", typed.value, key=typed.key, placeholder="the template's default",
                  on_change=lambda: go(system=typed.taken()))
    said = [turn for turn in turns if turn.role != "system"]
    if not said:
        return
    with st.container(key="playground_talk"):
        for turn in said:
            with st.chat_message(SHOWN.get(turn.role, turn.role)):
                st.markdown(literal(turn.content))
        st.button("New conversation", icon=":material/restart_alt:", key="playground:new", type="tertiary",
                  on_click=lambda: go(talk=(), prompt="", answer=""))


def go_on(prompt: str, turns: Turns, found: Mapping[str, Any]) -> None:
    """A button for each model, which adds its first answer as a turn; the user then writes the next turn."""
    with st.container(horizontal=True, gap="small", key="playground_next"):
        for place, column in enumerate(found["columns"]):
            words = "Continue the conversation" if len(found["columns"]) == 1 else f"Continue with {LETTERS[place]}"
            st.button(words, icon=":material/forum:", key=f"playground:next:{place}", on_click=_continue,
                      args=(prompt, turns, column["answers"][0]["text"]),
                      help="Add this model's first answer to the conversation, then write the next turn.")


def _continue(prompt: str, turns: Turns, answer: str) -> None:
    if now().prompt != "":  # a second click may come before the page is drawn again
        go(talk=(*turns, Turn("user", prompt), Turn("assistant", answer)), prompt="", answer="")
