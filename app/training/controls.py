"""Make the widget of a knob: one table from the knob's type and scale, nothing written per knob.

The value of a knob lives in a plain dict of the session (`Target.values`), never only in the widget, so that a slider
and its number box agree and a page change resets nothing. A running run gets a change only from a widget's own
`on_change`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pkgutil import resolve_name
from typing import Any

import streamlit as st

from app import number_boxes, question_link
from app.marked import worded
from app.naming import written
from app.tokens import literal
from app.widget_state import WidgetState, widget_state
from labcore.catalog import inactive, questions
from labcore.catalog.knob import Knob, Value
from labcore.catalog.reward_terms import JOIN
from labcore.errors import LabError, listed
from labcore.runs.files.paths import read_only

WHEN = {"live": "live", "next batch": "next batch", "restart": "new run"}
MANTISSAS = (1, 1.5, 2, 3, 5, 7)
BEYOND = 5  # times as coarse as the fiftieth part: the steps of a slider beyond the usual range
LONGEST = 28  # characters of a value on a button
SHOWN_WHOLE = 38  # characters of a choice that its box shows in the column of knobs


@dataclass
class Target:
    """The target of the knobs: a draft or a run. `send` is called with each change (None for a draft). `going` locks
    the knobs that need a new run. `usual` are the values to which knobs can be reset; a knob with another value is
    marked."""

    scope: str
    values: dict[str, Value]
    send: Callable[[Knob, Value], None] | None = None
    going: bool = False
    refused: Callable[[str], object] = st.warning
    usual: Mapping[str, Value] = field(default_factory=dict)

    def locked(self, knob: Knob) -> bool:
        """True if the knob cannot be moved."""
        return read_only() or (self.going and knob.effect == "restart")


def widgets(target: Target, knobs: Iterable[Knob]) -> None:
    """Draw the knobs in their order. Why a knob has no effect is said below it, for neighbours with one reason once."""
    for why, some in groupby(knobs, key=lambda knob: inactive.reason(knob.key, target.values)):
        drawn = [*some]
        for knob in drawn:
            _widget(target, knob)
        if why:
            of = f" of {listed([knob.name for knob in drawn])}" if drawn[1:] else ""
            st.caption(literal(f"No effect{of}: {why}."))


def _widget(target: Target, knob: Knob) -> None:
    """Draw `knob` with the widget that its declaration asks for; below it the way back to its default, and before a run
    where its default is from and what this machine has to do with it."""
    WIDGETS[kind(knob)](target, knob)
    if changed(target, [knob]):
        st.button(f"Back to {_brief(knob.key, target.usual[knob.key])}", icon=":material/undo:", type="tertiary",
                  key=f"reset:{target.scope}:{knob.key}", on_click=reset, args=(target, [knob]))
    if knob.source and not target.going:
        st.caption(literal(f"Default {written(knob.key, knob.default)}: {knob.source}."))
    if knob.here and not target.going and (said := resolve_name(knob.here)()):
        st.caption(literal(said))


def kind(knob: Knob) -> str:
    """The widget's name in WIDGETS."""
    if knob.choices:
        return "choice"
    if knob.type is bool:
        return "switch"
    if knob.type is str:
        return "picks" if knob.pick else "text"
    if not knob.safe:
        return "number"
    return "stops" if knob.scale == "log" or (knob.reach and knob.type is float) else "slider"


def label(knob: Knob, going: bool = False, unit: bool = True) -> str:
    """The label of a knob: its name, its unit, and when a change takes effect.

    Plain words: Streamlit reads a label's markup out as it is written, to those who hear the page.
    """
    words = f"{knob.title} ({knob.unit})" if unit and knob.unit else knob.title
    return f"{words} · {WHEN[knob.effect]}" if going else words


def words(knob: Knob, going: bool) -> str:
    """The help: the trade-off, the range that usually works, and when a change counts."""
    safe = f" Usually {knob.safe[0]:g} to {knob.safe[1]:g}." if knob.safe else ""
    counts = {"live": "counts at the next update", "next batch": "counts from the next batch",
              "restart": "needs a new run"}[knob.effect]
    locked = " Locked while the run is running." if going and knob.effect == "restart" else ""
    default = written(knob.key, knob.default) or "empty"
    return (f"{worded(knob.help)}{safe} Default {default}; a change {counts}.{locked}"
            + question_link.as_markdown(questions.of_knob(knob.key)))


