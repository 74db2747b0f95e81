"""Show beside Run the estimated time and memory of a step on this machine, with buttons that lower them if they are too
high. Only for models that the user brought along, because the built-in ones are fast."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import naming
from app.draft import Draft
from app.jobs import result
from app.lab import lab
from app.tokens import literal
from app.training.data_words import Proposal
from app.training.own_data import take
from labcore.analysis import time_left
from labcore.catalog.amounts import duration
from labcore.catalog.amounts import size as in_bytes
from labcore.catalog.knob import shown
from labcore.errors import LabError
from labcore.llm.sizing import step_time
from labcore.llm.sizing.memory import Sizes, asked
from labcore.llm.sizing.pace import setting
from labcore.llm.sizing.step_time import Lighter, Need
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import RunSpec

EARLIER = 50  # runs that are looked at for one of the same settings


def follows(draft: Draft) -> bool:
    """True if the page shows the time of a step, so that this has to follow the knobs."""
    return draft.new and not read_only() and not draft.fault() and step_time.asks(draft.spec())


def show(draft: Draft) -> None:
    """Show the time of a step before a run; nothing if the user has not asked for it, or the model's sizes are not
    known."""
    if not follows(draft):
        return
    try:
        spec = draft.spec()
        lora = next((other for way, other in step_time.alternatives(spec).items() if way[0][0] == "lora_rank"), None)
        found, there = result(asked([spec, *filter(None, [lora])]), "Counting the sizes", "step_sizes")
    except LabError:  # the page says why it cannot run
        return
    if not (found and there) or isinstance(found["sizes"][0], str):
        return
    sizes = Sizes(**found["sizes"][0])
    speed, there = result(step_time.speed_asked(spec, sizes), "Measuring the speed of this machine", "step_speed")
    if speed and there:
        adapted = None if lora is None or isinstance(found["sizes"][1], str) else Sizes(**found["sizes"][1])
        _told(draft, spec, sizes, adapted, speed)


def _told(draft: Draft, spec: RunSpec, sizes: Sizes, adapted: Sizes | None, speed: dict[str, Any]) -> None:
    need, known = step_time.need(spec, sizes, speed), time_left.earlier(lab().store.runs(kind=spec.kind, limit=EARLIER))
    before = known.get(setting(spec))
    ways = step_time.lighter(spec, sizes, adapted, speed)
    with st.container(border=True, key="step_time", gap="small"):
        st.markdown(literal(words(spec, need, before.step if before else None)))
        if ways:
            st.caption("To make a step faster or smaller:")
            with st.container(horizontal=True, gap="small"):
                for way in ways:
                    label = _label(spec, way)
                    st.button(label, key=f"lighter:{label}", on_click=take, args=(draft, Proposal(label, way.way)))


def words(spec: RunSpec, need: Need, before: float | None = None) -> str:
    """The time of a step, in sentences; `before` are the seconds of one in earlier runs of the same settings.
    """
    seconds = before or need.seconds
    source = "measured in earlier runs here" if before else "estimated, for completions of full length"
    fits = {True: "it fits", False: "it may not fit", None: "free memory unknown"}[need.fits]
    return (f"On this machine a step takes about {duration(seconds)} ({source}), so {spec.steps:,} steps take about "
            f"{duration(seconds * spec.steps)}. Memory: about {in_bytes(need.bytes)}; {fits}.")


def _label(spec: RunSpec, way: Lighter) -> str:
    named = " and ".join(f"{naming.title(key, [spec])} {shown(value)}" for key, value in way.way)
    return f"{named}: {duration(way.need.seconds)} a step, {in_bytes(way.need.bytes)}"
