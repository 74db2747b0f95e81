"""Choose the runs to compare: a box to search, add and remove them, or a sweep with its progress."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import streamlit as st

from app import naming
from app.compare.controls import moved
from app.compare.data import Source, name_of
from app.compare.place import Place, change, go
from app.lab import lab
from app.session import show_error
from app.status import bar, counts, duration
from app.status import name_of as state_of
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.time_left import Progress, progress
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.files.paths import read_only
from labcore.runs.imports import imported
from labcore.runs.knob_history import KnobHistory
from labcore.runs.lists import marks
from labcore.runs.store.rows import ACTIVE, APART, RunRow

OFFERED = 300  # newest runs to choose among
SINGLE = "List these runs one by one, so that you can add or remove some"


def row(place: Place, sources: Sequence[Source], large: bool = False) -> None:
    """The line at the top of the page. The runs of a `large` sweep do not fit into the box."""
    if place.sweep:
        _sweep(place, [source for source in sources if isinstance(source, RunRow)], large)
    elif place.project and not place.runs:
        _project(place, sources)
    else:
        _box(sources)


def _box(sources: Sequence[Source]) -> None:
    """The box of runs: those of lessons and studies are offered by their projects alone."""
    offered = lab().store.runs(limit=OFFERED, apart=False)
    words = {run.id: title(run) for run in offered}
    words |= {each.id: imported.title(each.id, each.label) for each in imported.listed(lab().store)}
    present = [name_of(source) for source in sources]
    words |= {source.id: title(source) for source in sources if isinstance(source, RunRow)}
    shown = widget_state("compare:runs", present, tuple(words.items()))
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_runs"):
        st.multiselect("Runs", list(words), shown.value, format_func=words.__getitem__, key=shown.key, width="stretch",
                       label_visibility="collapsed", on_change=moved("runs", shown, tuple),
                       placeholder="Add runs: search by algorithm, task, knob, seed or state")
        if above := parents_of(sources):
            st.button(f"Add the parent{'s' if len(above) > 1 else ''}", icon=":material/account_tree:", key="parents",
                      help="Add the runs that these were forked from, to show one tree",
                      on_click=lambda: change(runs=(*above, *present)))
        if more := other_seeds(sources, offered):
            st.button(f"Add {len(more)} other seed{'s' if len(more) > 1 else ''}", icon=":material/casino:",
                      key="other_seeds", help="Add the runs with the same settings and other seeds",
                      on_click=lambda: change(runs=(*present, *more)))
        if sources:
            _assign(sources)


def _assign(sources: Sequence[Source]) -> None:
    """Put the compared runs into a project, or take them out of theirs."""
    if read_only():
        return
    runs = [name_of(source) for source in sources]
    marked = lab().store.marks()
    theirs = {marked[run].project if run in marked else "" for run in runs}
    present = theirs.pop() if len(theirs) == 1 else ""
    with st.popover(present or "Project", icon=":material/folder:", help="A label that groups these runs"):
        known = ["", *(name for name in lab().store.projects() if name not in APART)]
        shown = widget_state("compare:project", present, tuple(known))

        def chosen() -> None:
            try:
                marks.assign(lab().store, runs, shown.taken() or "")
            except LabError as error:
                show_error(str(error))
                shown.back()

        st.selectbox("Project", known if present in known else [*known, present], key=shown.key, width=260,
                     index=known.index(present) if present in known else len(known), accept_new_options=True,
                     format_func=lambda name: name or "None", on_change=chosen,
                     help=f"Type a new name, then Enter. For {len(runs)} run{'s' if len(runs) > 1 else ''}.")
        if present:
            st.page_link("../pages/runs.py", label="All runs of the project", icon=":material/list:",
                         query_params={"find": f'project="{present}"'})


def _project(place: Place, sources: Sequence[Source]) -> None:
    """The runs of a project, newest first as many as are compared, and the way to others."""
    many = lab().store.projects().get(place.project, 0)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_runs"):
        newest = f"the newest {len(sources)} of {many:,}" if many > len(sources) else f"{len(sources)}"
        st.html(f'<div class="rl-status"><b>{html.escape(place.project)}</b> <span class="rl-muted">project · {newest} '
                f"runs</span></div>", width="stretch")
        st.button("As single runs", icon=":material/checklist:", help=SINGLE,
                  on_click=lambda: change(project="", runs=tuple(map(name_of, sources))))
        st.button("Choose other runs", icon=":material/close:", on_click=lambda: go(Place()))


def parents_of(sources: Sequence[Source]) -> list[str]:
    """The parents of the chosen forks that are not chosen themselves. Beside its parent a fork is drawn as a branch."""
    chosen = {name_of(source) for source in sources}
    above = dict.fromkeys(source.spec.parent[0] for source in sources if isinstance(source, RunRow)
                          and source.spec.parent)
    return [run for run in above if run not in chosen and lab().find(run)]


def title(run: RunRow) -> str:
    """A run in words to search in: its title, what is not at its default, seed and state."""
    seed = "" if run.spec.kind_row.elsewhere else f"seed {run.spec.seed}"
    return naming.to_choose(run, seed, state_of(run).lower())


def other_seeds(sources: Sequence[Source], offered: Sequence[RunRow]) -> list[str]:
    """The offered runs that differ from the chosen ones by their seed only; a knob changed mid-run is more."""
    chosen: dict[tuple[Any, ...], set[int]] = {}  # setting -> its seeds
    for source in sources:
        if isinstance(source, RunRow):
            chosen.setdefault(setting(source), set()).add(source.spec.seed)
    found: dict[tuple[Any, ...], RunRow] = {}
    for run in offered if chosen else ():
        of = setting(run)
        if run.step and run.spec.parent is None and run.spec.seed not in chosen.get(of, {run.spec.seed}):
            found.setdefault((of, run.spec.seed), run)
    return [run.id for run in found.values() if not KnobHistory(run.spec, lab().store.events_after(run.id)).changes]


def setting(run: RunRow) -> tuple[Any, ...]:
    """The settings of runs that differ by their seed only, without changes made mid-run."""
    spec = run.spec
    return (spec.kind, spec.algorithm, spec.task, spec.model, spec.steps, spec.data, spec.parent, spec.mix,
            tuple(sorted((key, str(value)) for key, value in spec.knobs.items())))


def _sweep(place: Place, runs: Sequence[RunRow], large: bool) -> None:
    """A sweep's name, how far it is, and the way back to single runs."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_runs"):
        if runs:
            early = sweep.early_stopping(lab().store, place.sweep)
            name = lab().store.sweep_names().get(place.sweep, "")
            st.html(sweep_words(name or place.sweep, runs, early is not None), width="stretch")
            _queue_buttons(place.sweep, runs)
            if not read_only():
                _rename(place.sweep, name)
        if runs and not large:
            st.button("As single runs", icon=":material/checklist:",
                      help=SINGLE,
                      on_click=lambda: change(sweep="", runs=tuple(run.id for run in runs)))
        st.button("Choose other runs", icon=":material/close:", on_click=lambda: go(Place()))
    if runs and early:
        st.caption(literal(early.words()))
        if why := sweep.unjudged(lab().store, place.sweep):
            st.warning(literal(why), icon=":material/error:")