def stops(knob: Knob, also: Iterable[float]) -> list[float]:
    """The stops of a slider that are not evenly spaced, and those of `also`: round ones on a log scale; else as fine
    as usual over the safe range, and few beyond it.

    >>> from labcore.catalog.llm.knobs import LEARNING_RATE, ONLINE
    >>> stops(LEARNING_RATE, [0.0011])[-5:], stops(ONLINE[0], [])[-10:]
    ([0.002, 0.003, 0.005, 0.007, 0.01], [0.195, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    """
    low, high = _reach(knob)
    if knob.scale == "log":
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = {float(f"{m * 10.0 ** d:.6g}") for d in decades for m in MANTISSAS}
    else:
        least, most = _safe(knob)
        fine, coarse = nice_step(most - least), nice_step(BEYOND * (high - low))
        found = {*_steps(least, most, fine), *_steps(low, least, coarse), *_steps(most, high, coarse)}
    inside = {stop for stop in found if low <= stop <= high} | {float(low), float(high)}
    return sorted(inside | {float(value) for value in also})


def _steps(low: float, high: float, step: float) -> set[float]:
    """The multiples of `step` from `low` to `high`."""
    return {float(f"{place * step:.6g}") for place in range(math.ceil(low / step - 1e-9), int(high / step + 1e-9) + 1)}


def _safe(knob: Knob) -> tuple[float, float]:
    assert knob.safe is not None, "without one a knob has a box"
    return knob.safe


def _reach(knob: Knob) -> tuple[float, float]:
    """The range of a slider."""
    return knob.reach or _safe(knob)


def _seen(target: Target, knob: Knob) -> set[float]:
    """The slider's edges, the default, and every value the knob had outside them: a slider that shrank while it is
    moved would be a new one, and dragging would be interrupted."""
    reached: dict[str, set[float]] = st.session_state.setdefault(f"reach:{target.scope}", {})
    seen = reached.setdefault(knob.key, {*_reach(knob), float(knob.default)})
    value = float(target.values[knob.key])
    if value not in stops(knob, seen) if kind(knob) == "stops" else not min(seen) <= value <= max(seen):
        seen.add(value)
    return seen


def _common(target: Target, knob: Knob, name: str, unit: bool = True) -> dict[str, Any]:
    """Arguments that every widget shares; `unit`: the label says it, since the value does not.

    The caller gives the value as the widget's default: see `app.widget_state`.
    """
    shown = widget_state(f"knob:{target.scope}:{knob.key}:{name}", target.values[knob.key])
    return {"label": label(knob, target.going, unit), "key": shown.key, "help": words(knob, target.going),
            "disabled": target.locked(knob), "on_change": _changed, "args": (target, knob, shown)}


def _changed(target: Target, knob: Knob, shown: WidgetState) -> None:
    """The only place where a widget's value leaves the widget. A refused value is reset to the earlier one."""
    if number_boxes.is_box(target.scope, knob, shown.key) and number_boxes.fault(target.scope, knob):
        return  # it is said below the box; it keeps a draft from being started, and no run hears of it
    try:
        shown.value = _taken(target, knob, knob.check(_joined(st.session_state[shown.key])))
    except LabError as error:
        target.refused(worded(str(error), [knob]))
        shown.back()


def _taken(target: Target, knob: Knob, value: Value) -> Value:
    """Give the knob a value that it can have; return it. Raises LabError where it does not go with the others."""
    number_boxes.moved(target.scope, knob)
    if value != target.values[knob.key]:
        if target.send:
            target.send(knob, value)
        target.values[knob.key] = value
    return value


# ---- the way back to the defaults ---------------------------------------------------------------------------------


def changed(target: Target, knobs: Iterable[Knob]) -> list[Knob]:
    """The knobs that can be reset: they can be moved and are not at their usual values."""
    return [knob for knob in knobs if knob.key in target.usual and not target.locked(knob)
            and target.values[knob.key] != target.usual[knob.key]]


def reset(target: Target, knobs: Iterable[Knob]) -> None:
    """Give knobs their usual values. A value that contradicts a knob which is reset later is tried again after it."""
    left = list(knobs)
    for last in (False, True):
        failed = []
        for knob in left:
            try:
                _taken(target, knob, target.usual[knob.key])
            except LabError as error:
                failed.append(knob)
                if last:
                    target.refused(worded(str(error), [knob]))
        left = failed


