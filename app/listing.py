"""Short lists of runs for Home, and the offer to resume interrupted runs."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Mapping, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import naming
from app.lab import errors_shown, lab, resumable
from app.link import written
from app.runs.state import View
from app.session import page_of, show_error
from app.status import STATES, bar, done_share, duration, name_of, of_steps
from app.theme import metric_text
from app.tokens import literal
from app.training import goal_line
from app.training.status_line import linked
from labcore.catalog.right import in_run
from labcore.errors import LabError
from labcore.runs import places
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import ACTIVE, RunRow, Step
from labcore.runs.summary import headline
from labcore.runs.titles import title

MOST = 2  # queued and live runs that Home shows one by one
NAMED = 3  # algorithms in the line that stands for more of them
SAMPLE = 50  # runs among which their algorithms are looked for


def resume_banner(interrupted: list[RunRow]) -> None:
    """Offer to resume in one click all runs that stopped with the lab, except watched runs."""
    interrupted = [run for run in interrupted if resumable(run)]
    if not interrupted:
        return
    many = len(interrupted) > 1
    with st.container(horizontal=True, vertical_alignment="center", key="resume_banner"):
        st.markdown(f":material/history: **{len(interrupted)} run{'s were' if many else ' was'} interrupted.** "
                    f"Nothing is lost: {'they continue' if many else 'it continues'} from the last checkpoint.",
                    width="stretch")
        st.button(f"Resume {'all' if many else literal(title(interrupted[0]))}", icon=":material/play_arrow:",
                  on_click=resume, key="resume_all", args=([run.id for run in interrupted],))


def resume(ids: Iterable[str]) -> None:
    """Resume runs from their last checkpoints; the top of the page names those that cannot."""
    for run_id in ids:
        try:
            lab().launcher.resume(run_id)
        except LabError as error:
            show_error(str(error))


def going() -> None:
    """Draw the running runs. Polls while there are any."""
    polling = bool(lab().store.runs(*ACTIVE, limit=1))
    st.fragment(_going, run_every=1.0 if polling else None, key="going")(polling)


@errors_shown()
def _going(polling: bool) -> None:
    runs = lab().store.runs(*ACTIVE, limit=SAMPLE)
    if polling and not runs:
        st.rerun()
    if len(runs) > MOST:
        _all_in_one(runs)
        return
    steps, there = newest(runs), places.going(lab().store, runs)
    for run in runs:
        with entry():
            st.html(words(run, steps.get(run.id), holders=places.holders(run, there)), width="stretch")
            st.page_link(page_of(run.spec.kind), label="Open", icon=":material/open_in_full:",
                         query_params={"run": run.id})


def _all_in_one(runs: Sequence[RunRow]) -> None:
    """One line for many queued and live runs, of which `runs` are the newest."""
    tally = lab().store.tally()
    counts = {state: tally[state] for state in reversed(ACTIVE) if tally.get(state)}
    with entry():
        st.html(f'<div class="rl-status">{together(runs, counts)}</div>', width="stretch")
        st.page_link("../pages/runs.py", label="Open", icon=":material/list:",
                     query_params=written(View(states=tuple(counts))))


def together(runs: Iterable[RunRow], counts: Mapping[str, int]) -> str:
    """The algorithms of runs, and how many are in each state, as HTML: "PPO, GRPO: 2 running, 3 queued"."""
    labels = list(dict.fromkeys(run.spec.row.label for run in runs))
    named = html.escape(", ".join(labels[:NAMED])) + " and others" * (len(labels) > NAMED)
    states = ", ".join(f"{many:,} {STATES[state][1].lower()}" for state, many in counts.items())
    return (f'<span class="rl-dot" style="background:{STATES[next(iter(counts))][0]}"></span><b>{named}</b>: {states}'
            if counts else "")


def entries() -> DeltaGenerator:
    """The container of a list's entries, one on a page, in which words keep their buttons beside them."""
    return st.container(key="entries")


def entry(border: bool = False) -> DeltaGenerator:
    """The place of one entry's line: words, then buttons."""
    return st.container(horizontal=True, vertical_alignment="center", gap="small", border=border)


def newest(runs: list[RunRow]) -> dict[str, Step]:
    """Each run's last step, read in one transaction."""
    found = lab().store.steps_after_many({run.id: max(0, run.step - 1) for run in runs})
    return {run_id: steps[-1] for run_id, steps in found.items() if steps}


def words(run: RunRow, step: Step | None, before: str = "", holders: Sequence[RunRow] = ()) -> str:
    """Write one run as HTML: state, title, settings, steps done, headline number, age; below these its goal and, while
    it is active, a progress bar.

    `holders` are the runs that have the places for which it waits.
    """
    colour, state = STATES[run.state][0], name_of(run)
    spec = run.spec
    first = in_run(headline(spec), spec.row, spec.task_row, spec.knobs)
    value = step.metrics.get(first.key) if step else None
    shown = f" · {first.inline} <b>{metric_text(first, value)}</b>" if value is not None else ""
    since = duration(max(0.0, time.time() - run.created))
    begun = "queued" if run.state == "queued" and run.started is None else "started"
    message = naming.message(run)
    plain = html.escape(places.waiting_sentence(message, holders))
    said = (f' · <span title="{plain}">{places.waiting_sentence(html.escape(message), holders, linked)}</span>'
            if message and run.state != "finished" else "")
    details = (f"{_who(spec)} · step {of_steps(run.step, spec.steps)}{shown} · {begun} {since} ago{said}")
    return (f'<div class="rl-status"><span class="rl-dot" style="background:{colour}"></span><span>{before}'
            f'<b>{html.escape(title(run))}</b> {state.lower()} <span class="rl-muted">{details}</span></span></div>'
            f'<div class="rl-listed-goal">{goal_line.html(spec)}</div>'
            + (bar(done_share(run.step, spec.steps), colour) if run.state in ACTIVE else ""))


def _who(spec: RunSpec) -> str:
    """Return the kind of a run as HTML; for a watched run, its trainer."""
    if spec.kind_row.elsewhere:
        return html.escape(" · ".join(dict.fromkeys(filter(None, (spec.tool, spec.row.label)))))
    return f"{html.escape(spec.task_row.label)} · {html.escape(naming.model(spec.model))} · seed {spec.seed}"
