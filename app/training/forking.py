"""The fork dialog: the step to fork from, the settings to change, and the family of forks drawn as one tree."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import number_boxes
from app.lab import active, errors_shown, in_words, lab
from app.session import show_run
from app.status import name_of
from app.theme import DARK, LIGHT, ground
from app.tokens import literal
from app.training import controls
from labcore.catalog.knob import Knob, Value, shown
from labcore.errors import LabError
from labcore.runs import fork
from labcore.runs.knob_history import Change, KnobHistory
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import parent_title, title

OPEN, ASKED = "fork", "fork_asked"
MOST_ANCESTORS = 4
RANDOM = {True: "the same", False: "fresh"}


@dataclass(frozen=True)
class Wish:
    """A fork that the user asked for: of a run, and perhaps of the event of a knob that the fork sets otherwise or
    leaves out; or with `knob` at `value`, from before the step `before`.

    `steps` are the steps with checkpoints when the dialog was opened, so that the choice does not change while it is
    open.
    """

    run_id: str
    steps: tuple[int, ...]
    event_id: int | None = None
    knob: str = ""
    value: Value | None = None
    before: int = 0


def open_dialog(run: RunRow | None, kind: str) -> None:
    """Open the dialog for a run."""
    assert run is not None, "the button is beside a run"
    _open(run.id)


def _open(run_id: str, event_id: int | None = None, **asked: Any) -> None:
    st.session_state[OPEN] = Wish(run_id, tuple(fork.steps_to_fork(run_id)), event_id, **asked)


def open_at_marker(run_id: str, event_id: int) -> None:
    """Open it for a knob's marker; called from within a fragment, which must have the page drawn anew: `asked`."""
    _open(run_id, event_id)
    st.session_state[ASKED] = True


def open_with_value(run_id: str, knob: str, value: Value, before: int) -> None:
    """Open it with a knob at another value, from before a step; also called from within a fragment."""
    _open(run_id, knob=knob, value=value, before=before)
    st.session_state[ASKED] = True


def asked() -> bool:
    """True once if the dialog waits for the page to be drawn."""
    return bool(st.session_state.pop(ASKED, False))


def show(beside: RunRow | None) -> None:
    """The dialog, while it is open. It stays open while the page around it is drawn again, `beside` its run or a fork
    of it, and is gone on any other page."""
    found: Wish | None = st.session_state.get(OPEN)
    run = lab().find(found.run_id) if found else None
    if found is None or run is None or beside is None or run.spec.kind != beside.spec.kind:
        st.session_state.pop(OPEN, None)
        return
    heading = f"Fork {literal(title(run))}"
    st.dialog(heading, width="medium", icon=":material/call_split:", on_dismiss=_close)(_form)(run, found)


def _close() -> None:
    st.session_state.pop(OPEN, None)


@errors_shown()
def _form(run: RunRow, found: Wish) -> None:
    there, history = found.steps, KnobHistory(run.spec, lab().store.events_after(run.id))
    if not there:
        st.info(literal(f"{title(run)} has no checkpoint to fork from yet. Wait for its first step." if active(run) else
                        f"{title(run)} ended before its first checkpoint, so it cannot be forked. Start a new run."))
        return
    marked = history.move_of(found.event_id)
    scope = f"fork:{run.id}:{found.event_id}" + (f":{found.knob}:{found.value}" if found.knob else "")
    step, algorithm = _from(run, found, history.moves, marked, scope)
    base = _base(run, step, algorithm)
    if base is None:
        return
    here = f"{scope}:{step}:{algorithm}"
    values = _values(here, base, marked, found)
    _knobs(controls.Target(here, values, usual=base.knobs), fork.movable(run.spec, algorithm), step,
           marked.knob if marked else found.knob)
    left, right = st.columns(2)
    twin = left.segmented_control("Random numbers", list(RANDOM), format_func=RANDOM.__getitem__, default=True,
                                  required=True, key=f"{scope}:twin",
                                  help="The same (common random numbers): any difference is due to your change. "
                                       "Fresh: new random numbers from the same state.")
    until: dict[int, int] = st.session_state.setdefault(f"until:{scope}", {})
    number_boxes.number(here, "until", "Until step", until.get(step, base.steps), (step + 1, WHOLE["steps"][1]),
                        lambda new: until.update({step: new}), right, step=10)
    later = [each.text for each in history.moves if each.step > step]
    note = fork.optimizer_note(run.id, step)
    st.caption(_words(run, base, values, twin, later, not active(run) and step >= run.step, exact=not note))
    if note:
        st.caption(note)
    if st.button(f"Fork from step {step:,}", type="primary", icon=":material/call_split:", key=f"{scope}:go",
                 shortcut="Ctrl+Shift+Enter"):  # Run again, below the dialog, has the other
        _start(run, step, algorithm, {key: value for key, value in values.items() if value != base.knobs[key]}, twin,
               until.get(step, base.steps), here)


