"""The page before a run: what will happen, drawn with the chosen task's own example, or the task's world itself."""

from __future__ import annotations

import html
from collections.abc import Callable

import streamlit as st

from app.theme import symbol
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.metrics import METRICS, PANELS
from labcore.catalog.task import Task

CSS = """
<style>
.rl-steps{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:14px;margin:.2rem 0 .6rem}
.rl-steps section{border:1px solid color-mix(in srgb,currentColor 14%,transparent);border-radius:10px;padding:14px 16px;
  min-width:0}
.rl-steps h4{font-size:15px;font-weight:600;margin:0 0 4px;padding:0}.rl-steps p{font-size:14px;margin:0;opacity:.8}
.rl-steps .rl-mono{font-size:15px;margin:10px 0 2px;line-height:1.7}
.rl-tiles{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:10px 18px;margin-top:.2rem}
.rl-tiles div{min-width:0}.rl-tiles b{font-size:14px;font-weight:600}.rl-tiles small{font-size:12px;opacity:.72}
.rl-tiles .rl-frame{height:104px;border-bottom:1px solid color-mix(in srgb,currentColor 30%,transparent);
  background:repeating-linear-gradient(color-mix(in srgb,currentColor 11%,transparent) 0 1px,transparent 1px 35px)}
@media (max-width:640px){.rl-steps,.rl-tiles{grid-template-columns:minmax(0,1fr)}}
</style>"""
GRID = '<div class="rl-frame"></div>'


def picture(row: Algorithm, task: Task, fault: str, scene: Callable[[], None] | None = None) -> None:
    """Three steps, or the `scene` of the kind, and the frames of the charts to come.

    `fault`: why the run cannot start yet, if it cannot.
    """
    ready = f"<b>Ready.</b> Press <b>Run</b>: the curves move within seconds. {html.escape(row.summary)}"
    missing = f"<b>Not ready yet.</b> {html.escape(fault)}"
    colour = "#E69F00" if fault else "#009E73"
    st.html(f'<div class="rl-status"><span class="rl-dot" style="background:{colour}"></span>'
            f"<span>{missing if fault else ready}</span></div>")
    if scene:
        scene()
    tiles = "".join(f"<div><b>{PANELS[key].title}</b> <i>{symbol(METRICS[PANELS[key].metrics[0]].symbol)}</i> "
                    f"<small>{METRICS[PANELS[key].metrics[0]].unit}</small>{GRID}</div>" for key in row.panels[:6])
    steps = "" if scene else f'<div class="rl-steps">{"".join(_section(*step) for step in _steps(row, task))}</div>'
    st.html(f'{CSS}{steps}<div class="rl-tiles">{tiles}</div>')
    st.caption(f"Watch: {row.watch}")


def _section(title: str, example: str, words: str) -> str:
    return f'<section><h4>{title}</h4><div class="rl-mono">{example}</div><p>{html.escape(words)}</p></section>'


def _steps(row: Algorithm, task: Task) -> list[tuple[str, str, str]]:
    """(title, example as HTML, words) of what the algorithm's loop does with the task's example."""
    prompt, _, answer = task.example.partition(" → ")
    asked, right = html.escape(prompt), html.escape(answer)
    slip = html.escape(answer[:-2] + answer[:-3:-1]) if answer.isalnum() else "…"
    good, bad = f'{right} <span class="rl-pos">✓</span>', f'{slip} <span class="rl-muted">✗</span>'
    loops = {
        "online": (("1 · It answers", f"{asked}<br>{good}<br>{bad}", "The model writes several answers to each "
                    "prompt."),
                   ("2 · Answers are judged", '<span class="rl-pos">+ above the others</span><br>'
                    '<span class="rl-neg">− below the others</span><br>&nbsp;', "A verifier pays a reward; better than "
                    "expected is an advantage above zero."),
                   ("3 · It learns", f"{good} likelier<br>{bad} rarer<br>&nbsp;", "Log-probabilities move with the "
                    "advantage, and the next batch is sampled.")),
        "preference": (("1 · Pairs are made", f"{asked}<br>{good}<br>{bad}", "Answers of the reference model, or "
                        "your file: one chosen, one rejected."),
                       ("2 · Sides are compared", "log π/π<sub>ref</sub> of each<br>&nbsp;<br>&nbsp;", "How much "
                        "more than the reference does the policy like each side?"),
                       ("3 · It learns", f"{good} raised<br>{bad} lowered<br>&nbsp;", "Only the margin between the "
                        "sides is trained; nothing is sampled.")),
        "sft": (("1 · Examples", f"{asked}<br>{good}<br>&nbsp;", "Prompts with the right answers."),
                ("2 · Next tokens", "−log π(token)<br>&nbsp;<br>&nbsp;", "How surprised is the model by each token?"),
                ("3 · It learns", f"{good} likelier<br>&nbsp;<br>&nbsp;", "Until its sampled answers reach the "
                 "target.")),
    }
    return list(loops[row.loop])
