"""The page of the lessons: the lesson or the editor that the link names, else the list: the first hour, then all by
topic, each with its picture and how far the reader is."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import streamlit as st

from app import link, session, theme
from app.lab import in_words
from app.lessons import editor, lesson_page, words
from app.lessons.pictures import picture
from app.lessons.place import CSS, Place, go, write
from app.tokens import literal
from labcore.analysis.lessons import folders, progress
from labcore.analysis.lessons.lesson import Lesson
from labcore.analysis.lessons.progress import Attempt
from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.runs.files.paths import read_only

INTRO = "Each lesson tests a claim: predict the result, run it, and get a verdict computed from your own runs."
COLUMNS = 2

Attempts = Mapping[str, Sequence[Attempt]]


def page() -> None:
    """The whole page."""
    session.problem()
    place, _ = link.read(Place)
    st.html(CSS)
    if place.write:
        editor.show(place.write)
        return
    lessons, faults = folders.lessons()
    for sentence in faults:
        st.warning(literal(sentence), icon=":material/error:")
    names = [lesson.name for lesson in lessons]
    try:
        if place.lesson in names:
            lesson_page.show(lessons[names.index(place.lesson)], following(place.lesson, lessons))
            return
        if place.lesson:
            folders.find(place.lesson)
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
    try:
        attempts: Attempts = progress.attempts()
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
        attempts = {}
    _list(lessons, attempts)


def following(name: str, lessons: Sequence[Lesson]) -> Lesson | None:
    """The next lesson of the first hour, for its lessons; else the next one of the list."""
    hour = folders.FIRST_HOUR
    names = [*hour] if name in hour else [lesson.name for lesson in lessons]
    after = names[names.index(name) + 1:][:1]
    return next((lesson for lesson in lessons if lesson.name in after), None)


def _list(lessons: Sequence[Lesson], attempts: Attempts) -> None:
    done = sum(words.done(attempts.get(lesson.name, ())) for lesson in lessons)
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.header("Lessons", anchor=False, width="content")
        st.button("Write a lesson", icon=":material/edit:", key="lesson:write", on_click=write,
                  disabled=read_only(), help="Write, check and preview a lesson for your students, and save it as one "
                  "file to hand out.")
    st.markdown(f"{INTRO} **{done} of {len(lessons)}** done.")
    _first_hour([lesson for name in folders.FIRST_HOUR for lesson in lessons if lesson.name == name], attempts)
    with st.container(key="lesson_cards"):
        for topic in dict.fromkeys(lesson.topic for lesson in lessons):
            st.subheader(literal(topic), anchor=False)
            _cards([lesson for lesson in lessons if lesson.topic == topic], attempts)


def _first_hour(lessons: Sequence[Lesson], attempts: Attempts) -> None:
    """The path for a beginner: six lessons in order, and the next one of them as a button."""
    undone = [lesson for lesson in lessons if not words.done(attempts.get(lesson.name, ()))]
    with st.container(border=True, key="first_hour"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown("**First hour.** Six lessons in this order. The first and the last take place in a small maze; "
                        "the four between show how a language model learns from rewards.", width="content")
            if undone:
                verb = "Begin" if len(undone) == len(lessons) else "Continue"
                st.button(f"{verb} with lesson {lessons.index(undone[0]) + 1}", key="lesson:hour", type="primary",
                          icon=":material/play_arrow:", on_click=go, args=(undone[0].name,))
        for number, (column, lesson) in enumerate(zip(st.columns(len(lessons)), lessons, strict=True), 1):
            mark = str(number) if lesson in undone else "✓"
            column.button(f"**{mark}** {literal(lesson.title)}", key=f"hour:{lesson.name}", on_click=go,
                          args=(lesson.name,), type="tertiary" if lesson not in undone else
                          "primary" if lesson == undone[0] else "secondary")


def _cards(lessons: Sequence[Lesson], attempts: Attempts) -> None:
    """Draw the cards of a topic, two in a row. If their number is odd, the last card fills its row."""
    for start in range(0, len(lessons), COLUMNS):
        row = lessons[start:start + COLUMNS]
        for column, lesson in zip(st.columns(len(row)), row, strict=True):
            with column.container(border=True, height="stretch", gap="xsmall"):
                _card(lesson, attempts.get(lesson.name, ()))


def _card(lesson: Lesson, attempts: Sequence[Attempt]) -> None:
    """A lesson's card: the picture on the left; the title, the question and the reader's progress on the right."""
    place = st.container()
    if not lesson.own:
        left, place = st.columns([1, 1.7], gap="small")
        left.html(picture(lesson, words.done(attempts), theme.ground()))
    with place.container(gap="xsmall"):
        st.button(f"**{literal(lesson.title)}**", key=f"lesson:{lesson.name}", type="tertiary", on_click=go,
                  args=(lesson.name,))
        st.caption(lesson.question)
        st.html(_state(lesson, attempts))
        if lesson.own:
            st.button("Edit", key=f"edit:{lesson.name}", type="tertiary", icon=":material/edit:", on_click=write,
                      args=(lesson.name,), disabled=read_only())


def _state(lesson: Lesson, attempts: Sequence[Attempt]) -> str:
    """The reader's progress, the kind of run and the duration of a lesson, as HTML."""
    kind = KINDS[lesson.setups[0].spec.kind].label
    colour, said = words.state(attempts)
    begun = f'<span class="rl-dot" style="background:{colour}"></span>{html.escape(said)} ' if attempts else ""
    return (f'<div class="rl-status rl-of-lesson">{begun}<span class="rl-muted">{html.escape(kind)} · '
            f"{lesson.minutes} min</span></div>")
