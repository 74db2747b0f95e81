"""All lessons in a list, with how far the reader is."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import streamlit as st

from app.lessons import words
from app.lessons.place import go
from app.tokens import literal
from labcore.analysis.lessons.folders import VARIABLE
from labcore.analysis.lessons.lesson import Lesson
from labcore.analysis.lessons.progress import Attempt

INTRO = ("Each lesson tests a claim. Predict the result, then run it. The verdict is computed from your own runs, "
         "with its uncertainty.")
COLUMNS = 3


def show(lessons: Sequence[Lesson], attempts: Mapping[str, Sequence[Attempt]]) -> None:
    """Cards, a few in a row."""
    done = sum(words.done(attempts.get(lesson.name, ())) for lesson in lessons)
    st.subheader("Lessons", anchor=False)
    st.markdown(f"{INTRO} **{done} of {len(lessons)}** done.")
    for start in range(0, len(lessons), COLUMNS):
        for column, lesson in zip(st.columns(COLUMNS), lessons[start:start + COLUMNS], strict=False):
            with column.container(border=True, height="stretch", gap="xsmall"):
                _card(lesson, attempts.get(lesson.name, ()))
    st.caption(f"Your own lessons are text files in the folder {VARIABLE}; see docs/lessons.md.")


def _card(lesson: Lesson, attempts: Sequence[Attempt]) -> None:
    colour, said = words.state(attempts)
    st.button(f"**{literal(lesson.title)}**", key=f"lesson:{lesson.name}", type="tertiary", on_click=go,
              args=(lesson.name,))
    own = " · your own" if lesson.own else ""
    st.html(f'<div style="font-size:14px" class="rl-status"><span class="rl-dot" style="background:{colour}"></span>'
            f'{html.escape(said)} <span class="rl-muted">{lesson.minutes} min{own}</span></div>')
