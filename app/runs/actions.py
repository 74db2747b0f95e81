"""The actions on the selected runs: a row of buttons above the table, and undo after a deletion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app.lab import in_words, lab
from app.runs import details
from app.runs.state import GENERATION, PICKED, SAID, done, pick, picked, said
from app.session import forget, page_of
from app.status import volume
from app.tokens import literal
from app.widget_state import widget_state
from labcore.catalog.kinds import KINDS
from labcore.runs.files.paths import is_import, read_only
from labcore.runs.imports import imported
from labcore.runs.lists import marks
from labcore.runs.lists.entries import IMPORTED, Entry
from labcore.runs.store.rows import ACTIVE, APART, RESUMABLE
from labcore.runs.titles import title

MOST_COMPARED, MOST_PLAYED = 64, 3  # Compare says which of them it leaves out
PLAYABLE = "llm"  # the kind whose checkpoints answer prompts


def row(entries: Sequence[Entry], everything: Sequence[Entry], deleted: bool) -> None:
    """The buttons for the selected runs among `entries`; without a selection what was said last, or the sum."""
    ids = set(picked())
    chosen = [entry for entry in everything if entry.id in ids]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="actions"):
        if chosen and deleted:
            _of_deleted(chosen)
        elif chosen:
            _of_selected(chosen)
        elif st.session_state.get(SAID):
            _said(*st.session_state[SAID])
        else:
            st.caption(_sum(entries, everything, deleted))
    if chosen and st.session_state.get(SAID):
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="said"):
            _said(*st.session_state[SAID])


def _sum(entries: Sequence[Entry], everything: Sequence[Entry], deleted: bool) -> str:
    if not entries:
        return f"None of the {len(everything):,} runs matches." if everything else ""
    count = f"{len(entries):,} of {len(everything):,}" if len(entries) != len(everything) else f"{len(everything):,}"
    size = volume(sum(entry.summary.size or 0 for entry in entries))
    runs = "run" if len(everything) == 1 else "runs"
    can = ("restore them or delete them for good" if deleted else
           "open or compare them" if read_only() else "open, compare, tag or delete them")
    apart = sum(entry.project in APART for entry in everything) - sum(entry.project in APART for entry in entries)
    left_out = f" · not listed: {apart:,} of lessons and studies (search project=Lessons or project=Studies)"
    return f"{count} {runs} · {size} · select rows to {can}{left_out if apart else ''}"


def _of_selected(chosen: Sequence[Entry]) -> None:
    ids, one = [entry.id for entry in chosen], chosen[0] if len(chosen) == 1 else None
    st.markdown(f"**{len(ids)} selected**", width="content")
    if one and one.kind != IMPORTED:
        st.page_link(page_of(one.kind), label="Open", icon=":material/open_in_full:", query_params={"run": one.id})
    many = len(ids) > MOST_COMPARED
    st.page_link("../pages/compare.py", label="Compare", icon=":material/query_stats:", disabled=many,
                 query_params={"runs": ",".join(ids)}, help=f"Up to {MOST_COMPARED} runs" if many else None)
    if all(entry.kind == PLAYABLE for entry in chosen) and len(ids) <= MOST_PLAYED:
        st.page_link("../pages/playground.py", label="Playground", icon=":material/forum:",
                     query_params={"runs": ",".join(ids)}, help="Ask them the same prompts")
    if not read_only():
        _change(chosen, one)
    if one and st.button("Details", icon=":material/account_tree:", key="act:details",
                         help="Its settings, its parent and its forks"):
        details.show(one)
    _unselect()


def _change(chosen: Sequence[Entry], one: Entry | None) -> None:
    ids = [entry.id for entry in chosen]
    _steer(chosen)
    starred = all(entry.star for entry in chosen)
    _button("Unstar" if starred else "Star", ":material/star:", lambda: marks.star(lab().store, ids, not starred),
            "A clean-up never deletes starred runs")
    with st.popover("Tags", icon=":material/sell:"):
        _tags(chosen)
    if one:
        with st.popover("Note", icon=":material/edit_note:"):
            _note(one)
    _button("Delete", ":material/delete:", lambda: _delete(chosen), "They can be restored for "
            f"{marks.TRASH_DAYS} days")


def _button(label: str, icon: str, do: Callable[[], None], help: str | None = None, primary: bool = False,
            disabled: bool = False) -> None:
    st.button(label, icon=icon, key=f"act:{label}", on_click=done, args=(do,), help=help, disabled=disabled,
              type="primary" if primary else "secondary")


def _unselect() -> None:
    st.button("", icon=":material/close:", key="act:none", help="Select nothing", type="tertiary",
              on_click=_select_nothing)


def _select_nothing() -> None:
    said(None)
    pick([])
    st.session_state[GENERATION] = st.session_state.get(GENERATION, 0) + 1


def _steer(chosen: Sequence[Entry]) -> None:
    """Resume the runs that can be resumed, and stop the running ones."""
    here = [entry for entry in chosen if entry.kind in KINDS]  # no watched runs
    resumable = [entry.id for entry in here if entry.state in RESUMABLE]
    going = [entry.id for entry in here if entry.state in ACTIVE]
    if len(resumable) == len(chosen):
        _button("Resume", ":material/play_arrow:", lambda: _resume(resumable), "From the last checkpoint")
    if going:
        asked = all(entry.pending == "stopping" for entry in chosen if entry.id in going)
        _button("Stop", ":material/stop:", lambda: _stop(going), "It stops after its current step" if asked else
                "With a checkpoint, so that it can be resumed", disabled=asked)


def _resume(run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        lab().launcher.resume(run_id)


def _stop(run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        lab().store.ask(run_id, "stop")
    live = sum(bool(run.pending) for run in lab().store.runs_named(run_ids).values())
    if live:
        said(f"{live} {'runs stop after their' if live > 1 else 'run stops after its'} current step.")


def _tags(chosen: Sequence[Entry]) -> None:
    """The tags that all chosen runs have; adding or removing one changes all of them."""
    ids = [entry.id for entry in chosen]
    known = sorted({tag for entry in chosen for tag in entry.tags})
    shared = [tag for tag in known if all(tag in entry.tags for entry in chosen)]
    shown = widget_state(f"runs:tags:{','.join(ids)}", shared)

    def changed() -> None:
        now = shown.taken()
        done(lambda: marks.tag(lab().store, ids, add=[tag for tag in now if tag not in shared],
                               remove=[tag for tag in shared if tag not in now]))
        shown.back()

    st.multiselect("Tags", known, shown.value, key=shown.key, on_change=changed, accept_new_options=True,
                   placeholder="Type a tag, then Enter", help="Search for one with tag=name", width=280)
    if some := [tag for tag in known if tag not in shared]:
        st.caption(f"Some of them have {literal(', '.join(some))}.")


def _note(entry: Entry) -> None:
    shown = widget_state(f"runs:note:{entry.id}", entry.note)

    def typed() -> None:
        marks.note(lab().store, entry.id, st.session_state[shown.key])  # where it is refused, the words stay in the box
        shown.taken()

    st.text_area("Note", shown.value, key=shown.key, height=140, width=340, placeholder="What did you learn from it?",
                 max_chars=marks.MOST_NOTE, on_change=lambda: done(typed))
    st.caption("Kept when you click elsewhere.")


def _delete(chosen: Sequence[Entry]) -> None:
    ids = [entry.id for entry in chosen]
    marks.trash(lab().store, ids)
    for run_id in ids:
        forget(run_id)
    st.session_state[PICKED] = []
    said(f"{_runs(chosen)} deleted.", undo=ids)


def _of_deleted(chosen: Sequence[Entry]) -> None:
    ids = [entry.id for entry in chosen]
    st.markdown(f"**{len(ids)} selected**", width="content")
    if not read_only():
        _button("Restore", ":material/restore_from_trash:", lambda: _restore(ids), primary=True)
        with st.popover("Delete for good", icon=":material/delete_forever:"):
            st.markdown(f"Delete {literal(_runs(chosen))} for good, with curves and checkpoints?")
            _button("Delete for good", ":material/delete_forever:", lambda: _purge(chosen), primary=True)
    _unselect()


def _restore(ids: Sequence[str]) -> None:
    """They may be out of the trash already: another tab can have brought them back."""
    marks.restore(lab().store, ids)  # says so where one was deleted for good
    st.session_state[PICKED] = []
    said(f"{f'{len(ids)} runs' if len(ids) > 1 else _title(ids[0])} restored.")


def _title(run_id: str) -> str:
    """Return the title of a run that exists, also of another tool's."""
    return imported.label(run_id) if is_import(run_id) else title(lab().store.run(run_id))


