"""The greyed charts of the RL stage while SFT still trains its base. Pure but for the drawing."""

from __future__ import annotations

import html

import streamlit as st

from app.training.empty import frames
from labcore.runs.spec.run_spec import RunSpec

CSS = """<style>
.rl-ahead{opacity:.55}.rl-ahead h4{font-size:15px;font-weight:600;margin:.2rem 0 .5rem;padding:0}
.rl-ahead .rl-tiles .rl-frame{height:72px}.rl-ahead .rl-tiles small{opacity:1}
</style>"""


def section(spec: RunSpec) -> str:
    """The empty frames of the charts of `spec` under the name of their stage, as HTML."""
    title = f"Stage 2 of 2: {html.escape(spec.row.label)}"
    return f"{CSS}<section class='rl-ahead'><h4>{title}</h4>{frames(spec.row, spec.task_row, spec.knobs)}</section>"


def show(spec: RunSpec) -> None:
    """Draw them."""
    st.html(section(spec))