def _from(run: RunRow, found: Wish, changes: Sequence[Change], marked: Change | None, scope: str) -> tuple[int, str]:
    """The step to fork from and the algorithm to continue with, as the user chooses them."""
    there = found.steps
    left, right = st.columns(2)
    usual = _usual(there, changes, marked, found.before)
    step = left.selectbox("From step", there[::-1], index=there[::-1].index(usual),
                          format_func=lambda at: _about(at, there, changes), key=f"{scope}:step:{there}")
    compatible = {row.key: row.label for row in fork.compatible(run.spec)}
    algorithm = right.selectbox("Continue with", list(compatible), format_func=compatible.__getitem__,
                                key=f"{scope}:algorithm")
    if marked and not any(at < marked.step for at in there):
        st.info(f"No checkpoint is left from before {literal(marked.text)} at step {marked.step:,}: the first is that "
                f"of step {there[0]:,}, after the change.")
    return step, algorithm


def _usual(there: Sequence[int], changes: Sequence[Change], marked: Change | None, asked: int) -> int:
    """The step to fork from if nothing is chosen: before the step `asked`, right before the marker, or the last one;
    else the newest checkpoint."""
    last = marked or (changes[-1] if changes else None)
    if not asked:
        if last is None:
            return there[-1]
        asked = last.step
    before = fork.newest_before(there, asked)
    return there[0] if before is None else before


def _about(step: int, there: Sequence[int], changes: Sequence[Change]) -> str:
    """A step as a choice, with the changes that came between it and the next checkpoint."""
    following = min((at for at in there if at > step), default=None)
    after = [each.text for each in changes if each.step > step and (following is None or each.step <= following)]
    return f"{step:,}" + (f" · before {', '.join(after[:2])}{' …' if after[2:] else ''}" if after else "")


def _base(run: RunRow, step: int, algorithm: str) -> RunSpec | None:
    """The fork with nothing moved; None, and a sentence, where there can be none."""
    try:
        return fork.fork_spec(lab().store, run.id, step, algorithm=algorithm)
    except LabError as error:
        st.warning(in_words(error), icon=":material/rule:")
        return None


def _values(scope: str, base: RunSpec, marked: Change | None, found: Wish) -> dict[str, Value]:
    """The knobs as the dialog has them; from the marker on, its knob begins with what it was before, and a knob that is
    wished for with the value wished for."""
    key = f"values:{scope}"
    if key not in st.session_state:
        st.session_state[key] = dict(base.knobs)
        if marked and base.parent and marked.step <= base.parent[1] and marked.knob in base.knobs:
            st.session_state[key][marked.knob] = marked.before
        if found.knob in base.knobs:
            st.session_state[key][found.knob] = found.value
    values: dict[str, Value] = st.session_state[key]
    return values


def _knobs(target: controls.Target, knobs: list[Knob], step: int, first: str) -> None:
    """The knob with the key `first`, as the question, if there is one; then all that can be another one."""
    asked = next((knob for knob in knobs if knob.key == first), None)
    if asked:
        st.markdown(f"**What if {literal(asked.name)}** had been … from step {step:,} on?")
        if asked.type in (int, float):
            controls.number(target, asked)
        else:
            controls.widgets(target, [asked])
    others = [knob for knob in knobs if knob is not asked]
    plain = [knob for knob in others if not knob.advanced]
    if asked:
        _folded("More knobs", target, plain)
    else:
        _grid(target, plain)
    if rest := [knob for knob in others if knob.advanced]:
        _folded("Advanced knobs" if asked else "More knobs", target, rest)


