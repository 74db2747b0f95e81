"""The picture of an exact run: for each prompt the policy's probabilities beside those of π_ref and π*."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app import charts, theme
from app.components.figure_chart import figure_chart
from app.theme import number
from app.training import files
from app.training.feed import Feed
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

MOST = 8  # completions
ROW, AROUND = 25, 50  # pixels: of a completion, and of the axis with the line of all others
LEFT = 104
END = "|"  # the sign of the end token
EMPTY = "ends at once"
# Also for plotly, which draws a few tags.
NAMES = {"policy": "π, the policy", "reference": "π<sub>ref</sub>, the reference", "optimum": "π*, the optimum"}
SHORT = {"policy": "π", "reference": "π<sub>ref</sub>", "optimum": "π*"}
SIGNS = {"policy": "■", "reference": "┃", "optimum": "◇"}
GREY = {"light": "#6B7280", "dark": "#9AA4B2"}
NO_OPTIMUM = ("At β = 0, where the KL is only measured, or without a reference, the best policy writes only the best "
              "completions, so there is no π* ∝ π_ref e^(R/β) to draw and no distance to it.")


def show(run: RunRow, feed: Feed, step: int) -> None:
    """A figure for each prompt at the shown step, with a caption on its exact values."""
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption("The policies are drawn after the first step.")
        return
    if "exact" not in samples:
        st.caption(charts.EARLIER)
        return
    exact, kind = samples["exact"], theme.ground()
    keys = [key for key in NAMES if key in exact["prompts"][0]["rest"]]
    st.html('<div style="font-size:14px">Probability of a completion under ' + " &nbsp; ".join(
        f'<span style="color:{colour(key, kind)};font-weight:700" aria-hidden="true">{SIGNS[key]}</span> '
        f"{NAMES[key]}" for key in keys) + "</div>")
    prompts = exact["prompts"]
    across = 2 if len(prompts) == 4 else len(prompts)
    for start in range(0, len(prompts), across):
        for column, prompt in zip(st.columns(across, gap="medium"), prompts[start:start + across], strict=False):
            with column:
                figure_chart(figure(prompt, kind), f"exact:{prompt['prompt']}", alt=words(prompt),
                             title=f"Policy, reference and optimum after the prompt {prompt['prompt']}",
                             caption=f"{title_of(run)}, step {samples['step']:,}")
    at = next((row.metrics for row in reversed(feed.steps) if row.step == samples["step"]), {})
    distance = f" KL(π‖π*) = {number(at['exact/distance'])} nats/completion." if "exact/distance" in at else ""
    optimum = f" β = {exact['beta']:g}." if "optimum" in keys else f" {NO_OPTIMUM}"
    st.caption(f"{files.of_step(samples['step'], step)}, before its updates. All {exact['completions']:,} completions "
               f"of each prompt are enumerated, so these numbers are exact.{distance}{optimum} {END} is the end token.")


def figure(prompt: Mapping[str, Any], kind: str) -> go.Figure:
    """A row for each completion that matters, with what it earns: a bar of π, a stroke for π_ref, a diamond for π*.

    All others together are a line of numbers below the axis, since a bar of their sum would be no completion's and
    often the longest.
    """
    rows, rest = shown(prompt)
    labels = [f"{label(row)} {place}" for place, row in enumerate(rows)]  # two may look the same
    drawn = go.Figure()
    for key in (each for each in NAMES if each in rest):
        values = [row[key] for row in rows]
        said = f"%{{text}}<br>{NAMES[key]}: %{{x:.4f}}<extra></extra>"
        common = {"y": labels, "x": values, "text": [label(row) for row in rows], "hovertemplate": said}
        if key == "policy":
            drawn.add_bar(**common, orientation="h", textposition="none",
                          marker={"color": colour(key, kind), "opacity": 0.85})
        else:
            drawn.add_scatter(**common, mode="markers", marker=mark(key, kind), cliponaxis=False)
    charts.finish(drawn, kind, AROUND + 30 + ROW * len(rows))
    best = max(row["reward"] for row in rows)
    ticks = [f"{'<b>' * (row['reward'] == best)}{html.escape(label(row))} · {number(row['reward'], 2)}"
             f"{'</b>' * (row['reward'] == best)}" for row in rows]
    drawn.update_layout(showlegend=False, margin={"l": LEFT, "r": 12, "t": 30, "b": AROUND}, bargap=0.3, annotations=[
        _words(f"After <b>{html.escape(prompt['prompt'])}</b>: completion · reward", y=1, yshift=24),
        _words(others(rest), y=0, yshift=-28)])
    drawn.update_yaxes(tickvals=labels, ticktext=ticks, type="category", autorange="reversed", showgrid=False,
                       automargin=False, ticklabelstandoff=6)
    return drawn.update_xaxes(showgrid=True, zeroline=True, rangemode="tozero", nticks=5)


def _words(text: str, **place: float) -> dict[str, Any]:
    """A text that begins at the left edge of the figure."""
    return {"text": text, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0, "xshift": -LEFT,
            "xanchor": "left", "yanchor": "top", "align": "left", **place}


def others(rest: Mapping[str, Any]) -> str:
    """Return the sums over all completions that are not drawn."""
    if not rest["count"]:
        return "These are all completions."
    return f"The other {rest['count']:,} together: " + ", ".join(
        f"{SHORT[key]} {rest[key]:.2f}" for key in SHORT if key in rest)


def shown(prompt: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows that are drawn, in the order of π* (or of π where there is none), and all others together.

    They are the likeliest under any of the three.
    """
    keys = [key for key in NAMES if key in prompt["rest"]]
    kept, left = prompt["rows"][:MOST], prompt["rows"][MOST:]
    rest = {"count": prompt["rest"]["count"] + len(left),
            **{key: prompt["rest"][key] + sum(row[key] for row in left) for key in keys}}
    return sorted(kept, key=lambda row: -row[keys[-1] if "optimum" in keys else "policy"]), rest


def label(row: Mapping[str, Any]) -> str:
    """A completion as text, with a sign where it ended by itself."""
    return f"{row['text']}{END if row['ended'] else ''}" if row["text"] else EMPTY


def colour(key: str, kind: str) -> str:
    """π is blue, π* orange, π_ref grey."""
    return {"policy": theme.POSITIVE, "optimum": theme.NEGATIVE, "reference": GREY}[key][kind]


def mark(key: str, kind: str) -> dict[str, Any]:
    """Return the marker of π_ref or π*: they differ by form as well as by colour."""
    ink = colour(key, kind)
    if key == "reference":
        return {"symbol": "line-ns", "size": 14, "line": {"width": 3, "color": ink}, "color": ink}
    return {"symbol": "diamond-open", "size": 10, "line": {"width": 2.5, "color": ink}, "color": ink}


def words(prompt: Mapping[str, Any]) -> str:
    """The figure as a sentence, for those who do not see it."""
    rows, rest = shown(prompt)
    first = max(rows, key=lambda row: row["policy"])
    said = (f"After the prompt {prompt['prompt']} the policy's likeliest completion is {label(first)}, with "
            f"probability {first['policy']:.2f}")
    said += f"; under π* it has {first['optimum']:.2f}. " if "optimum" in first else ". "
    return said + others(rest).replace("<sub>", " ").replace("</sub>", "")