def reset_all(target: Target, knobs: Iterable[Knob]) -> None:
    """The button that resets all `knobs`. It is always there, so that nothing moves when a first knob is changed."""
    moved = changed(target, knobs)
    count = f"{len(moved)} knob{'' if len(moved) == 1 else 's'}"
    st.button(f"Reset {count}" if moved else "All knobs at their defaults", icon=":material/restart_alt:",
              type="tertiary", key=f"reset:{target.scope}", disabled=not moved, on_click=reset, args=(target, moved),
              help=literal(f"Changed: {listed([knob.title for knob in moved])}") if moved else None)


def _brief(key: str, value: Value) -> str:
    """A value as a button can name it."""
    text = written(key, value)
    return (text if len(text) <= LONGEST else f"{text[:LONGEST - 1]}…") or "empty"


def nice_step(span: float) -> float:
    """The 1, 2 or 5 × 10^k that cuts `span` into about fifty.

    >>> nice_step(0.2), nice_step(0.3), nice_step(1.0)
    (0.005, 0.01, 0.02)
    """
    power = 10.0 ** math.floor(math.log10(span / 50))
    return next(float(f"{m * power:.3g}") for m in (1, 2, 5, 10) if m * power >= span / 50 * (1 - 1e-9))


def _slider(target: Target, knob: Knob) -> None:
    value = target.values[knob.key]
    seen = _seen(target, knob)
    low, high = knob.type(min(seen)), knob.type(max(seen))
    step = 1 if knob.type is int else nice_step(_safe(knob)[1] - _safe(knob)[0])
    counted = knob.type is int  # "1 steps" would be wrong: the label says the unit
    st.slider(**_common(target, knob, f"slider {low} {high}", unit=counted), min_value=low, max_value=high, value=value,
              step=step, format=None if counted else f"%g{_unit(knob)}")


def _stops(target: Target, knob: Knob) -> None:
    grid = stops(knob, _seen(target, knob))
    st.select_slider(**_common(target, knob, f"stops {hash(tuple(grid))}", unit=False), options=grid,
                     value=float(target.values[knob.key]), format_func=lambda stop: f"{stop:g}{_unit(knob)}")


def _unit(knob: Knob) -> str:
    """The unit, to stand behind a value."""
    return f" {knob.unit}" if knob.unit else ""


def number(target: Target, knob: Knob) -> None:
    """A box for everything from `low` to `high`, beyond the slider's safe range too. The page states its bounds, and
    says when a value is outside them: see `app.number_boxes`."""
    step = 1 if knob.type is int else float(f"{(abs(float(knob.default)) or 0.1) / 10:.1g}")
    common = _common(target, knob, "number")
    if knob.bounds:
        common["label"] += f" · {knob.bounds}"
    number_boxes.box(target.scope, knob, common["key"])
    st.number_input(**common, value=knob.type(target.values[knob.key]), step=knob.type(step),
                    format=None if knob.type is int else "%g")
    number_boxes.say(target.scope, knob)


def _choice(target: Target, knob: Knob) -> None:
    """A select box of choices. If it would cut the chosen text, the whole text is shown below it."""
    st.selectbox(**_common(target, knob, "choice"), options=knob.choices,
                 index=knob.choices.index(target.values[knob.key]), format_func=partial(written, knob.key))
    if len(words := written(knob.key, target.values[knob.key])) > SHOWN_WHOLE:
        st.caption(literal(words))


def _switch(target: Target, knob: Knob) -> None:
    st.toggle(**_common(target, knob, "switch"), value=bool(target.values[knob.key]))


def _text(target: Target, knob: Knob) -> None:
    st.text_input(**_common(target, knob, "text"), value=target.values[knob.key])


def _picks(target: Target, knob: Knob) -> None:
    chosen = [each for each in str(target.values[knob.key]).split(JOIN) if each]
    offered = resolve_name(knob.pick)()
    st.multiselect(**_common(target, knob, "picks"), options=list(dict.fromkeys([*chosen, *offered])), default=chosen,
                   format_func=picked)


def picked(text: str) -> str:
    """The picked file's name, without its hash.

    >>> picked("mine.py:right 0a1b2c3d4e5f"), picked("verifier")
    ('right · mine.py', 'verifier')
    """
    file, colon, function = text.rpartition(":")
    return f"{function.rpartition(' ')[0]} · {file}" if colon else text.replace("_", " ")


def _joined(value: object) -> object:
    """The value of a widget from which several may be picked, as its knob has it."""
    return JOIN.join(value) if isinstance(value, list) else value


WIDGETS: dict[str, Callable[[Target, Knob], None]] = {
    "slider": _slider, "stops": _stops, "number": number, "choice": _choice, "switch": _switch,
    "text": _text, "picks": _picks,
}
