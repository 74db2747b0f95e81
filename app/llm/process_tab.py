"""The tab of a process reward model: held-out answers step by step, and how well the scores tell right steps from
wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app import theme, tokens
from app.components.figure_chart import figure_chart
from app.llm.reward_figures import CHANCE, finished, level, mark, name_ends
from app.training import files
from app.training.feed import Feed
from labcore.catalog.amounts import percent
from labcore.runs.store.rows import RunRow, Step
from labcore.runs.titles import title as title_of

BINS = 20  # of the scores
NAME = 0.08  # height of a curve's name on an axis of shares
CURVES = (("eval_step_auc", "AUC"), ("eval_step_accuracy", "steps"), ("eval_first_error", "first errors"))
KEY = ("Colour: the score of a step, blue above ½ and orange below. Underlined: the label says that the step is wrong. "
       "⏎ is the end of the answer.")


def show(run: RunRow, feed: Feed, step: int) -> None:
    """Held-out answers with the score of each step, the scores by label, and the measures over the steps."""
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption("Held-out answers appear after the first step.")
        return
    kind, steps = theme.ground(), samples["steps"]
    st.caption(f"{files.of_step(samples['step'], step)}. {words(steps)}")
    at = step if step < feed.last_step else None
    drawn = {
        "Measures on held-out steps": (measures_figure(feed.steps, at, kind),
                                       "AUC, accuracy of the steps and share of first errors found over the steps"),
        "Scores by label": (scores_figure(steps, kind), "Histogram of the scores of right and wrong held-out steps")}
    for column, (title, (figure, alt)) in zip(st.columns(2, gap="large"), drawn.items(), strict=True):
        with column:
            figure_chart(figure, f"process:{title}", title=title, caption=f"{title_of(run)}, step {samples['step']:,}",
                         alt=alt)
    st.html(answers_table(samples["answers"]))
    st.caption(KEY)


def fits(run: RunRow) -> bool:
    """True if the run trains a process reward model."""
    return "process_reward_model" in run.spec.row.models


def words(steps: Mapping[str, Sequence[float]]) -> str:
    """The numbers of held-out steps in a sentence."""
    right = [score > CHANCE for score, label in zip(steps["scores"], steps["labels"], strict=True)
             if (score > CHANCE) == (label > CHANCE)]
    good = sum(label > CHANCE for label in steps["labels"]) / max(1, len(steps["labels"]))
    return (f"Of {len(steps['labels']):,} held-out steps {percent(good)} are labelled right; the model agrees with "
            f"{percent(len(right) / max(1, len(steps['labels'])))} of the labels.")


def measures_figure(steps: Sequence[Step], at: int | None, kind: str) -> go.Figure:
    """The measures of held-out steps over the steps of the run, beside chance. `at` is the earlier step that the page
    shows."""
    figure, colours, last = go.Figure(), theme.palette(kind), steps[-1].step if steps else 1
    ends: list[tuple[float, str, str]] = []
    for place, (key, name) in enumerate(CURVES):
        points = [(each.step, each.metrics[key]) for each in steps if key in each.metrics]
        if points:
            x, y = zip(*points, strict=True)
            figure.add_scatter(x=x, y=y, mode="lines", name=name, line={"color": colours[place], "width": 2.5},
                               hovertemplate=f"step %{{x}}<br>{name} %{{y:.3f}}<extra></extra>")
            ends.append((y[-1], name, colours[place]))
    name_ends(figure, last, ends, NAME)
    level(figure, CHANCE, "chance", kind, above=False)
    mark(figure, at, kind)
    return finished(figure, kind, "step", "share", {"range": [0, last]}, {"range": [0, 1.02]}, right=78)


def scores_figure(steps: Mapping[str, Sequence[float]], kind: str) -> go.Figure:
    """Histogram of the scores of held-out steps: of right ones upwards, of wrong ones downwards."""
    figure = go.Figure()
    for good, name, colour in ((True, "right", theme.POSITIVE[kind]), (False, "wrong", theme.NEGATIVE[kind])):
        scores = [score for score, label in zip(steps["scores"], steps["labels"], strict=True)
                  if (label > CHANCE) == good]
        places = [min(int(score * BINS), BINS - 1) for score in scores]
        counts = [places.count(place) for place in range(BINS)]
        figure.add_bar(x=[(place + 0.5) / BINS for place in range(BINS)], width=0.92 / BINS,
                       y=[count if good else -count for count in counts], customdata=counts,
                       marker={"color": colour, "line": {"width": 0}},
                       hovertemplate=f"score %{{x:.2f}}<br>%{{customdata}} {name} steps<extra></extra>")
        figure.add_annotation(x=0.02 if good else 0.98, y=1 if good else 0, xref="paper", yref="paper",
                              xanchor="left" if good else "right", yanchor="top" if good else "bottom",
                              text=f"labelled {name} {len(scores):,}",
                              showarrow=False, font={"color": colour, "size": 13})
    figure.update_layout(barmode="relative")
    return finished(figure, kind, "score of the step", "steps", {"range": [0, 1]}, {"showticklabels": False})


def answers_table(answers: Sequence[Mapping[str, Any]]) -> str:
    """Answers as safe HTML: each step in the colour of its score, with the score below it."""
    rows = "".join(f"<tr><td><code>{tokens.readable(str(each['prompt']))}</code></td><td>{_steps(each)}</td></tr>"
                   for each in answers)
    return f'<div class="rl-scroll"><table class="rl-table"><tr><th>prompt</th><th>answer</th></tr>{rows}</table></div>'


def _steps(answer: Mapping[str, Any]) -> str:
    parts = zip(answer["steps"], answer["scores"], answer["labels"], strict=True)
    return "".join(step_card(text, float(score), float(label)) for text, score, label in parts)


def step_card(text: str, score: float, label: float | None, by: str = "labelled") -> str:
    """A step in the colour of its score, with the score below it: safe HTML. `label` is the verdict of `by` on the
    step; None without a verdict."""
    colour = "light-dark(#0072B2,#4FA8E0)" if score >= CHANCE else "light-dark(#B85C00,#F2B84B)"
    share = round(120 * abs(score - CHANCE))
    wrong = "" if label is None or label > CHANCE else ";text-decoration:underline wavy light-dark(#B85C00,#F2B84B)"
    said = f"score {score:.2f}" + ("" if label is None else f", {by} {'right' if label > CHANCE else 'wrong'}")
    return (f"<span title='{said}' style='display:inline-block;margin:1px;padding:0 4px;border-radius:3px;"
            f"text-align:center;background:color-mix(in srgb,{colour} {share}%,transparent)'>"
            f"<code style='background:none;padding:0{wrong}'>{tokens.visible(text) if text else '⏎'}</code><br>"
            f"<small class='rl-muted'>{score:.2f}</small></span>")
