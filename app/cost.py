"""Compare the cost of algorithms, in a fold or in a tab of a run: the models that each holds, and the time of its step
once measured."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence

import streamlit as st

from app.draft import Draft
from app.jobs import result
from app.tokens import literal
from labcore.catalog.amounts import milliseconds, size
from labcore.errors import LabError
from labcore.llm.sizing import cost
from labcore.llm.sizing.cost import Row
from labcore.runs import jobs
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import RunRow

TITLE = "Models held and their cost"
CSS = """
<style>
.rl-table.rl-cost th{vertical-align:bottom}.rl-cost td:not(:nth-child(2)){white-space:nowrap}
.rl-cost td:nth-child(2){min-width:8.5em}.rl-cost :is(td,th):nth-child(n+3):nth-child(-n+7){text-align:right}
.rl-cost th:nth-child(n+6){white-space:nowrap}.rl-cost .rl-own td{font-weight:600}
</style>"""
HEADS = (("Algorithm", ""), ("Models held", "The networks in memory; frozen ones are not trained."),
         ("Weights", "4 bytes per number. Weights that models share count once."),
         ("Gradients, optimizer", "4 bytes for each gradient, 8 for the two moments of AdamW (2 in 8 bits)."),
         ("Activations", "Peak memory of the values kept for the backward pass."),
         ("Step", "The fastest of a few steps, without evaluations. With one thread: processor time, which other "
                  "programs do not change."),
         ("× PPO", "Step time divided by that of PPO."),
         ("Batch", "Size of an update's batch × updates per step."))


def of_draft(draft: Draft) -> None:
    """Compare the next run's algorithm with the usual ones."""
    try:
        specs = cost.beside(draft.spec())
    except LabError:  # the page says why it cannot run
        return
    show(specs, "llm", own=draft.row.label)


def of_run(run: RunRow) -> None:
    """Compare a run's algorithm with the usual ones."""
    st.markdown(f"**{TITLE}**")
    _opened(cost.beside(run.spec), "run", run.spec.row.label)


def show(specs: Sequence[RunSpec], view: str, own: str = "") -> None:
    """Draw the fold, and once it is open the table. The algorithm with the label `own` stands out."""
    fold = st.expander(TITLE, key=f"cost:{view}", on_change="rerun")
    if fold.open:
        with fold:
            _opened(specs, view, own)


def _opened(specs: Sequence[RunSpec], view: str, own: str) -> None:
    held, _ = result(cost.held_asked(specs), "Counting the models", f"cost_held:{view}")
    if held is None or len(held["held"]) != len(specs):
        return
    rows = cost.rows(specs, held["held"])
    st.html(f'{CSS}<div class="rl-scroll">{table(rows, own)}</div>')
    _measuring(rows, view)
    for fault in dict.fromkeys(row.fault for row in rows if row.fault):
        st.caption(literal(fault))
    st.caption(about(rows))


def _measuring(rows: Sequence[Row], view: str) -> None:
    """The button that measures what is not measured yet, or which algorithm is being measured: one after the other,
    so that they do not slow each other."""
    state = f"cost_going:{view}"
    left = [row for row in rows if row.held and not row.measured]
    if st.session_state.get(state) and (row := next((row for row in left if not row.fault), None)):
        result(cost.cost_asked(row.spec), f"Measuring {row.label}", f"cost_step:{view}")
        found = jobs.outcome(jobs.job_id(cost.cost_asked(row.spec)))
        if found:  # measured at once, or stopped
            st.session_state[state] = found.result is not None
            st.rerun()
    else:
        again, wanted = not left, left or [row for row in rows if row.held]
        many = f"{len(wanted)} algorithm{'s' if len(wanted) > 1 else ''}"
        st.button("Measure again" if again else f"Measure {many} on this machine", icon=":material/timer:",
                  key=f"measure:{view}", on_click=_begin, args=(state, wanted), disabled=not wanted or read_only())


def _begin(state: str, wanted: Sequence[Row]) -> None:
    """Measure these, whatever became of them before."""
    for row in wanted:
        jobs.forget(jobs.job_id(cost.cost_asked(row.spec)))
    st.session_state[state] = True


def about(rows: Sequence[Row]) -> str:
    """A caption on the source of the numbers and the time of the measurement."""
    times = [row.measured["measured"] for row in rows if row.measured]
    said = ("Counted from the models' sizes, not measured yet." if not times else
            f"Measured on this machine, {time.strftime('%d %B %Y, %H:%M', time.localtime(max(times)))}: the fastest of "
            "a few steps of each.")
    return f"{said} No algorithm holds an old policy, because its log-probs are stored with the batch."


def table(rows: Sequence[Row], own: str = "") -> str:
    """The rows as HTML."""
    heads = "".join(f'<th title="{html.escape(why)}">{title}</th>' for title, why in HEADS)
    return (f'<table class="rl-table rl-cost"><thead><tr>{heads}</tr></thead><tbody>'
            f'{"".join(_line(row, rows, own) for row in rows)}</tbody></table>')


def _line(row: Row, rows: Sequence[Row], own: str) -> str:
    times = cost.times(row, rows)
    sizes = (row.weights, row.learning) if row.held else (None, None)
    cells = (row.label, row.names() or "–", *map(size, (*sizes, row.activations)),
             milliseconds(row.seconds), "–" if times is None else f"{times:.2f}", row.batch)
    counted = "; ".join(f"{each['name'].replace('_', ' ')}: {each['parameters']:,} parameters, {each['learnt']:,} "
                        "learnt" for each in row.held)
    marked = ' class="rl-own"' if row.label == own else ""
    return (f'<tr{marked}>' + "".join(f'<td{_title(counted) if place == 1 else ""}>{html.escape(cell)}</td>'
                                      for place, cell in enumerate(cells)) + "</tr>")


def _title(text: str) -> str:
    return f' title="{html.escape(text)}"'
