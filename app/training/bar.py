"""The bar on top: the open run, and the actions on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import streamlit as st

from app import link, number_boxes, sharing
from app.draft import Draft
from app.lab import active, lab
from app.marked import worded
from app.naming import to_choose
from app.plan import sweep_from
from app.session import close_run, runs_of, show_error, show_run
from app.status import failed_at_once, name_of
from app.tokens import literal
from app.training import clock, forking
from app.widget_state import widget_state
from labcore.catalog import kinds
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.store.rows import RESUMABLE, RunRow

WATCH = "Watch another run"


@dataclass(frozen=True)
class Action:
    """A button: `do` gets the open run, if any, and the kind of the page."""

    label: str
    icon: str
    do: Callable[[RunRow | None, str], None]
    shortcut: str | None = None
    primary: bool = False
    help: str = ""
    disabled: bool = False
    starts: bool = False  # the draft, so that it is not offered while that cannot run


def _start(run: RunRow | None, kind: str, seed_step: int = 0) -> None:
    draft = Draft(run, kind)
    if seed_step:
        draft.fields["seed"] += seed_step
    show_run(lab().launcher.start(draft.spec(), draft.fields["warm_up"]), kind)


def _ask(command: str) -> Callable[[RunRow | None, str], None]:
    def ask(run: RunRow | None, kind: str) -> None:
        assert run is not None, "the button is beside a run"
        store = lab().store
        if [control.command for control in store.asked(run.id)][-1:] != [command]:  # a busy page may hear a key twice
            store.ask(run.id, command, {})
        if command in ("resume", "step"):  # who looked at an earlier step now wants to see what comes
            clock.live()
    return ask


def _resume(run: RunRow | None, kind: str) -> None:
    """Resume with the knobs that were moved since the run ended: a diverged one would only diverge again."""
    assert run is not None, "the button is beside a run"
    draft, spec = Draft(run, kind), run.spec
    number_boxes.check(draft.knob_scope)
    moved = {}
    if (*draft.identity, draft.fields["model"]) == (spec.algorithm, spec.mix, spec.task, spec.model):
        moved = {knob.key: draft.values[knob.key] for knob in knobs_of(spec.row, spec.task_row)
                 if knob.effect != "restart" and draft.values[knob.key] != spec.knobs[knob.key]}
    lab().launcher.resume(run.id, moved)
    clock.live()


RUN = Action("Run", ":material/play_arrow:", _start, "Ctrl+Enter", True, "Start the run. The defaults work",
             starts=True)
AGAIN = replace(RUN, label="Run again", help="A new run with the settings on the left")
SEED = Action("Another seed", ":material/casino:", lambda run, kind: _start(run, kind, 1),
              help="The same settings with the next seed", starts=True)
PAUSE = Action("Pause", ":material/pause:", _ask("pause"), "K")  # help would cover what is looked at after Run
GO_ON = Action("Resume", ":material/play_arrow:", _ask("resume"), "K", True)
STEP = Action("Step", ":material/skip_next:", _ask("step"), "N", help="One step, then pause again")
STOP = Action("Stop", ":material/stop:", _ask("stop"), "Shift+S",
              help="Stop and save a checkpoint to resume from. A long step that is under way is discarded")
RESUME = Action("Resume", ":material/play_arrow:", _resume, "K", True,
                "Continue from the last checkpoint, with the knobs as set on the left")
FORK = Action("Fork", ":material/call_split:", forking.open_dialog, "F",
              help="What if? Continue from one of its checkpoints with other settings")

# Before its first step a run has the buttons of a running one: else they would move under a mouse that is about to
# press Stop.
_BEFORE = (replace(PAUSE, disabled=True), STOP, replace(FORK, disabled=True, help="Available once the run has started"))

# Before its first step a run has made nothing to continue from or to fork.
_AT_ONCE = (AGAIN, replace(RESUME, primary=False, help="Run it again with the same settings"))

# What makes no difference any more while a run is about to stop or to pause.
_NOT_WHILE = {"stopping": (*_BEFORE[:2], PAUSE, GO_ON, STEP, STOP), "pausing": (PAUSE,)}

ACTIONS: dict[str, tuple[Action, ...]] = {
    "": (RUN,), "queued": _BEFORE, "starting": _BEFORE, "running": (PAUSE, STOP, FORK),
    "paused": (GO_ON, STEP, STOP, FORK), "finished": (AGAIN, SEED, FORK),
    **dict.fromkeys(RESUMABLE, (RESUME, replace(AGAIN, primary=False), FORK)),
}


def _actions(run: RunRow | None, fault: str) -> list[Action]:
    """The buttons for a run, or for none; `fault` is why the draft cannot be started.

    What is not offered then has no colour, on which its words could not be read.
    """
    found = ACTIONS[run.state if run else ""]
    if run and failed_at_once(run.state, run.step):
        found = _AT_ONCE
    if run and run.pending:
        found = tuple(replace(each, disabled=True, primary=False, help=f"{name_of(run)} after this step")
                      if each in _NOT_WHILE[run.pending] else each for each in found)
    return [replace(action, disabled=True, primary=False, help=literal(fault)) if fault and action.starts else action
            for action in found]


def bar(run: RunRow | None, kind: str, fault: str = "") -> None:
    """Draw it; `fault` is why the draft cannot be started, in a sentence."""
    elsewhere = kinds.kind(kind).elsewhere
    with st.container(horizontal=True, key="bar", vertical_alignment="bottom", gap="small"):
        _picker(run, kind)
        for action in () if read_only() or elsewhere else _actions(run, fault):
            st.button(action.label, key=f"do:{action.label}", icon=action.icon, shortcut=action.shortcut,
                      type="primary" if action.primary else "secondary", help=action.help or None,
                      disabled=action.disabled, on_click=_do, args=(action, run, kind))
        if not active(run) and not read_only() and not elsewhere:
            _sweep(run, kind)
        if run:
            if not read_only():
                label, icon = (WATCH, "podcasts") if elsewhere else ("New run", "add")
                st.button(label, icon=f":material/{icon}:", on_click=close_run, args=(kind,),
                          help="Open an empty page; this run continues")
            with st.popover("Link", icon=":material/link:", help="This view's address", key="link",
                            on_change="rerun") as opened:
                if opened.open:  # what is looked at may have changed since the page was drawn
                    st.code(link.address(), language=None, wrap_lines=True)
                    st.caption("Opens the same view again, in any browser on this machine.")
                    sharing.as_html([run.id], run.id, run.step > 0, "link")
    forking.show(run)


def _sweep(run: RunRow | None, kind: str) -> None:
    if st.button("Sweep", icon=":material/stacked_line_chart:", key="do:Sweep",
                 help="These settings with a knob at several values, and several seeds"):
        sweep_from(Draft(run, kind))
        st.switch_page("../pages/compare.py")


def _do(action: Action, run: RunRow | None, kind: str) -> None:
    """Every fault is one sentence on the page."""
    try:
        action.do(run, kind)
    except LabError as error:
        draft = Draft(run, kind)
        show_error(worded(str(error), knobs_of(draft.row, draft.task_row)))


def _picker(run: RunRow | None, kind: str) -> None:
    runs = runs_of(kind, beside=run)
    words = {"": WATCH if kinds.kind(kind).elsewhere else "New run"}
    words |= {each.id: to_choose(each, name_of(each).lower()) for each in runs}
    if run and run.id not in words:
        words[run.id] = to_choose(run, name_of(run).lower())
    # The widget keeps its words as its value: new words, new widget.
    shown = widget_state(f"picker:{kind}", run.id if run else "", of=tuple(words.items()))

    def picked() -> None:
        if chosen := shown.taken():
            show_run(chosen, kind)
        else:
            close_run(kind)

    st.selectbox("Run", list(words), list(words).index(shown.value), format_func=words.__getitem__, key=shown.key,
                 on_change=picked, width=300, label_visibility="collapsed")
