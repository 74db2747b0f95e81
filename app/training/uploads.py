"""The user's own files: kept once by the hash of their content, checked before a run may use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from app.session import Draft
from app.tokens import literal
from app.training import columns
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import task
from labcore.catalog.knob import Value
from labcore.catalog.task import Task
from labcore.errors import LabError
from labcore.files.paths import read_only
from labcore.files.uploads import file_at, keep
from labcore.tasks.file_kinds import task_for
from labcore.tasks.layouts import names_of
from labcore.tasks.task import held_of, make_task

_ROWS = ["jsonl", "json", "txt", "csv", "tsv", "parquet", "gz"]
WANTED = {
    "prompts": ("Your prompts", _ROWS, 'JSON lines such as {"prompt": "2+3=", "answer": "5"}, a JSON list, CSV or '
                "Parquet, in the layout of TRL, verl, OpenRLHF, GSM8K, MATH, alpaca or ShareGPT."),
    "preferences": ("Your preferences", _ROWS, 'JSON lines such as {"prompt": "…", "chosen": "…", "rejected": "…"}, a '
                    "JSON list, CSV or Parquet; texts or lists of turns."),
    "text": ("Your text", ["txt", "md", "text"], "A plain text file in UTF-8."),
}

OF = {"prompts": "problem", "preferences": "pair", "text": "character"}
HELD = OF | {"text": "piece"}
SECOND = "held_out_file"  # the knob that names a second file


@st.cache_data(show_spinner=False, max_entries=16)
def _read(task_key: str, path: str, knobs: dict[str, Value]) -> tuple[int, int, str]:
    """How many rows of a file are trained on and held out, and what there is to say of that; once for a file, since its
    path holds its content's hash."""
    made = make_task(task(task_key), knobs, path)
    return made.size or 0, len(held_of(made)), getattr(made, "said", "")


def uploader(draft: Draft, rows: Sequence[Algorithm] = ()) -> None:
    """Ask for the file that the draft's task needs; say what is in it, or what is wrong with it. `rows` are the
    algorithms that are to learn from it, where they are others than the draft's.

    A file of preferences turns the draft to the task that reads them.
    """
    wanted = draft.task_row.data
    if not wanted:
        return
    title, types, form = WANTED[wanted]
    file = st.file_uploader(title, type=types, help=form, key=f"upload:{draft.scope}:{wanted}",
                            disabled=read_only())
    kept = draft.fields["data"].get(wanted)
    new = keep_new(file) if file is not None else columns.dataset(draft, wanted)
    if not new and not kept:
        st.caption(form)
        return
    try:
        if new:
            kept = draft.fields["data"][wanted] = new
            fitting = task_for(Path(kept), draft.task_row, rows or (draft.row,), draft.kind.tasks,
                               names_of(draft.of_task()))
            if fitting.key != draft.task_row.key:
                _turn(draft, fitting, kept)
        size, held, said = _read(draft.task_row.key, kept, draft.of_task())
    except LabError as error:
        draft.fields["data"].pop(wanted, None)
        st.error(literal(str(error)))
        columns.mend(draft, Path(kept), error)
        if draft.values.get(SECOND) and not rows:  # which may be what is wrong
            _second(draft, types, form)
        return
    columns.mapped(draft, Path(kept))
    if moved := st.session_state.get(f"turned:{draft.scope}:{draft.task_row.key}:{kept}"):
        st.caption(literal(moved))
    st.caption(f":green[:material/check:] {literal(Path(kept).name)}: {_counted(wanted, size, held)}.")
    if said:
        st.caption(f":blue[:material/info:] {literal(said)}")
    if not rows:  # a comparison of algorithms has one form for the files of all, but knobs for each
        _second(draft, types, form)


def _counted(wanted: str, size: int, held: int) -> str:
    """How much of a file is trained on, and how much is held out.

    >>> _counted("prompts", 27, 3), _counted("text", 500, 0)
    ('27 problems to train on, 3 problems held out', '500 characters')
    """
    count = f"{size:,} {OF[wanted]}{'s' if size != 1 else ''}" if size else "ready"
    return count + (f" to train on, {held:,} {HELD[wanted]}{'s' if held != 1 else ''} held out" if held else "")


def _second(draft: Draft, types: Sequence[str], form: str) -> None:
    """Ask for a second file that is only measured on, in place of a share of the first."""
    place = str(draft.values.get(SECOND, ""))
    there = file_at(place) if place else None
    with st.expander("Held-out file", expanded=bool(place)):
        file = st.file_uploader("A second file, used for evaluation only", type=list(types), help=form,
                                key=f"upload:{draft.scope}:{SECOND}", disabled=read_only())
        new = keep_new(file) if file is not None else ""
        chosen = Path(new).parent.name if new else place
        if there and file is None:
            st.caption(f"{literal(there.name)} is held out.")
            if st.button("Hold out a share instead", key=f"share:{draft.scope}", disabled=read_only()):
                chosen = ""
    if chosen != place:
        draft.values[SECOND] = chosen
        st.rerun()


def keep_new(file: UploadedFile) -> str:
    """The path of what was just uploaded; empty where it cannot be kept, which is said."""
    try:
        return str(keep(file.name, file.getvalue()))
    except LabError as error:
        st.error(literal(str(error)))
        return ""


def _turn(draft: Draft, fitting: Task, kept: str) -> None:
    """Turn the draft to the task that a file is for, and draw the page anew with it."""
    draft.fields["data"].pop(draft.task_row.data, None)
    draft.fields["data"][fitting.data] = kept
    draft.choose("task", fitting.key)
    st.session_state[f"turned:{draft.scope}:{fitting.key}:{kept}"] = (
        f"{Path(kept).name} has preferences, so the task is now {fitting.label}.")
    st.rerun()
