"""Estimate in words how long the planned runs will take; measure this machine if no earlier run is known."""

from __future__ import annotations

import streamlit as st

from app.lab import lab
from app.status import duration
from labcore.analysis import time_left
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.sizing import pace
from labcore.runs import jobs
from labcore.runs.spec.run_spec import RunSpec

EARLIER = 200  # runs that an estimate looks at


def about(specs: list[RunSpec], places: int) -> str:
    """A sentence with the number of runs at a time and the estimated time of all."""
    said = f"{places} runs at a time; the others wait in a queue. " if len(specs) > places else ""
    known = time_left.earlier(lab().store.runs("finished", limit=EARLIER))
    unknown = [spec for spec in time_left.unknown(specs, known) if _quick(spec)]
    measured = _measured([*unknown, *time_left.bases(specs)]) if unknown else {}
    if measured is None:
        return f"{said}Measuring this machine's speed …"
    found = time_left.estimate(specs, known, measured, places)
    least = f", which takes at most {duration(found.before)}" if found.before else ""
    before = f" SFT of the base model runs first{least}." if time_left.bases(specs) else ""
    if found.unknown:
        short = f"More than {duration(found.seconds)}: no" if len(found.unknown) < len({*map(_label, specs)}) else "No"
        return f"{said}{short} earlier {', '.join(found.unknown)} run to estimate from.{before}"
    source = f"a {pace.SECONDS:g} s measurement on this machine" if found.measured else "earlier runs here"
    return f"{said}About {duration(found.seconds)}, estimated from {source}.{before}"


def _label(spec: RunSpec) -> str:
    return spec.row.label


def _quick(spec: RunSpec) -> bool:
    """Whether its first steps may be made unasked: a model of the user's own may take minutes to load."""
    return spec.model in MODELS or len(spec.kind_row.models) < 2


def _measured(specs: list[RunSpec]) -> dict[str, time_left.Pace] | None:
    """The paces of some runs, measured once off the page; None until that is done."""
    wanted = pace.asked(specs)
    try:
        job = lab().launcher.compute(wanted)
    except LabError:  # the button will say so
        return {}
    found = jobs.outcome(job)
    if found is None:
        st.fragment(_await, run_every=0.5, key="launch:measuring")(job)
        return None
    return time_left.of_job(wanted["specs"], found.result) if found.result else {}


def _await(job: str) -> None:
    if jobs.ended(job):
        st.rerun()
