"""The user's own files: kept once by the hash of their content, checked before a run may use them."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.session import Draft
from app.tokens import literal
from labcore.catalog.kinds import task
from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.files.paths import read_only
from labcore.files.uploads import keep
from labcore.tasks.task import check_data

WANTED = {
    "prompts": ("Your prompts", ["jsonl", "json", "txt"],
                'One JSON object per line: {"prompt": "2+3=", "answer": "5"}. "question" works as "prompt" does.'),
    "preferences": ("Your preferences", ["jsonl", "json", "txt"],
                    'One JSON object per line: {"prompt": "…", "chosen": "…", "rejected": "…"}.'),
    "text": ("Your text", ["txt", "md", "text"], "A plain text file in UTF-8."),
}

OF = {"prompts": "problem", "preferences": "pair", "text": "character"}


@st.cache_data(show_spinner=False, max_entries=16)
def _size(task_key: str, path: str, knobs: dict[str, Value]) -> int | None:
    """`check_data`, once for a file: its path holds its content's hash."""
    return check_data(task(task_key), path, knobs)


def uploader(draft: Draft) -> None:
    """Ask for the file that the draft's task needs; say what is in it, or what is wrong with it."""
    wanted = draft.task_row.data
    if not wanted:
        return
    title, types, form = WANTED[wanted]
    file = st.file_uploader(title, type=types, help=form, key=f"upload:{draft.scope}:{wanted}",
                            disabled=read_only())
    kept = draft.fields["data"].get(wanted)
    if file is None and not kept:
        st.caption(form)
        return
    try:
        if file is not None:
            kept = draft.fields["data"][wanted] = str(keep(file.name, file.getvalue()))
        size = _size(draft.task_row.key, kept, {knob.key: draft.values[knob.key] for knob in draft.task_row.knobs})
    except LabError as error:
        draft.fields["data"].pop(wanted, None)
        st.error(literal(str(error)))
        return
    count = f"{size:,} {OF[wanted]}{'s' if size != 1 else ''}" if size else "ready"
    st.caption(f":green[:material/check:] {literal(Path(kept).name)}: {count}.")
