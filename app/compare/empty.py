"""The Compare page before runs are chosen: its purpose, and comparisons that one click opens."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from app import listing
from app.compare.data import MOST_SETTINGS
from app.compare.launch.form import form
from app.compare.place import Place, go
from app.compare.run_picker import setting, sweep_words
from app.lab import lab
from labcore.runs.store.rows import APART, RunRow
from labcore.runs.sweep import sweeps

LATEST = 200  # runs that are looked through
SHOWN = 4
MOST_RUNS = 24


def show() -> None:
    """One line, then the latest comparisons, and the latest runs of each task."""
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        st.subheader("Start a comparison", anchor=False)
        form()
    with right, listing.entries():
        _earlier()


def _earlier() -> None:
    """What was run already."""
    if projects := lab().store.projects():
        st.subheader("Projects", anchor=False)
        for name, many in projects.items():
            words = (f'<div class="rl-status"><b>{html.escape(name)}</b> <span class="rl-muted">{many:,} '
                     f"run{'s' if many > 1 else ''}{' of the lab' if name in APART else ''}</span></div>")
            _choice(words, f"project:{name}", Place(project=name))
    if found := sweeps(lab().store, apart=False)[:SHOWN]:
        st.subheader("Latest sweeps and comparisons", anchor=False)
        for sweep in found:
            _choice(sweep_words(sweep.title, sweep.runs), sweep.id, Place(sweep=sweep.id))
    runs = lab().store.runs(limit=LATEST)
    if tasks := by_task([run for run in runs if run.step and run.sweep is None and run.project not in APART]):
        st.subheader("Latest runs on one task", anchor=False)
        for (_, task), same in tasks[:SHOWN]:
            labels = dict.fromkeys(run.spec.row.label for run in same)
            words = (f'<div class="rl-status"><b>{same[0].spec.kind_row.label}: {html.escape(task)}</b> '
                     f'<span class="rl-muted">{", ".join(labels)} · {len(same)} runs</span></div>')
            _choice(words, f"task:{task}", Place(runs=tuple(run.id for run in same)))
    if not runs:
        st.subheader("Results", anchor=False)
        st.markdown("Overlaid curves with bands over seeds, a table of verdicts with their p-values, reward against "
                    "KL, and the answers of each model.")


def by_task(runs: Sequence[RunRow]) -> list[tuple[tuple[str, str], list[RunRow]]]:
    """The newest runs of each kind and task, newest task first; at least two, of at most as many settings as fit."""
    found: dict[tuple[str, str], list[RunRow]] = {}
    for run in runs:
        same = found.setdefault((run.spec.kind, run.spec.task), [])
        if len({setting(other) for other in (*same, run)}) <= MOST_SETTINGS and len(same) < MOST_RUNS:
            same.append(run)
    return [(task, same) for task, same in found.items() if len(same) > 1]


def _choice(words: str, key: str, place: Place) -> None:
    with listing.entry():
        st.html(words, width="stretch")
        st.button("Compare", icon=":material/query_stats:", key=f"compare:{key}",
                  on_click=lambda: go(place))
