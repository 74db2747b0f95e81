"""Run slow computations only after a click, and show their cost beforehand."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.tokens import literal
from labcore.catalog.llm.models import MODELS
from labcore.runs import jobs
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import RunSpec


def large(spec: RunSpec) -> bool:
    """Whether a run uses a model from a folder or the Hub; a built-in model answers within a second or two."""
    return spec.model not in MODELS and "/" in spec.model


def requested(view: str, choice: Any, spec: jobs.Spec, cost: str) -> jobs.Spec | None:
    """The job that the view shows: `spec` if it is done, otherwise the job requested under this `choice`.

    If `spec` is neither, a button requests it, beside the sentence `cost`. None if no job was requested.
    """
    if (done := jobs.outcome(jobs.job_id(spec))) and done.result is not None:
        return spec
    key = f"requested:{view}"
    of, asked = st.session_state.get(key, (None, None))
    found: jobs.Spec | None = asked if of == choice else None
    if found != spec:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"request:{view}"):
            st.button("Compute" if found is None else "Compute again", key=f"compute:{view}",
                      icon=":material/calculate:", on_click=st.session_state.__setitem__, args=(key, (choice, spec)),
                      disabled=read_only())
            st.markdown(literal(cost), width="stretch")
    return found
