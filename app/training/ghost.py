"""The ghost: another run of the same task, drawn thin and grey behind the curves.

The ghost is the same run without its last change of a knob, which a button forks in the background, else the previous
run, or one that the user chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import streamlit as st

from app import link
from app.lab import active, lab
from app.link import Param
from app.session import RECENT, show_error
from app.theme import difference_text, metric_text
from app.tokens import literal
from app.training.feed import Feed, headline
from labcore.analysis.compare.statistics import LAST
from labcore.catalog.knob import Value, shown
from labcore.errors import LabError
from labcore.runs import fork
from labcore.runs.files.paths import read_only
from labcore.runs.knob_history import Change, KnobHistory
from labcore.runs.store.rows import APART, RunRow
from labcore.runs.titles import title

NONE = "none"
GHOST = Param("ghost", "")  # the id of a run; empty: the usual one; NONE


def look(run: RunRow) -> None:
    """Look for the runs that could be the ghost of a run, once for every run of the page's script. Runs of lessons and
    studies do not count."""
    newest = lab().store.runs(limit=RECENT, kind=run.spec.kind, apart=run.project in APART, begun=True,
                              of_sweep=None if run.sweep else 0)
    others = [each for each in newest if each.id != run.id
              and (each.spec.task, each.spec.model) == (run.spec.task, run.spec.model)]
    st.session_state[f"ghosts:{run.id}"] = [(each.id, title(each), each.created) for each in others]
    st.session_state[f"twin:{run.id}"] = _last_twin(run)


def _last_twin(run: RunRow) -> str:
    """The id of the run without the last change of a run, where one was made before; else empty."""
    children = lab().store.children(run.id)
    if not any(each.spec.twin for each in children):
        return ""
    history = KnobHistory(run.spec, lab().store.events_after(run.id))
    if not history.moves or history.moves[-1].before is None:
        return ""
    found = twin_of(run, history.moves[-1], history.at())
    return found.id if found else ""


def _others(run: RunRow) -> list[tuple[str, str, float]]:
    found: list[tuple[str, str, float]] = st.session_state.get(f"ghosts:{run.id}", [])
    return found


def previous(run: RunRow) -> str:
    """The id of the newest run of the task that is older than `run`; empty where there is none, and for a fork, whose
    parent is drawn beside it."""
    return "" if run.spec.parent else next((key for key, _, created in _others(run) if created < run.created), "")


def usual(run: RunRow) -> str:
    """The id of the default ghost: the run without the last change, otherwise the previous run."""
    return st.session_state.get(f"twin:{run.id}") or previous(run)


def of(run: RunRow) -> RunRow | None:
    """The ghost of a run: the one in the link if it can be a ghost, otherwise the default."""
    chosen = link.get(GHOST)
    if chosen == NONE:
        return None
    found = lab().find(chosen)
    fits = found and found.id != run.id and (found.spec.kind, found.spec.task) == (run.spec.kind, run.spec.task)
    return found if fits else lab().find(usual(run))


def options(run: RunRow) -> dict[str, str]:
    """The runs that may stand behind the curves of a run, by the link's value for each."""
    others = {key: name for key, name, _ in _others(run)}
    before = others.get(usual(run))
    name = "Without the last change" if st.session_state.get(f"twin:{run.id}") else "Previous run"
    return {GHOST.default: f"{name} ({before})" if before else "Nothing", **({NONE: "Nothing"} if before else {}),
            **({found.id: title(found)} if (found := of(run)) and found.id not in others else {}), **others}


# ---- the same run without its last change -----------------------------------------------------------------------


def twin_of(run: RunRow, change: Change, values: dict[str, Value]) -> RunRow | None:
    """The fork of a run that is equal to the run without a `change`, if it exists; `values` are the run's knobs."""
    wanted = values | {change.knob: change.before}
    return next((each for each in reversed(lab().store.children(run.id))
                 if each.spec.twin and each.spec.parent and each.spec.parent[1] < change.step
                 and each.spec.algorithm == run.spec.algorithm and dict(each.spec.knobs) == wanted), None)


