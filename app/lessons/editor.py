"""Write a lesson: on the left a form, and below it the file that the form writes; on the right the first error, or a
preview of the lesson. Save it, or share it as a file."""

from __future__ import annotations

import re
import unicodedata

import streamlit as st

from app.lab import in_words
from app.lessons import lesson_page
from app.lessons.form import Form
from app.lessons.place import go
from app.session import show_error
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.lessons import folders
from labcore.analysis.lessons.folders import NEW
from labcore.analysis.lessons.lesson import Lesson, parse
from labcore.catalog.knob import LETTERS
from labcore.errors import LabError
from labcore.runs.files.paths import read_only

HEIGHT = 480  # of the text
TEXT, NAMED = "lesson:text", "lesson:name"
GREEK = {letter: f" {latex[1:].removeprefix('var')} " for latex, letter in LETTERS.items()}
HELP = ("Settings in TOML between two lines of +++, then the explanation in Markdown. docs/lessons.md has every "
        "setting and the functions of the check.")


def show(name: str) -> None:
    """The editor of the lesson `name` of one's own, or of a new one."""
    st.button("All lessons", icon=":material/arrow_back:", key="lesson:all", type="tertiary", on_click=go)
    st.header("Write a lesson" if name == NEW else f"Edit the lesson {literal(name)}", anchor=False)
    try:
        kept = folders.draft(name)
        left, right = st.columns([1, 1], gap="large")
        with left:
            _begin(name, kept)
            _form(name)
            text = _text(name, kept)
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
        return
    with right:
        lesson = _checked(name, text)
        _share(name, text, lesson)
        if lesson is not None:
            with st.container(border=True, key="lesson_preview"):
                lesson_page.preview(lesson)


def _begin(name: str, kept: str) -> None:
    """Other texts to begin with; a draft that gives way to one of them can be had back."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if name != NEW:
            st.button("Discard changes", icon=":material/undo:", key="lesson:discard", on_click=_keep,
                      args=(name, None), disabled=read_only() or kept == folders.text_of(name),
                      help="Back to the saved lesson")
            return
        titles = {lesson.name: lesson.title for lesson in folders.lessons()[0]}
        begun = widget_state("lesson:copy", None, tuple(titles))
        st.selectbox("Begin with a copy of", list(titles), index=None, key=begun.key, format_func=titles.__getitem__,
                     placeholder="a lesson", width="stretch", on_change=lambda: _copy(begun.taken()))
        with st.popover("Open a file", icon=":material/upload_file:"):
            st.file_uploader("A lesson that somebody shared", type=["md", "txt"], key="lesson:file", on_change=_open,
                             help="The lab reads the file as text and checks it; it executes none of it.")
        if (earlier := folders.before()) is not None and earlier != kept:
            st.button("Earlier draft", icon=":material/undo:", key="lesson:before", on_click=_keep,
                      args=(name, earlier, True), help="Restore the draft that this text replaced")


def _form(name: str) -> None:
    """Show the fields; if the settings cannot be read, a sentence that points to the file."""
    try:
        form = Form(name, lambda: folders.draft(name), lambda text: _keep(name, text), read_only())
    except LabError as error:
        st.info(literal(f"The form cannot read the file: {error} Correct it below."), icon=":material/info:")
        return
    form.show()


def _text(name: str, kept: str) -> str:
    """The text. Every change is kept at once as a draft."""
    shown = widget_state(f"{TEXT}:{name}", kept)
    with st.expander("The file that the form writes", key="lesson_text"):
        return st.text_area("The lesson", kept, height=HEIGHT, key=shown.key, help=HELP, disabled=read_only(),
                            on_change=lambda: _keep(name, str(shown.taken())))


def _keep(name: str, text: str | None, anew: bool = False) -> None:
    try:
        folders.keep_draft(name, text, anew)
    except LabError as error:
        show_error(str(error))


def _copy(name: str | None) -> None:
    if name is not None:
        _keep(NEW, folders.text_of(name), anew=True)


def _open() -> None:
    file = st.session_state["lesson:file"]
    if file is not None:
        try:
            folders.keep_draft(NEW, folders.decoded(file.getvalue()), anew=True)
        except LabError as error:
            show_error(f"The file {file.name} cannot be used: {error}")


def _checked(name: str, text: str) -> Lesson | None:
    """The lesson, or what is wrong with it."""
    try:
        lesson = parse(name, text, own=True)
    except LabError as error:
        st.error(literal(f"Not ready: {error}"), icon=":material/error:")
        return None
    st.success("The lesson has no errors. Readers will see it as shown below.", icon=":material/check:")
    return lesson


def _share(name: str, text: str, lesson: Lesson | None) -> None:
    """The name of the file, and the buttons that save and download it."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        called = name
        if name == NEW:
            called = _name(slug(lesson.title) if lesson else "")
        st.button("Save", type="primary", icon=":material/save:", key="lesson:save", on_click=_save,
                  args=(called, text, name), disabled=lesson is None or read_only())
        st.download_button("Download", text, f"{called or 'lesson'}.md", "text/markdown", icon=":material/download:",
                           key="lesson:download", on_click="ignore",
                           help="One file to hand out. Others open it on this page with “Open a file”.")
    try:
        st.caption(f"Lessons are saved in {literal(str(folders.own_folder()))}.")
    except LabError as error:
        st.caption(in_words(error))


def _name(proposed: str) -> str:
    """The name that was typed, else the proposed one, which follows the title."""
    shown = widget_state(NAMED, st.session_state.get(NAMED) or proposed)
    typed: str = st.text_input("Name", shown.value, key=shown.key, max_chars=folders.LONGEST_NAME,
                               on_change=lambda: st.session_state.update({NAMED: shown.taken()}),
                               help="Of its file and its link: small letters, digits and _")
    return typed


def _save(called: str, text: str, name: str) -> None:
    try:
        folders.save(called, text, "" if name == NEW else name)
        folders.keep_draft(name, None)
        st.session_state.pop(NAMED, None)
    except LabError as error:
        show_error(str(error))
        return
    go(called)


def slug(title: str) -> str:
    """A file's name made of a title.

    >>> slug("How far does a small γ see?"), slug("Δθ without ε")
    ('how_far_does_a_small_gamma_see', 'delta_theta_without_epsilon')
    """
    spelt = "".join(GREEK.get(letter, letter) for letter in unicodedata.normalize("NFKD", title))
    plain = spelt.encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_0123456789")[:folders.LONGEST_NAME].rstrip("_")