def _purge(chosen: Sequence[Entry]) -> None:
    purged = set(marks.purge(lab().store, 0, [entry.id for entry in chosen]))
    gone = [entry for entry in chosen if entry.id in purged]
    st.session_state[PICKED] = []
    said((f"{_runs(gone)} deleted for good." if gone else "Nothing was deleted.")
         + (" Runs restored since then are kept." if len(gone) < len(chosen) else ""))


def empty_trash(entries: Sequence[Entry]) -> None:
    """Draw the button that empties the trash: it says how much that frees, and asks."""
    size = volume(sum(entry.summary.size or 0 for entry in entries))
    with st.popover(f"Empty the trash ({size})", icon=":material/delete_forever:"):
        st.markdown(f"Delete {literal(_runs(entries))} for good? This frees {size} and cannot be undone.")
        _button("Empty the trash", ":material/delete_forever:", lambda: _purge(entries), primary=True)


def _runs(chosen: Sequence[Entry]) -> str:
    return f"{len(chosen)} runs" if len(chosen) > 1 else chosen[0].title


def _said(sentence: str, undo: Sequence[str], error: bool) -> None:
    """Show the result of the last action, with a button to undo it."""
    icon = ":red[:material/error:]" if error else ":green[:material/check:]"
    st.markdown(f"{icon} {in_words(sentence)}", width="content")
    if undo:
        _button("Undo", ":material/undo:", lambda: _restore(undo), primary=True)
    st.button("", icon=":material/close:", key="act:close", type="tertiary", help="Close", on_click=said, args=(None,))