def _folded(title: str, target: controls.Target, knobs: list[Knob]) -> None:
    fold = st.expander(title, key=f"{target.scope}:{title}", on_change="rerun")
    if fold.open:
        with fold:
            _grid(target, knobs)


def _grid(target: controls.Target, knobs: list[Knob]) -> None:
    columns = st.columns(2)
    for place, knob in enumerate(knobs):
        with columns[place % 2]:
            controls.widgets(target, [knob])


def moved(before: Mapping[str, Value], after: Mapping[str, Value], knobs: list[Knob]) -> list[str]:
    """The knobs with another value than before, as people write it: "β 0.2 → 0.04"."""
    return [f"{knob.name} {shown(before[knob.key])} → {shown(after[knob.key])}" for knob in knobs
            if knob.key in before and before[knob.key] != after[knob.key]]


def _words(run: RunRow, base: RunSpec, values: Mapping[str, Value], twin: bool, later: list[str],
           ended: bool, exact: bool) -> str:
    """The effect of this fork in words. `later` are the changes that the parent saw after that step; `ended`: no step
    follows; `exact`: the checkpoint has all that the parent's next steps depended on."""
    changes = moved(base.knobs, values, fork.movable(run.spec, base.algorithm))
    if base.algorithm != run.spec.algorithm:
        changes.insert(0, f"{base.row.label} in place of {run.spec.row.label}")
    without = literal(f"without {', '.join(later[:3])}{' …' if later[3:] else ''}") if later else ""
    luck = ("Common random numbers: any difference is due to this change." if twin else
            "The random numbers are new, so part of the difference is random.")
    if changes:
        return f"From there on {literal(', '.join(changes))}{f', {without}' if later else ''}. {luck}"
    if later:
        return f"It continues as it was there, {without}. {luck}"
    if ended:
        return "Nothing is changed: it continues from where its parent ended."
    repeats = "it repeats its parent" + (", bit for bit" if exact else " except for a new optimizer state")
    return (f"Nothing is changed: {repeats}." if twin else
            "The same settings with new random numbers: how much of the curve is random?")


def _start(run: RunRow, step: int, algorithm: str, knobs: Mapping[str, Value], twin: bool, steps: int,
           scope: str) -> None:
    try:
        number_boxes.check(scope)
        spec = fork.fork_spec(lab().store, run.id, step, algorithm=algorithm, knobs=knobs, twin=twin, steps=steps)
        child = lab().launcher.start(spec)
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
        return
    _close()
    show_run(child, run.spec.kind)
    st.rerun()


# ---- the family --------------------------------------------------------------------------------------------------


def ancestors(run: RunRow) -> list[RunRow]:
    """The parent of a fork, its parent, and so on, as far as they are there."""
    found: list[RunRow] = []
    while run.spec.parent and len(found) < MOST_ANCESTORS:
        above = lab().find(run.spec.parent[0])
        if above is None:
            break
        found.append(above)
        run = above
    return found


def family(run: RunRow, above: list[RunRow]) -> None:
    """One line below the numbers: whose fork this is, in the colours of the charts, and the way to compare both."""
    if run.spec.parent is None:
        return
    parent, step = run.spec.parent
    palette = DARK if ground() == "dark" else LIGHT
    dot = '<span class="rl-dot" style="margin-left:.3rem;background:{}"></span>'
    own = dot.format(palette[len(above) % 6])
    there = dot.format(palette[(len(above) - 1) % 6]) if above else ""
    state = f", {name_of(above[0]).lower()}" if above else ", which was deleted"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="family"):
        name = title(above[0]) if above else parent_title(lab().store, run.spec)
        st.html(f'<div class="rl-status">{own}This run, forked from {there} <b>{html.escape(name)}</b>'
                f"{state}, at step {step:,}</div>", width="content")
        if above:
            st.page_link("../pages/compare.py", label="Compare with its parent", icon=":material/compare_arrows:",
                         query_params={"runs": f"{parent},{run.id}"})
