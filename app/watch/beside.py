"""The column beside a watched run: a note that its trainer controls it, its settings, and the owner's marks."""

from __future__ import annotations

import html
from collections.abc import Callable

import streamlit as st

from app import naming
from app.lab import active, in_words, lab
from app.session import close_run, forget, show_error
from app.tokens import literal
from app.training import live, twin
from app.widget_state import widget_state
from labcore.catalog.kinds import WATCH
from labcore.catalog.knob import Value
from labcore.catalog.metrics import OWN
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.lists import marks
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

EVERY = 2.0  # seconds between two looks at the settings of a run that is going
LONGEST = 60  # characters of a setting's value
CSS = """<style>
.rl-settings{max-height:44dvh;overflow:auto;scrollbar-width:thin}
.rl-settings .rl-table{font-size:13px;table-layout:fixed}
.rl-settings td{overflow-wrap:anywhere}.rl-settings th{overflow-wrap:anywhere;width:56%}
.rl-settings tr[data-changed] td{font-weight:600}
</style>"""


def show(run: RunRow) -> None:
    """Show the whole column. On a phone the settings are folded."""
    trainer = literal(run.spec.tool or "its trainer")
    st.caption(f"The lab only shows this run: pause it, stop it or change its settings in {trainer}.")
    twin.link(run)
    if not read_only():
        _marks(run)
    st.checkbox("Show the settings", key="show_knobs", on_change="ignore")  # visible on a phone only; the CSS reads it
    with st.container(key="knobs"):
        st.fragment(_settings, run_every=EVERY if active(run) else None, key="watch:settings")(run)


def _settings(run: RunRow) -> None:
    """Show the current settings, with changed ones first."""
    now, first = live.feed_of(run).knobs(), run.spec.knobs
    if not now:
        st.caption("The trainer sent no settings.")
        return
    changed = [key for key in now if now[key] != first.get(key)]
    ordered = [*changed, *(key for key in now if key not in changed)]
    rows = "".join(_row(key, now[key], key in changed) for key in ordered)
    st.html(f'{CSS}<div class="rl-settings" tabindex="0" role="group" aria-label="Settings"><table class="rl-table">'
            f"{rows}</table></div>")


def _row(key: str, value: Value, changed: bool) -> str:
    text = naming.written(key, value)
    short = text if len(text) <= LONGEST else f"{text[:LONGEST - 1]}…"
    name = html.escape(naming.title(key).removeprefix(OWN))
    return (f'<tr{" data-changed" if changed else ""}><th title="{name}">{name}</th>'
            f'<td title="{html.escape(text[:1000])}">{html.escape(short)}</td></tr>')


# ---- the owner's marks -------------------------------------------------------------------------------------------


def _marks(run: RunRow) -> None:
    """Star, tags, note and deletion of the run."""
    with st.container(horizontal=True, gap="xxsmall", vertical_alignment="center", key="watched_marks"):
        st.button("", icon=":material/star:", key="watch:star", type="primary" if run.star else "tertiary",
                  help="Unstar" if run.star else "Star: a clean-up never deletes it", on_click=_done,
                  args=(lambda: marks.star(lab().store, [run.id], not run.star),))
        with st.popover(literal(", ".join(run.tags)), icon=":material/sell:", help="Tags", type="tertiary"):
            _tags(run)
        with st.popover("", icon=":material/edit_note:", help=literal(run.note) or "Note", type="tertiary"):
            _note(run)
        if not active(run):
            st.button("", icon=":material/delete:", key="watch:delete", type="tertiary", on_click=_delete, args=(run,),
                      help=f"Delete: the page Runs can restore it for {marks.TRASH_DAYS} days")


def _tags(run: RunRow) -> None:
    shown = widget_state(f"watch:tags:{run.id}", list(run.tags))

    def changed() -> None:
        now = shown.taken()
        _done(lambda: marks.tag(lab().store, [run.id], [tag for tag in now if tag not in run.tags],
                                [tag for tag in run.tags if tag not in now]))

    st.multiselect("Tags", list(run.tags), shown.value, key=shown.key, on_change=changed, accept_new_options=True,
                   placeholder="Type a tag, then Enter", width=280)


def _note(run: RunRow) -> None:
    shown = widget_state(f"watch:note:{run.id}", run.note)
    st.text_area("Note", shown.value, key=shown.key, height=140, width=340, max_chars=marks.MOST_NOTE,
                 placeholder="What did you learn from it?",
                 on_change=lambda: _done(lambda: marks.note(lab().store, run.id, shown.taken())))


def _done(do: Callable[[], None]) -> None:
    try:
        do()
    except LabError as error:
        show_error(str(error))


def _delete(run: RunRow) -> None:
    try:
        marks.trash(lab().store, [run.id])
    except LabError as error:
        show_error(str(error))
        return
    forget(run.id)
    close_run(WATCH.key)
    st.toast(in_words(f"{title(run)} deleted. The page Runs can restore it for {marks.TRASH_DAYS} days."))
