"""The charts of the RL stage while SFT still makes its base: they stand ready, greyed. Pure but for the drawing."""

from __future__ import annotations

import html

import streamlit as st

from app.theme import symbol
from app.training.feed import LARGE
from labcore.catalog.metrics import METRICS, PANELS
from labcore.spec.run_spec import RunSpec

CSS = """<style>
.rl-ahead{opacity:.55}.rl-ahead h4{font-size:15px;font-weight:600;margin:.2rem 0 .5rem;padding:0}
.rl-ahead>div{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:10px 18px}
.rl-ahead b{font-size:14px;font-weight:600}.rl-ahead small{font-size:12px}
.rl-ahead i+small+div{height:72px;border-bottom:1px solid color-mix(in srgb,currentColor 30%,transparent);
  background:repeating-linear-gradient(color-mix(in srgb,currentColor 11%,transparent) 0 1px,transparent 1px 24px)}
@media (max-width:640px){.rl-ahead>div{grid-template-columns:minmax(0,1fr)}}
</style>"""


def frames(spec: RunSpec) -> str:
    """The empty frames of the charts of `spec`, as HTML."""
    panels = [PANELS[key] for key in spec.row.charts(spec.task_row)[:LARGE]]
    tiles = "".join(f"<div><b>{panel.title}</b> <i>{symbol(METRICS[panel.metrics[0]].symbol)}</i> "
                    f"<small>{METRICS[panel.metrics[0]].unit}</small><div></div></div>" for panel in panels)
    title = f"Stage 2 of 2: {html.escape(spec.row.label)}"
    return f"{CSS}<section class='rl-ahead'><h4>{title}</h4><div>{tiles}</div></section>"


def show(spec: RunSpec) -> None:
    """Draw them."""
    st.html(frames(spec))
