"""Two dialogs of the page Runs: free disk space, and import another tool's metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from app import number_boxes
from app.lab import errors_shown, in_words, lab
from app.runs import findings
from app.runs.state import STALE, done, pick, said, shelf, show_all
from app.status import volume
from app.tokens import literal
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.exports.capsules import importing
from labcore.runs.files import removal, uploads
from labcore.runs.files.paths import path_of
from labcore.runs.imports import imported
from labcore.runs.imports.imported import Imported
from labcore.runs.lists import cleanup
from labcore.runs.lists.cleanup import Plan, beyond_newest, carry_out, older_than, spare_files
from labcore.runs.lists.entries import Entry
from labcore.runs.lists.marks import TRASH_DAYS
from labcore.runs.titles import title

DONE = "clean:done"
AGE, NUMBER, FILES, UPLOADS = ("Runs older than a number of days", "All runs but the newest",
                               "Old checkpoints, samples and exports", "Uploads that no run needs")
NAMED = 3  # uploads that are called by their names


def _count(name: str, title: str, usual: int, most: int) -> int:
    """Return the number that was typed. Raises LabError where it is out of bounds."""
    kept: dict[str, int] = st.session_state.setdefault("clean", {})
    number_boxes.forget("clean")
    number_boxes.number("clean", name, title, kept.get(name, usual), (0, most), partial(kept.__setitem__, name))
    number_boxes.check("clean")
    return kept.get(name, usual)


@st.dialog("Clean up", width="medium")
@errors_shown()
def clean_up(entries: Sequence[Entry], all_of_them: bool) -> None:
    """Let the user choose files and runs, see how much disk space they take, and delete them. `entries` are the runs
    that the page lists."""
    if st.session_state.pop(DONE, False):
        st.rerun()  # close it: the page says what went
    what = st.radio("Delete", (AGE, NUMBER, FILES, UPLOADS), key="clean:what", captions=(
        "They are moved to the trash", "They are moved to the trash",
        "Curves, results and each run's first and newest checkpoint are kept; forks can then start only from these "
        "checkpoints",
        "Texts, prompts, pairs and weights that no run uses any more, not even one in the trash"))
    if what == UPLOADS:
        _offer_uploads()
        return
    if what == AGE:
        plan = older_than(entries, _count("days", "Days", 30, 3650))
    elif what == NUMBER:
        plan = beyond_newest(entries, _count("keep", "Runs to keep", 50, 100_000))
    else:
        plan = spare_files(entries)
    st.markdown(_words(plan))
    listed = "" if all_of_them else f"Only the {len(entries)} listed runs are considered. "
    st.caption(f"{listed}Starred and running runs are always kept.")
    if plan.ids:
        _button(_label(plan), _carry_out, plan)


def _offer_uploads() -> None:
    places = cleanup.unused_uploads(lab().store)
    st.markdown(_upload_words(places))
    st.caption("Files uploaded or used in the last day are always kept, because their run may not have started yet.")
    if places:
        _button(f"Delete {_counted(places, 'upload')}", _remove_uploads, places)


def _button(label: str, do: Callable[..., None], what: Plan | list[str]) -> None:
    st.button(label, type="primary", icon=":material/delete:", key="clean:do", on_click=_done, args=(do, what))


def _done(do: Callable[..., None], what: Plan | list[str]) -> None:
    st.session_state[DONE] = True
    done(do, what)


def _carry_out(plan: Plan) -> None:
    freed = carry_out(shelf(), plan)
    pick([])
    said(f"{volume(freed)} of files deleted; curves and results are kept." if plan.files else
         f"{_counted(plan.ids)} deleted ({volume(freed)}).", undo=() if plan.files else plan.ids)


def _remove_uploads(places: list[str]) -> None:
    said(f"{volume(sum(cleanup.remove_uploads(lab().store, places).values()))} of uploads deleted.")


def _upload_words(places: list[str]) -> str:
    if not places:
        return "Nothing to clean up: every upload is recent or used by a run."
    found = [name for place in places[:NAMED] for name in uploads.names(place)]
    more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    return (f"**{_counted(places, 'upload')}**, {literal(', '.join(found))}{more}: frees "
            f"**{volume(sum(map(uploads.size, places)))}** at once. This cannot be undone; the files that they were "
            f"copied from are not touched.")


def _words(plan: Plan) -> str:
    if not plan.ids:
        return "Nothing to clean up: no run matches."
    runs = f"**{_counted(plan.ids)}**"
    if plan.files:
        return f"Frees **{volume(plan.size)}** of {runs} at once. This cannot be undone."
    return (f"{runs}, **{volume(plan.size)}**: freed when the trash is emptied, by you or after {TRASH_DAYS} days. "
            "Until then they can be restored.")


def _label(plan: Plan) -> str:
    return f"Delete {volume(plan.size)} of files" if plan.files else f"Delete {_counted(plan.ids)}"


def _counted(of: Sequence[str], what: str = "run") -> str:
    return f"{len(of)} {what}{'s' if len(of) > 1 else ''}"


@st.dialog("Import", width="medium", on_dismiss="rerun")
@errors_shown()
def import_files() -> None:
    """Import metrics files and run capsules; say of each what was read, or why it cannot be."""
    st.caption("The metrics of another tool, to compare with your own runs: a trainer_state.json or log history "
               "of TRL, a file log of verl, a CSV export of W&B or TensorBoard, a progress.csv or monitor.csv of "
               "Stable-Baselines3, a metrics.csv of this lab, or any CSV, JSON lines or Parquet with a step column; "
               "gzipped files work too. A run capsule (zip) becomes a run that you can view, fork and resume.")
    label = st.text_input("Name", key="import:label", placeholder="The file's own name",
                          help="Name of the group. Files with the same name, and the runs within one file, become its "
                               "seeds")
    # Any type: a file of another kind gets a sentence that says which it is and what to do.
    files = st.file_uploader("Metrics files or run capsules", accept_multiple_files=True, key="import:files")
    kept: list[str] = []
    for file in files or ():
        try:
            found = _taken(file, label.strip())
        except LabError as error:
            st.error(in_words(error), icon=":material/error:")
            continue
        kept += found
        for words in found.values():
            st.markdown(words)
    if kept:
        st.session_state[STALE] = True
        left, right = st.columns([1, 2], vertical_alignment="center")
        if left.button("Show in the list", key="import:done", type="primary"):
            show_all()
            pick(kept)
            st.rerun()
        right.page_link("../pages/compare.py", label="Compare", icon=":material/query_stats:",
                        query_params={"runs": ",".join(kept)})


def _taken(file: UploadedFile, label: str) -> dict[str, str]:
    """Import one file. Returns the ids of its runs, and what is to be said of each."""
    if not file.name.endswith(".zip"):
        return {run.id: _summary(run) for run in imported.keep(lab().store, file.name, file.getvalue(), label)}
    taken = st.session_state.setdefault("import:capsules", {})  # each once: the script runs again at every click
    if file.file_id not in taken:
        taken[file.file_id] = _from_capsule(file)
    run = lab().store.run(taken[file.file_id])
    return {run.id: f":green[:material/check:] **{literal(title(run))}**: {run.step:,} steps of {run.spec.row.label} "
                    f"on {literal(run.spec.task)}, which you can view, fork and resume. {in_words(run.message)}"}


def _from_capsule(file: UploadedFile) -> str:
    with removal.folder("upload") as folder, st.spinner("Checking every file of the capsule"):
        path = path_of(Path(file.name).name, folder)
        path.write_bytes(file.getvalue())
        return importing.import_capsule(lab().store, path)


def _summary(run: Imported) -> str:
    read = ", ".join(METRICS[key].inline for key in run.mapped if key in METRICS)
    left = "; ".join(f"{', '.join(columns)} ({why})" for why, columns in imported.by_reason(run.left).items())
    words = [f"{run.steps:,} rows with {read}.", f"Not imported: {left}." if left else "", *run.notes]
    return "\n\n".join([f":green[:material/check:] **{literal(run.label)}**: {literal(' '.join(filter(None, words)))}",
                        *findings.lines(run)])
