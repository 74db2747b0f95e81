"""The user's own files: kept once by the hash of their content, checked before a run may use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from app.draft import Draft
from app.lab import in_words
from app.tokens import literal
from app.training import columns
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import task
from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.files.uploads import file_at, keep
from labcore.tasks.file_kinds import task_for
from labcore.tasks.file_statistics import statistics_of
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
    """The numbers of a file's rows that are trained on and held out, and a remark on them; once for a file, since its
    path holds its content's hash."""
    made = make_task(task(task_key), knobs, path)
    return made.size or 0, len(held_of(made)), getattr(made, "said", "")


def uploader(draft: Draft, rows: Sequence[Algorithm] = ()) -> None:
    """Ask for the file that the draft's task needs; describe its content or its fault. `rows` are the algorithms that
    are to learn from it, where they are others than the draft's.

    A file of preferences turns the draft to the task that reads them. A file that cannot be used is kept, since another
    setting may make it usable, but no run starts with it.
    """
    wanted = draft.task_row.data
    draft.fields.pop("unusable", None)
    if not wanted:
        return
    title, types, form = WANTED[wanted]
    file = st.file_uploader(title, type=types, help=form, key=f"upload:{draft.scope}:{wanted}", disabled=read_only())
    new = keep_new(file) if file is not None else columns.dataset(draft, wanted)
    path = new or draft.fields["data"].get(wanted)
    if not path:
        st.caption(form)
        return
    try:
        if new:
            _turn(draft, new, rows)
        size, held, said = _usable(draft, path)
    except LabError as error:
        draft.fields["data"].setdefault(wanted, path)  # an earlier one comes back once this one is taken away
        _refuse(draft, error)
        columns.offer_fixes(draft, Path(path), error)
        _verifiers(draft, path)
    else:
        draft.fields["data"][wanted] = path
        columns.mapped(draft, Path(path))
        _about(draft, path, size, held, said)
    if "unusable" not in draft.fields or draft.values.get(SECOND):
        _second(draft, types, form, path)


def _usable(draft: Draft, path: str) -> tuple[int, int, str]:
    """The result of `_read` for a file beside its held-out file, or of the file alone if the fault is in the held-out
    file. Raises LabError if the file itself cannot be used."""
    knobs = draft.of_task()
    try:
        return _read(draft.task_row.key, path, knobs)
    except LabError:
        if not knobs.get(SECOND):
            raise
        return _read(draft.task_row.key, path, knobs | {SECOND: ""})


def _refuse(draft: Draft, error: LabError) -> None:
    """Show the fault of an upload, and prevent runs with it."""
    draft.fields["unusable"] = draft.task_row.key
    st.error(in_words(error), icon=":material/error:")


def _verifiers(draft: Draft, path: str) -> None:
    """Buttons for verifiers that read every answer of a file which the chosen one cannot use; of a file without answers
    for those that need neither an answer nor a pattern."""
    if "verifier" not in draft.values:
        return
    try:
        seen = statistics_of(make_task(draft.task_row, draft.of_task() | {"verifier": "length", SECOND: ""}, path))
    except LabError:  # the verifier is not what is wrong
        return
    fitting = ("length", "json") if seen and seen.empty == seen.lines else (seen.fits,) if seen else ()
    with st.container(horizontal=True, gap="small"):
        for name in fitting:
            st.button(f"Use the {name} verifier", key=f"verifier:{name}", on_click=_use, args=(draft, name))


def _use(draft: Draft, name: str) -> None:
    """Choose a verifier."""
    draft.values["verifier"] = name


def _about(draft: Draft, path: str, size: int, held: int, said: str) -> None:
    """Describe the content of a file."""
    if moved := st.session_state.get(f"turned:{draft.scope}:{draft.task_row.key}:{path}"):
        st.caption(literal(moved))
    st.caption(f":green[:material/check:] {literal(Path(path).name)}: {_counted(draft.task_row.data, size, held)}.")
    if said:
        st.caption(f":blue[:material/info:] {literal(said)}")


def _counted(wanted: str, size: int, held: int) -> str:
    """The shares of a file that are trained on and held out, in words.

    >>> _counted("prompts", 27, 3), _counted("text", 500, 0)
    ('27 problems to train on, 3 problems held out', '500 characters')
    """
    count = f"{size:,} {OF[wanted]}{'s' if size != 1 else ''}" if size else "ready"
    return count + (f" to train on, {held:,} {HELD[wanted]}{'s' if held != 1 else ''} held out" if held else "")


def _second(draft: Draft, types: Sequence[str], form: str, path: str) -> None:
    """Ask for a second file that is only measured on, in place of a share of the first, which is at `path`."""
    place = str(draft.values.get(SECOND, ""))
    there = file_at(place) if place else None
    with st.expander("Held-out file", expanded=bool(place)):
        file = st.file_uploader("A second file, used for evaluation only", type=list(types), help=form,
                                key=f"upload:{draft.scope}:{SECOND}", disabled=read_only())
        new = keep_new(file) if file is not None else ""
        chosen = Path(new).parent.name if new else place
        if there and file is None:
            st.caption(f"{literal(there.name)} is held out.")
        if place and file is None and st.button("Hold out a share instead", key=f"share:{draft.scope}",
                                                disabled=read_only()):
            chosen = ""
        if chosen == place and place and "unusable" not in draft.fields:
            try:
                _read(draft.task_row.key, path, draft.of_task())
            except LabError as error:
                _refuse(draft, error)
    if chosen != place:
        draft.values[SECOND] = chosen
        st.rerun()


def keep_new(file: UploadedFile) -> str:
    """The path of a new upload; empty, with a message, if it cannot be stored."""
    try:
        return str(keep(file.name, file.getvalue()))
    except LabError as error:
        st.error(in_words(error))
        return ""


def _turn(draft: Draft, new: str, rows: Sequence[Algorithm]) -> None:
    """Turn the draft to the task that an upload is for, and draw the page anew with it; nothing where it has that task.
    Raises LabError if no task fits the file and the algorithms."""
    fitting = task_for(Path(new), draft.task_row, rows or (draft.row,), draft.kind.tasks, names_of(draft.of_task()))
    if fitting.key == draft.task_row.key:
        return
    draft.fields["data"][fitting.data] = new
    draft.choose("task", fitting.key)
    st.session_state[f"turned:{draft.scope}:{fitting.key}:{new}"] = (
        f"{Path(new).name} has preferences, so the task is now {fitting.label}.")
    st.rerun()
