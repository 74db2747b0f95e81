"""Choose the runs to compare: a box to search, add and remove them, or a sweep with its progress."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any

import streamlit as st

from app import naming
from app.compare.controls import moved
from app.compare.data import Source, name_of
from app.compare.place import Place, change, go
from app.compare.sweep import buttons
from app.lab import lab
from app.status import STATES, duration
from app.status import name_of as state_of
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.time_left import Progress, progress
from labcore.runs import sweep
from labcore.runs.imports import imported
from labcore.runs.knob_history import KnobHistory
from labcore.runs.store.rows import ACTIVE, RunRow

OFFERED = 300  # newest runs to choose among


def row(place: Place, sources: Sequence[Source], large: bool = False) -> None:
    """The line at the top of the page. The runs of a `large` sweep do not fit into the box."""
    if place.sweep:
        _sweep(place, [source for source in sources if isinstance(source, RunRow)], large)
    else:
        _box(sources)


def _box(sources: Sequence[Source]) -> None:
    offered = lab().store.runs(limit=OFFERED)
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


def parents_of(sources: Sequence[Source]) -> list[str]:
    """The runs that the chosen forks began from and that are not chosen: beside them a fork is drawn as a branch."""
    chosen = {name_of(source) for source in sources}
    above = dict.fromkeys(source.spec.parent[0] for source in sources if isinstance(source, RunRow)
                          and source.spec.parent)
    return [run for run in above if run not in chosen and lab().find(run)]


def title(run: RunRow) -> str:
    """A run in words to search in: its title, what is not at its default, seed and state."""
    return naming.to_choose(run, f"seed {run.spec.seed}", state_of(run).lower())


def other_seeds(sources: Sequence[Source], offered: Sequence[RunRow]) -> list[str]:
    """Those of the offered that differ from the chosen ones by their seed only; a knob changed mid-run is more."""
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
    """What runs have in common that differ by their seed only, but for what was changed mid-run."""
    spec = run.spec
    return (spec.kind, spec.algorithm, spec.task, spec.model, spec.steps, spec.data, spec.parent, spec.mix,
            tuple(sorted((key, str(value)) for key, value in spec.knobs.items())))


def _sweep(place: Place, runs: Sequence[RunRow], large: bool) -> None:
    """A sweep's name, how far it is, and the way back to single runs."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_runs"):
        if runs:
            early = sweep.early_stopping(lab().store, place.sweep)
            st.html(sweep_words(place.sweep, runs, early is not None), width="stretch")
            buttons.buttons(place.sweep, runs)
        if runs and not large:
            st.button("As single runs", icon=":material/checklist:",
                      help="Put these runs into the box, so that you can add others",
                      on_click=lambda: change(sweep="", runs=tuple(run.id for run in runs)))
        st.button("Choose others", icon=":material/close:", on_click=lambda: go(Place()))
    if runs and early:
        st.caption(literal(early.words()))
        if why := sweep.unjudged(lab().store, place.sweep):
            st.warning(literal(why), icon=":material/error:")


def sweep_words(sweep_id: str, runs: Sequence[RunRow], stops_early: bool = False) -> str:
    """A sweep as HTML: its algorithms, tasks and seeds, how many runs are in each state, and while some go how far all
    of them are and how long they will still take."""
    algorithms = dict.fromkeys(run.spec.row.label for run in runs)
    tasks = dict.fromkeys(run.spec.task for run in runs)
    seeds = len({run.spec.seed for run in runs})
    states = Counter((STATES[run.state][0], "stopped early" if run.early else state_of(run).lower())
                     for run in runs)
    dots = " ".join(f'<span><span class="rl-dot" style="background:{colour};margin:0 .35rem 0 .8rem"></span>'
                    f"{count:,} {state}</span>" for (colour, state), count in states.items())
    label = (f"{', '.join(algorithms)} on {', '.join(tasks)} · {len(runs):,} runs, "
             f"{seeds} seed{'s' if seeds > 1 else ''}")
    bar = _bar(progress(runs, stops_early)) if any(run.state in ACTIVE for run in runs) else ""
    return (f'<div class="rl-status"><b>{html.escape(sweep_id)}</b> <span class="rl-muted">{html.escape(label)}</span>'
            f"{dots}</div>{bar}")


def _bar(far: Progress) -> str:
    left = "" if far.left is None else (f" · {'at most' if far.at_most else 'about'} {duration(far.left)} left, "
                                        f"estimated {far.basis}")
    spared = f", {far.spared:,} saved by early stopping" if far.spared else ""
    return (f'<div class="rl-bar"><i style="width:{far.share:.1%};background:#009E73"></i></div>'
            f'<div class="rl-muted">{far.steps:,} of {far.of:,} steps{spared}{left}</div>')
