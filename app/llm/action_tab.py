"""The tab Action space: how few tokens hold most of the probability, for the run's base and for its policy."""

from __future__ import annotations

import streamlit as st

from app import jobs, theme
from app.components.figure_chart import figure_chart
from app.lab import active
from app.llm import action_figures as figures
from app.llm.proxy_tab import nearest
from app.naming import model_title
from app.on_request import requested
from app.status import duration
from app.tokens import literal
from app.training.feed import Feed
from labcore.runs.models import steps
from labcore.runs.spec.model_names import BASE, Model, parse
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

NAME = "Action space"
COUNT, SEED = 128, 0  # prompts
LENGTH, SPEED = "completions/mean_length", "tokens_per_second"  # metrics
MEANS = ("Before each token, the model has a probability for every token of its vocabulary. The chart shows the total "
         "probability of the k likeliest tokens. Near 1 the policy is almost deterministic at that position: its "
         "effective action space is small, and sampled completions differ only where the probability is spread.")


def show(run: RunRow, feed: Feed, step: int) -> None:
    """The mass of the top k tokens by position, for the checkpoint nearest to a step beside the run's base."""
    there = steps(run.id)
    if not there:
        st.caption("This needs a checkpoint. The first one is saved soon.")
        return
    at = nearest(there, step)
    names = [Model(run.id, BASE).name, *([Model(run.id, step=at).name] if at else [])]
    looked = step if step < feed.last_step else None
    st.caption(MEANS)
    spec = requested("action_space", (run.id, looked), {"job": "action_space", "models": names, "count": COUNT,
                                                        "seed": SEED}, cost(run, feed, len(names)))
    if spec is None:
        return
    found, fresh = jobs.result(spec, f"{len(spec['models'])} models answer {COUNT} prompts" if at else
                               f"The base answers {COUNT} prompts", "action_space", (run.id, spec), run.id,
                               polled=active(run))
    if found is None:
        return
    titles = [model_title(column["model"]) for column in found["columns"]]
    st.markdown(literal(figures.words(found, titles)))
    figure_chart(figures.mass_figure(found, titles, theme.ground()), "action_space", title="Effective action space",
                 caption=f"{title_of(run)}, {titles[-1]}", alt="Probability mass of the top k tokens by position. "
                 f"{figures.words(found, titles)}")
    newer = "" if fresh else " Newer samples are being computed."
    shown = parse(found["columns"][-1]["model"]).step or 0
    nearby = _nearest(at, step) if shown == at else ", an earlier checkpoint"
    st.caption(f"{titles[-1]}{nearby}. {figures.about(found)}{newer}")
    with st.expander("Numbers", key="action_space_numbers"):
        st.html(figures.table(found, titles))


def cost(run: RunRow, feed: Feed, models: int) -> str:
    """Estimated time to sample from this many models, by the pace of the run's own steps if they sample."""
    last = feed.steps[-1].metrics if feed.steps else {}
    count, length, speed = models * COUNT, last.get(LENGTH), last.get(SPEED)
    limit = int(run.spec.knobs["max_new_tokens"])
    said = f"{'Two models write' if models > 1 else 'The base writes'} {COUNT} completions{' each' * (models > 1)}"
    if not length or not speed:
        return f"{said}, of up to {limit:,} tokens."
    seconds = duration(count * length / speed)
    return f"{said}, of about {length:,.0f} tokens: about {seconds} at the speed of the run's last step."


def _nearest(at: int, step: int) -> str:
    """Say that the checkpoint is not of the step that the page shows."""
    return "" if at == step else f", the checkpoint nearest to step {step:,}"
