"""One study: its claim and setting, its cost, its running runs, and the result beside the recorded one."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Callable, Sequence

import streamlit as st

from app import link, session
from app.compare.launch import duration_line
from app.compare.place import Place as ComparePlace
from app.lab import errors_shown, in_words, lab
from app.status import bar, counts, duration
from app.studies import picture
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.estimate import FEWEST, MOST, POWER
from labcore.analysis.studies import plan, recorded, verdict
from labcore.analysis.studies.plan import Runs
from labcore.analysis.studies.recorded import Recorded
from labcore.analysis.studies.result import Result, needed, result
from labcore.analysis.studies.study import Study
from labcore.catalog.amounts import percent
from labcore.errors import LabError
from labcore.runs import jobs, sweep
from labcore.runs.files.paths import max_runs, read_only
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import ACTIVE, RESUMABLE, RunRow

EVERY = 2.0  # seconds between two looks, while runs go
MORE = 3  # seeds that are added at once
KNOWN = "studies:known"


def show(study: Study, named: Callable[[str], None]) -> None:
    """The whole view. `named(model)` opens it again for a model that the user has entered."""
    st.button("All studies", icon=":material/arrow_back:", type="tertiary", on_click=lambda: link.go({}))
    st.header(study.title, anchor=False)
    st.html(f'{picture.CSS}<div class="rl-claim">{html.escape(study.claim)}<small>Claim of {html.escape(study.source)}.'
            f"<br>Tested here: {html.escape(study.setting)} Model: {html.escape(study.on)}. {len(study.seeds)} seeds."
            "</small></div>")
    if study.asks_model:
        shown = widget_state("studies:model", study.model)
        st.text_input("Model", shown.value, key=shown.key, placeholder="Hugging Face folder, hub id or run",
                      on_change=lambda: named(shown.taken()), width=420, help="The pretrained model that all "
                      "runs of this study start from: a Hugging Face folder, a hub id, or an earlier run on one.")
    runs = _runs(study)
    st.session_state["studies:new"] = runs
    polled = _waits(study, runs)
    st.fragment(_tick, run_every=EVERY if polled else None, key="study")(study, polled)


def _runs(study: Study) -> Runs:
    return plan.found(study, reversed(lab().store.sweep_runs()))


def _waits(study: Study, runs: Runs) -> bool:
    """Whether there will be something else to see without a click."""
    return runs.active or any(not jobs.ended(jobs.job_id(spec)) for spec in needed(study, runs))


@errors_shown()
def _tick(study: Study, polled: bool) -> None:
    runs = st.session_state.pop("studies:new", None)
    if runs is None:
        runs = _runs(study)
        if _waits(study, runs) != polled:
            st.rerun()  # the whole page, which then polls, or no longer does
    try:
        own, kept = _own(study, runs), recorded.read().get(study.key)
        with st.container(border=True, key="study_verdict"):
            _verdicts(runs, own, kept)
            if not runs.active:
                _to_decide(study, runs, own, kept)
            _start(study, runs, kept)
        st.html(picture.findings(study, own, kept))
        st.caption(rule(study))
        if own:
            with st.expander("The numbers of each setting, here"):
                st.html(picture.settings(own))
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")


def _amount(kept: Recorded) -> str:
    """Return the number of runs and the training time of a recorded result."""
    return f"{f'{kept.runs} runs, ' if kept.runs else ''}{duration(kept.seconds)} of training"


def _verdicts(runs: Runs, own: Result | None, kept: Recorded | None) -> None:
    """The verdict of the runs here, and the recorded one, each with what it rests on."""
    lines = []
    if own:
        seeds = min(each.estimate.seeds for each in own.findings)
        lines.append(f'<span class="rl-here">●</span> <b>Your runs:</b> {picture.badge(own.verdict)} '
                     f'<span class="rl-muted">{seeds} seeds, {duration(own.seconds)} of training</span>')
    if kept:
        lines.append(f'<span class="rl-kept">●</span> <b>Recorded:</b> {picture.badge(kept.verdict)} <span class='
                     f'"rl-muted">{html.escape(kept.date)}, {html.escape(kept.machine)}, {_amount(kept)}</span>')
    if not own:
        failed = sum(row.state in RESUMABLE for row in runs.all)
        why = (f"{failed} runs did not finish. Run the missing ones again." if failed and not runs.active else
               "Your own result appears here when all runs have finished.")
        lines.append(f'<span style="opacity:.75">{why}</span>')
    st.html("".join(f'<div class="rl-status">{line}</div>' for line in lines))


def _start(study: Study, runs: Runs, kept: Recorded | None) -> None:
    """The button that runs what is missing, with its cost, and the way to Compare."""
    if runs.active:
        _going(study, runs)
    if study.asks_model and not study.model:
        st.caption("Name a model to run this study on it.")
        return
    todo, first = plan.missing(study, runs), len(runs.scorers) < study.scorers
    if not todo and not runs.active:
        seeds = max((row.spec.seed for rows in runs.of.values() for row in rows), default=-1) + 1
        todo, label = plan.missing(study, runs, range(seeds, seeds + MORE)), f"{MORE} more seeds"
    elif first and todo:
        label = f"Train the {study.first if len(todo) == 1 else f'{len(todo)} {study.first}'} first"
    else:
        count = len(study.settings) * len(study.seeds)
        label = f"Run this study: {len(todo)} runs" if len(todo) == count else f"Run the missing {len(todo)} of {count}"
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if todo and not runs.active and not read_only():
            st.button(label, icon=":material/play_arrow:", key="study:start", on_click=_launch, args=(todo,),
                      type="primary" if "seeds" not in label else "secondary")
            said = duration_line.about(todo, max_runs())
            then = " Then the policies are trained." if first else ""
            whole = kept.seconds_of(study, len(plan.every(study))) if kept else 0.0
            took = f" All runs took {duration(whole)} on the recorded machine." if kept else ""
            st.caption(literal(f"{said}{then}{took}"), width="stretch")
        if place := _compared(runs):
            st.page_link("../pages/compare.py", label="Open in Compare", icon=":material/query_stats:",
                         query_params=link.written(place))


def _to_decide(study: Study, runs: Runs, own: Result | None, kept: Recorded | None) -> None:
    """For a claim that is not decided: a button that queues the missing seeds, with its cost."""
    found = own.by_label if own else kept.findings if kept else None
    need = verdict.needed(study, found) if found else None
    if need is None:
        return
    whose = "Your runs" if own else "The recorded runs"
    if need.seeds is None:
        st.html(f'{picture.CSS}<div class="rl-need">{whose} cannot tell, and a verdict would need more than {MOST} '
                "seeds per setting, because at this scale the difference is too small for its spread.</div>")
        return
    todo = plan.to_decide(study, runs, need)
    settings = f"{len(need.settings)} of {len(study.settings)} settings"
    st.html(f'{picture.CSS}<div class="rl-need"><b>{whose} cannot tell. About {need.seeds} seeds would</b>, for '
            f"{settings if len(need.settings) < len(study.settings) else 'each setting'}. Estimated from the spread so "
            f"far: a verdict in {percent(POWER)} of repetitions, if the difference is as measured.</div>")
    if len(runs.scorers) < study.scorers or not todo or read_only() or (study.asks_model and not study.model):
        return
    seconds = own.seconds / len(runs.counted) if own else kept.seconds_of(study, 1) if kept else 0.0
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.button(f"Queue {len(todo):,} runs", icon=":material/playlist_add:", key="study:decide", on_click=_launch,
                  args=(todo,))
        st.caption(f"About {duration(seconds * len(todo) / max_runs())} with {max_runs()} at a time, up to "
                   f"{_tokens(todo):,} sampled tokens.")


def _tokens(specs: Sequence[RunSpec]) -> int:
    """The most tokens that runs can sample."""
    return sum(spec.steps * math.prod(int(spec.knobs.get(key, 1)) for key in (
        "prompts_per_step", "group_size", "max_new_tokens")) for spec in specs)


def _launch(specs: list[RunSpec]) -> None:
    try:
        plan.queue(lab().store, specs)
        lab().launcher.wake()
    except LabError as error:
        session.show_error(str(error))


def _going(study: Study, runs: Runs) -> None:
    """The progress of the runs, and a button that stops them."""
    rows = runs.all
    done = sum(row.state not in ACTIVE for row in rows) / len(rows)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="study_going"):
        st.html(f'<div class="rl-status" role="status"><b>{len(rows)} runs</b>{counts(rows)}</div>{bar(done)}',
                width="stretch")
        asked = all(row.pending for row in rows if row.state in ACTIVE)
        st.button("Stop", icon=":material/stop:", key="study:stop", disabled=read_only() or asked, on_click=_stop,
                  args=(rows,), help="The runs stop after their current step" if asked else None)


def _stop(rows: tuple[RunRow, ...]) -> None:
    try:
        for sweep_id in dict.fromkeys(row.sweep for row in rows if row.sweep and row.state in ACTIVE):
            sweep.cancel(lab().store, sweep_id)
    except LabError as error:
        session.show_error(str(error))


def _compared(runs: Runs) -> ComparePlace | None:
    """Compare with the newest sweep of the study, or with its runs where they came one by one."""
    rows = [row for each in runs.of.values() for row in each if row.step]
    sweeps = Counter(row.sweep for row in rows if row.sweep)
    if not rows:
        return None
    most = sweeps.most_common(1)
    if most and most[0][1] == len(rows):
        return ComparePlace(sweep=str(most[0][0]))
    return ComparePlace(runs=tuple(row.id for row in rows))


def rule(study: Study) -> str:
    """The rule of the verdict, in words."""
    many = len(study.deciding)
    level = (f"The intervals of the {many} deciding contrasts hold jointly with 95 % confidence" if many > 1 else
             "The interval of the deciding contrast holds with 95 % confidence")
    return (f"Intervals are Welch's, over the seeds. {level}. A contrast agrees if its whole interval lies in the "
            f"shaded region and disagrees if none of it does; otherwise, or with fewer than "
            f"{FEWEST} seeds, there is no verdict at this scale. The claim agrees if all deciding contrasts agree, "
            f"and disagrees if one disagrees.")


def _own(study: Study, runs: Runs) -> Result | None:
    """The result of this lab's own runs, kept until another run has finished. Jobs measure checkpoints outside the
    page."""
    finished = [row.id for rows in runs.finished().values() for row in rows]
    if not all(runs.finished().values()):
        return None
    for spec in () if read_only() else needed(study, runs):
        lab().launcher.compute(spec)
    waiting = [spec for spec in needed(study, runs) if not jobs.ended(jobs.job_id(spec))]
    if waiting:
        st.caption(f"{len(waiting)} measurements are {'missing' if read_only() else 'under way …'}")
        return None
    known = st.session_state.setdefault(KNOWN, {})
    if known.get("runs") != (study.key, finished):
        known |= {"runs": (study.key, finished), "result": result(lab().store, study, runs)}
    found: Result | None = known["result"]
    return found