def start_twin(run: RunRow, change: Change, moves: Sequence[Change]) -> None:
    """Fork the run before a change, with the same random numbers and without the change, and draw it as the ghost."""
    at = fork.newest_before(fork.steps_to_fork(run.id), change.step)
    try:
        if at is None:
            raise LabError(f"{title(run)} has no checkpoint from before step {change.step}, so it cannot be forked "
                           "there.")
        others = {each.knob: each.value for each in _since(at, moves)}
        spec = fork.fork_spec(lab().store, run.id, at, knobs=others | {change.knob: change.before},
                              steps=max(run.spec.steps, change.step))
        link.put(GHOST, lab().launcher.start(spec))
    except LabError as error:
        show_error(str(error))


def _since(at: int, moves: Sequence[Change]) -> list[Change]:
    """Return the changes that a fork from the checkpoint of step `at` must repeat."""
    return [each for each in moves if each.step > at]


def _twin_help(run: RunRow, change: Change, moves: Sequence[Change]) -> str:
    """Explain how the run without a change is made, and which of the earlier changes apply to it."""
    at = fork.newest_before(fork.steps_to_fork(run.id), change.step) if moves else None
    kept = [] if at is None else [each.text for each in _since(at, moves)]
    how = "Forks from the checkpoint before the change, in the background and with the same random numbers"
    if not kept:
        return f"{how}, so any difference is due to the change"
    return (f"{how}. The fork starts at step {at:,}. The changes between this step and yours "
            f"({literal(', '.join(kept))}) apply from the start of the fork, so they may cause part of the difference")


def line(run: RunRow, feed: Feed, ghost: tuple[RunRow, Feed] | None) -> None:
    """Draw the line below the numbers of a run in which a knob was changed: the effect of the last change, or a button
    to compute it."""
    moves = feed.history.moves
    if not moves or moves[-1].step > feed.last_step or moves[-1].before is None:
        return
    change = moves[-1]
    twin = twin_of(run, change, feed.knobs())
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="effect"):
        if twin and ghost and ghost[0].id == twin.id:
            st.markdown(literal(effect(change, feed, ghost[1], active(twin))), width="stretch")
        else:
            st.markdown(literal(f"{change.text} after step {change.step - 1:,}."), width="content")
            if twin:
                st.button("Show it without this change", key="effect:show", icon=":material/compare_arrows:",
                          on_click=link.put, args=(GHOST, twin.id))
            elif not read_only() and not run.spec.kind_row.elsewhere:
                st.button("Same run without this change", key="effect:twin", icon=":material/call_split:",
                          on_click=start_twin, args=(run, change, moves[:-1]),
                          help=_twin_help(run, change, moves[:-1]))


def effect(change: Change, feed: Feed, other: Feed, going: bool) -> str:
    """The effect of a change as a sentence, compared with the same run without it: the means of the last steps that
    both runs have made since the change."""
    last = min(feed.last_step, other.last_step)
    first = max(change.step, last - LAST + 1)
    if last < change.step:
        state = ("is starting" if not other.steps else f"is at step {other.last_step:,}") if going else (
            f"ended at step {other.last_step:,}, too early to compare")
        return f"The grey run, without {change.text}, {state}. The change came after step {change.step - 1:,}."
    said = []
    for metric in headline(feed, 2):
        with_it, without = (_mean(each, metric.key, first, last) for each in (feed, other))
        if with_it is not None and without is not None:
            said.append(f"{metric.inline} {difference_text(metric, with_it - without)} "
                        f"({metric_text(metric, with_it)} vs {metric_text(metric, without)})")
    assert change.before is not None, "a change that is known from before"
    over = f"mean of steps {first:,} to {last:,}" if first < last else f"step {last:,}"
    return (f"{change.name} {shown(change.value)} instead of {shown(change.before)}, {over}: "
            f"{', '.join(said) or 'no metric in common'}. This is one seed; others may differ.")


def _mean(feed: Feed, key: str, first: int, last: int) -> float | None:
    values = [step.metrics[key] for step in feed.until(last) if step.step >= first and key in step.metrics]
    return fmean(values) if values else None
