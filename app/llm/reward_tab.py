"""The tab of a reward model: how well its scores predict the labels, and how they relate to gold."""

from __future__ import annotations

import streamlit as st

from app import theme
from app.components.figure_chart import figure_chart
from app.llm import reward_figures as figures
from app.training import files
from app.training.feed import Feed
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

EARLIER = "An earlier version of the lab wrote this file, without the scores of the held-out pairs. Run it again."


def show(run: RunRow, feed: Feed, step: int) -> None:
    """Accuracy, calibration, scores against gold and margins of the held-out pairs at a step, as four figures."""
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption("The held-out pairs are measured after the first step.")
        return
    if "held_out" not in samples:
        st.caption(EARLIER)
        return
    kind, held_out = theme.ground(), samples["held_out"]
    st.caption(f"{files.of_step(samples['step'], step)}. {figures.words(samples)}")
    at = step if step < feed.last_step else None
    drawn = {
        "Accuracy": (figures.accuracy_figure(feed.steps, at, figures.agreement(held_out.get("gold", [])), kind),
                     "Share of pairs whose chosen side scores higher over the steps, beside chance"),
        "Calibration": (figures.calibration_figure(samples["calibration"], kind),
                        "Predicted probability against the observed share of pairs"),
        "Margins": (figures.margin_figure(held_out["scores"], kind), "How many held-out pairs have which margin")}
    if "gold" in held_out:
        drawn["Predicted reward against gold"] = (
            figures.gold_figure(held_out["scores"], held_out["gold"], kind),
            "Scores of the reward model against the gold score, a point per held-out completion")
    places = [column for _ in range(2) for column in st.columns(2, gap="large")]
    for place, (title, (figure, alt)) in zip(places, drawn.items(), strict=False):
        with place:
            st.markdown(f"**{title}**")
            figure_chart(figure, f"reward_model:{title}", title=title, alt=alt,
                         caption=f"{title_of(run)}, {files.of_step(samples['step'], step).lower()}")


def fits(run: RunRow) -> bool:
    """True if a run trains a reward model."""
    return "reward_model" in run.spec.row.models
