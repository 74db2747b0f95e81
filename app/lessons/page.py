"""The page of the lessons: the list, or the lesson that the link names."""

from __future__ import annotations

import streamlit as st

from app import link, session
from app.lessons import lesson_list, lesson_page
from app.lessons.place import Place
from app.tokens import literal
from labcore.analysis.lessons import folders, progress
from labcore.errors import LabError


def page() -> None:
    """The whole page."""
    session.problem()
    place, _ = link.read(Place)
    lessons, faults = folders.lessons()
    for sentence in faults:
        st.warning(literal(sentence), icon=":material/error:")
    names = [lesson.name for lesson in lessons]
    try:
        if place.lesson in names:
            at = names.index(place.lesson)
            lesson_page.show(lessons[at], lessons[at + 1] if at + 1 < len(lessons) else None)
            return
        if place.lesson:
            folders.find(place.lesson)
    except LabError as error:
        st.error(literal(str(error)), icon=":material/error:")
    try:
        attempts = progress.attempts()
    except LabError as error:
        st.error(literal(str(error)), icon=":material/error:")
        attempts = {}
    lesson_list.show(lessons, attempts)