def _rename(sweep_id: str, name: str) -> None:
    """Give a sweep a name."""
    with st.popover("Name", icon=":material/edit:"):
        shown = widget_state(f"compare:name:{sweep_id}", name)

        def typed() -> None:
            try:
                lab().store.name_sweep(sweep_id, marks.project_name(shown.taken(), "sweep"))
            except LabError as error:
                show_error(str(error))
                shown.back()

        st.text_input("Name", shown.value, key=shown.key, width=260, placeholder=sweep_id, on_change=typed,
                      max_chars=marks.MOST_PROJECT, help="Name of the sweep in lists; its link stays the same")


def sweep_words(name: str, runs: Sequence[RunRow], stops_early: bool = False) -> str:
    """A sweep as HTML: its algorithms, tasks and seeds, how many runs are in each state, and while some go how far all
    of them are and how long they will still take."""
    algorithms = dict.fromkeys(run.spec.row.label for run in runs)
    tasks = dict.fromkeys(run.spec.task for run in runs)
    seeds = len({run.spec.seed for run in runs})
    label = (f"{', '.join(algorithms)} on {', '.join(tasks)} · {len(runs):,} runs, "
             f"{seeds} seed{'s' if seeds > 1 else ''}")
    how_far = _how_far(progress(runs, stops_early)) if any(run.state in ACTIVE for run in runs) else ""
    return (f'<div class="rl-status"><b>{html.escape(name)}</b> <span class="rl-muted">{html.escape(label)}</span>'
            f"{counts(runs)}</div>{how_far}")


def _how_far(far: Progress) -> str:
    left = "" if far.left is None else (f" · {'at most' if far.at_most else 'about'} {duration(far.left)} left, "
                                        f"estimated {far.basis}")
    spared = f", {far.spared:,} saved by early stopping" if far.spared else ""
    return f'{bar(far.share)}<div class="rl-muted">{far.steps:,} of {far.of:,} steps{spared}{left}</div>'


def _queue_buttons(sweep_id: str, runs: Sequence[RunRow]) -> None:
    """The buttons Resume (also of interrupted runs while others are running) and Cancel to its right, so that a second
    click at the same place cannot undo the first."""
    if read_only():
        return
    going = sum(run.state in ACTIVE for run in runs)
    states = ("interrupted",) if going else sweep.CANCELLED  # what was stopped by hand waits for the others' end
    if again := sweep.resumable(runs, states):
        what = " interrupted" if all(run.state == "interrupted" for run in again) else ""
        st.button(f"Resume {len(again):,}{what} run{'s' if len(again) > 1 else ''}", icon=":material/play_arrow:",
                  key="sweep:resume", on_click=_resume, args=(sweep_id, states),
                  help="Queue them again; they continue from their checkpoints")
    if going:
        asked = sum(run.pending == "stopping" for run in runs) == going
        st.button(f"Stopping {going:,}" if asked else f"Cancel {going:,}", icon=":material/stop:", key="sweep:cancel",
                  on_click=_cancel, args=(sweep_id,), disabled=asked,
                  help="These runs stop after their current step" if asked else "Stop the queued and the running runs. "
                  "Running ones stop after their current step and keep a checkpoint; all can be resumed.")


def _cancel(sweep_id: str) -> None:
    try:
        sweep.cancel(lab().store, sweep_id)
    except LabError as error:
        show_error(str(error))


def _resume(sweep_id: str, states: Sequence[str]) -> None:
    try:
        sweep.resume(lab().store, sweep_id, states)
        lab().launcher.wake()
    except LabError as error:
        show_error(str(error))
