"""Widgets for the user's data: a dataset of the hub, the columns of a file, and rows that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from app import jobs
from app.draft import Draft
from app.tokens import literal
from app.widget_state import WidgetState, widget_state
from labcore.errors import LabError
from labcore.runs import jobs as store
from labcore.runs.files.jsonl import BadRows
from labcore.runs.files.paths import read_only
from labcore.runs.files.rows import first_row
from labcore.tasks.file_kinds import kinds_of
from labcore.tasks.layouts import names_of

OF_HUB = ("prompts", "preferences")  # kinds of files that have rows
NEEDED = {"prompts": ("prompt", "answer", "system"),
          "preferences": ("prompt", "chosen", "rejected", "completion", "label", "system")}
ASKED = {"prompt": "Prompt column", "answer": "Answer column", "system": "System prompt column",
         "chosen": "Chosen column", "rejected": "Rejected column", "completion": "Completion column",
         "label": "Label column"}
NONE = "none"


def dataset(draft: Draft, wanted: str) -> str:
    """The path of the named dataset, once it has been fetched; empty if none is named."""
    if wanted not in OF_HUB or read_only():
        return ""
    name = st.text_input("Or a Hugging Face dataset", placeholder="org/name:split", key=f"hub:{draft.scope}:{wanted}",
                         help="The lab downloads at most 64 MB of rows into its own folder. If the dataset has several "
                              "configurations, write org/name:config/split.").strip()
    if not name:
        return ""
    asked = {"job": "dataset", "name": name}
    result, there = jobs.result(asked, f"Downloading {name}", "dataset")
    if not result or not there:
        return ""
    if not Path(result["path"]).exists():  # a clean-up deleted it
        store.forget(store.job_id(asked))
        st.rerun()
    if result["note"]:
        st.caption(literal(result["note"]))
    return str(result["path"])


def offer_fixes(draft: Draft, path: Path, error: LabError) -> None:
    """Draw the remedies below the fault of a file: its columns to choose from, or a button that leaves rows out."""
    if isinstance(error, BadRows) and error.good:
        count = f"{error.bad:,} row{'s' if error.bad != 1 else ''}"
        st.button(f"Leave out {count}", key="leave_out", icon=":material/filter_alt:",
                  on_click=draft.values.__setitem__, args=("unusable_rows", "skip"))
    elif draft.task_row.data in OF_HUB and not _recognised(path):
        st.caption("Choose the column for each field.")
        _choose(draft, _columns(path))


def mapped(draft: Draft, path: Path) -> None:
    """Draw the columns again after the file was understood by them, so that the user can choose others."""
    if draft.task_row.data in OF_HUB and draft.values.get("fields") and not _recognised(path):
        _choose(draft, _columns(path))


def _recognised(path: Path) -> bool:
    """True if the file's own names say what its rows are."""
    try:
        return bool(kinds_of(path))
    except LabError:
        return True  # it cannot be read at all, which no choice of columns mends


def _columns(path: Path) -> list[str]:
    """The names of the file's columns that the knob `fields` can hold."""
    return [name for name in first_row(path) if name.strip() == name and not {",", "="} & {*name}]


def _choose(draft: Draft, there: Sequence[str]) -> None:
    """A select for each thing that a column may stand for; the choice is the knob `fields`."""
    if not there:
        return
    try:
        names = names_of(draft.of_task())
    except LabError:
        names = {}
    for role in NEEDED[draft.task_row.data]:
        chosen = names.get(role, NONE)
        options = [NONE, *there] if chosen in (NONE, *there) else [NONE, chosen, *there]
        shown = widget_state(f"map:{draft.scope}:{draft.task_row.data}:{role}", chosen, of=tuple(options))

        def changed(role: str = role, shown: WidgetState = shown) -> None:
            taken = {**names, role: shown.taken() or NONE}
            draft.values["fields"] = ",".join(f"{name}={own}" for name, own in taken.items() if own != NONE)

        st.selectbox(ASKED[role], options, options.index(chosen), key=shown.key, on_change=changed)
