"""The surrogate explorer: every surrogate as a function of ratio and advantage, and its effect on a policy small enough
to be exact. The browser computes the numbers; this module gives it the values to start from."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import link, session
from app.components.surrogate_explorer import surrogate_explorer
from app.lab import in_words, lab
from app.naming import to_choose
from app.surrogate import tokens
from app.surrogate.place import FIRST, KNOBS, LABELS, SURROGATES, USUAL_BETA, Place, grab
from app.surrogate.tokens import Tokens
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.lessons import folders
from labcore.catalog import choices
from labcore.catalog.knob import Knob
from labcore.catalog.presets import preset
from labcore.errors import LabError
from labcore.runs.store.rows import RunRow

WHY = "why_clip"  # the lesson in which a run without the clip collapses
UNCLIPPED = preset("no_clip")
RECENT, OF_SWEEP = 60, 12  # newest runs to choose from, and how many of each sweep
NONE = ""
_SMALL = ("rewards", "pair", "old", "rate", "epochs", "leap", "along")
# Where the page begins without a run.
FREE: dict[str, Any] = {"beta": USUAL_BETA, "focus": FIRST, "shown": [FIRST], "a": 1.0, "rho": 1.4, "close": False,
                        "delta": 0.05, **{name: getattr(Place(), name) for name in _SMALL}}
INTRO = (r"A **surrogate** is maximised in place of the reward. It is a function of each token's ratio $\rho = "
         r"\pi/\pi_{old}$ (how much likelier the token is now than when it was sampled) and of its advantage $A$ (how "
         "much better than expected it was). Drag ρ or ε.")


def page() -> None:
    """The whole page."""
    place, faults = link.read(Place)
    session.problem()
    for fault in faults:
        st.warning(literal(fault.sentence), icon=":material/error:")
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.header("Surrogate explorer", anchor=False, width="content")
        with st.container(horizontal=True, width="content", gap="medium"):
            st.page_link("../pages/lessons.py", label=f"Lesson: {folders.find(WHY).title}",
                         icon=":material/experiment:", query_params={"lesson": WHY})
            st.page_link(session.page_of(UNCLIPPED.kind), label=f"Run it: {UNCLIPPED.label}",
                         icon=":material/play_arrow:", query_params={"preset": UNCLIPPED.key},
                         help=f"{UNCLIPPED.change}. {UNCLIPPED.look[0]}")
            st.page_link("../pages/foundations.py", label="New to ratios? See Foundations 6",
                         icon=":material/school:", query_params={"section": "importance"})
    st.markdown(INTRO)
    shown = _of_run(place)
    surrogate_explorer(payload(place, shown), key=f"surrogate_explorer:{place.run if shown else NONE}", on_grab=grab)


def payload(place: Place, shown: Tokens | None) -> dict[str, Any]:
    """The data of the component: the `usual` values, and those that the link has in their place."""
    lab_own = {key: float(knob.default) for key, knob in KNOBS.items()}
    usual = {**lab_own, **FREE, **(_of_tokens(shown) if shown else {})}
    said = {name: value for name in usual if (value := getattr(place, name)) is not None and value != usual[name]}
    dials = [_dial(knob, [name for name, needed in SURROGATES.items() if key in needed]) for key, knob in KNOBS.items()]
    return {"usual": usual, "said": said, "drawn": list(SURROGATES), "labels": LABELS, "dials": dials,
            "step": shown.step if shown else None,
            "tokens": [[dot.ratio, dot.advantage] for dot in shown.thinned] if shown else [],
            "count": len(shown.dots) if shown else 0}


def _dial(knob: Knob, keys: list[str]) -> dict[str, Any]:
    """A knob of some surrogates as a slider: over the range that usually works, where it declares one."""
    low, high = knob.safe or (knob.low or 0.0, knob.high if knob.high is not None else 2 * float(knob.default) or 1.0)
    log = knob.scale == "log" and low > 0
    return {"name": knob.key, "label": knob.title, "keys": keys, "low": low, "high": high, "log": log,
            **({} if log else {"step": (high - low) / 100})}


def _of_tokens(shown: Tokens) -> dict[str, Any]:
    """The values of a run: its knobs, its surrogate, and the usual size of its advantages."""
    return {**shown.knobs, "focus": shown.surrogate, "a": float(f"{shown.usual:.3g}"), "close": True,
            "rho": round(1 + 1.5 * shown.knobs.get("clip_high", FREE["rho"] - 1), 6), "shown": [shown.surrogate],
            **({"delta": shown.delta} if shown.delta else {})}


def _of_run(place: Place) -> Tokens | None:
    """The choice of a run and of its step, and the tokens of it; a sentence where it has none."""
    found = lab().find(place.run)
    recent = lab().store.runs(limit=RECENT, apart=False, of_sweep=OF_SWEEP)
    known = {run.id: run for run in (*([found] if found else ()), *recent) if tokens.has_ratio(run)}
    if place.run and found is None:
        st.warning(literal(session.missing(place.run)), icon=":material/error:")
    if not known and found is None:
        return None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium", key="surrogate_top"):
        _run_of(place, known)
        shown = _step_of(place, found) if found else None
    own = found.spec.knobs.get(choices.SURROGATE.key) if found else None
    if shown and own is not None and own not in SURROGATES:
        st.caption(f"The explorer has no curve for the surrogate of this run "
                   f"({choices.SURROGATE[str(own)].label}), so it draws the run's tokens on the unclipped one.")
    return shown


def _run_of(place: Place, known: dict[str, RunRow]) -> None:
    chosen = widget_state("surrogate:run", place.run if place.run in known else NONE, tuple(known))
    options = [NONE, *known]
    st.selectbox("Tokens of a run", options, index=options.index(chosen.value), key=chosen.key, width=320,
                 label_visibility="collapsed",
                 format_func=lambda run: f"Tokens of {to_choose(known[run])}" if run else "Show the tokens of a run",
                 on_change=lambda: _other(chosen.taken()))


def _step_of(place: Place, run: RunRow) -> Tokens | None:
    try:
        shown = tokens.of_run(run, lab().store.events_after(run.id), place.at)
    except LabError as error:
        st.info(in_words(error), icon=":material/info:")
        return None
    if len(steps := tokens.steps_of(run)) > 1:
        at = widget_state("surrogate:at", shown.step, tuple(steps))
        st.select_slider("Step", steps, at.value, key=at.key, width=260,
                         on_change=lambda: link.turn(Place, at=at.taken()))
    st.page_link(session.page_of(run.spec.kind), label="Open the run", icon=":material/open_in_full:",
                 query_params={"run": run.id, "tab": "Surrogate"})
    return shown


def _other(run: str) -> None:
    """Another run: the values that were changed for the previous run are reset."""
    link.go({link.params(Place)["run"].key: run} if run else {})
