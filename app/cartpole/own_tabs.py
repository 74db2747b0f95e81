"""The tabs that only CartPole runs have: policy, surrogate, critic, variance of the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app import charts, theme
from app.cartpole import figures, policy_figures
from app.cartpole.picture import film
from app.components.figure_chart import figure_chart
from app.components.world_player import episodes
from app.surrogate import place
from app.training import files
from app.training.feed import Feed
from labcore.catalog.choices import OBJECTIVE
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

CLIPPED = "Where the unclipped surrogate rises and the clipped one bends down, the clip removes the gain."
TRUSTED = "The method maximises the unclipped surrogate within the KL bound; the others are PPO’s, for comparison."
PENALISED = ("The method maximises the unclipped surrogate − β KL; the clipped one is PPO’s other objective, for "
             "comparison.")
BEFORE = ("An earlier version of the lab recorded this step without this figure. Choose a later step or start a "
          "new run.")
NO_PLANE = ("This world observes more than two numbers, and its actions are not continuous, so there is no figure. "
            "The player above shows the policy at play.")
UNCLIPPED = "The KL-penalised objective has no clip. A nat of KL to the old policy costs β at any ratio."


def policy(run: RunRow, feed: Feed, step: int) -> None:
    """The policy's actions and its critic's estimates: over a plane of the observations, and over an episode."""
    samples = _filmed(run, feed, step, "evaluation")
    if samples is None:
        return
    found, shown, kind = samples.get("map"), samples["evaluation"], theme.ground()
    if found:
        left, right = st.columns(2, gap="large")
        with left:
            figure_chart(policy_figures.action_map(found, kind), "action_map", title="Actions of the greedy policy",
                         caption=_of(run, samples["step"]), alt="The likeliest action over a plane of the observations")
        with right:
            figure_chart(policy_figures.value_map(found, kind), "value_map", title="Values",
                         caption=_of(run, samples["step"]), alt="The value over a plane of the observations")
        st.caption(f"Step {samples['step']:,}. The dots are the observations of the first evaluation episode; the "
                   f"circle marks its start. {found['rest']}")
    if shown.get("actions"):
        figure_chart(policy_figures.actions_figure(shown["actions"], shown["stds"], (found or {}).get("bounds"), kind),
                     "actions", title="Actions over the episode", caption=_of(run, samples["step"]),
                     alt="The mean action and its standard deviation at every step of an episode")
        st.caption(policy_figures.spread_words(shown["actions"], shown["stds"]))
    if not found and not shown.get("actions"):
        st.caption(NO_PLANE if "map" in samples else BEFORE)


def surrogate(run: RunRow, feed: Feed, step: int) -> None:
    """L^CLIP with the steps of a batch, where the method clips; the line from θ_old through θ_new."""
    place.link_to(run, step)
    objectives = feed.history.values_of("objective")
    clips = "clip" in objectives
    if objectives and not clips:
        st.caption(UNCLIPPED)
    if clips:
        left, right = st.columns(2, gap="large")
        with left:
            _clip(run, feed, step)
    else:
        right = st.container()
    with right:
        line = files.newest(run.id, "lines", step)
        if line is None:
            st.caption("The line through an update is computed every five steps. The first one is not computed yet.")
            return
        figure_chart(charts.line_figure(line, theme.ground(), "nats"), "line", title="Line through an update",
                     caption=_of(run, line["step"]),
                     alt="Mean KL and the surrogates along the line from the old to the new parameters")
        said = {"clip": CLIPPED, "kl_penalty": PENALISED}.get(str(feed.knobs(line["step"]).get("objective")), TRUSTED)
        st.caption(f"Step {line['step']:,}: α = 0 is the policy before the update, 1 after it, measured on its batch. "
                   + said)


def _clip(run: RunRow, feed: Feed, step: int) -> None:
    samples = _filmed(run, feed, step, "ratios")
    if samples is None:
        return
    knobs, found = feed.knobs(samples["step"]), samples["ratios"]
    if not OBJECTIVE[str(knobs["objective"])].cut:
        st.caption(UNCLIPPED)
        return
    if "surrogate" not in samples:
        st.caption(charts.EARLIER)
        return
    dots = [charts.Dot(*each) for each in zip(found["ratio"], found["advantage"], found["cut"], strict=True)]
    figure_chart(charts.surrogate_figure(dots, samples["surrogate"], theme.ground()), "clip",
                 title="Surrogate against the ratio", caption=_of(run, samples["step"]),
                 alt="The surrogate against the ratio, one dot per step of the batch")
    counts, (low, high) = charts.counts_of(dots), samples["surrogate"]["bounds"]
    st.caption(f"{counts['tokens']:,} steps of the batch after its last update: {counts['cut']:,} clipped "
               "(open circles: zero gradient), the others inside the clip range or on the side where the gradient "
               f"still pulls them back. Clip range: {low:.4g} to {high:.4g}{', annealed' * bool(knobs['anneal'])}.")


def value(run: RunRow, feed: Feed, step: int) -> None:
    """The critic against the λ-return that it learns from, and how far its advantage looks."""
    left, right = st.columns(2, gap="large")
    knobs = feed.knobs(step)
    with left:
        if samples := _filmed(run, feed, step, "scatter"):
            values, returns = samples["scatter"]["values"], samples["scatter"]["returns"]
            figure_chart(figures.value_figure(values, returns, theme.ground()), "value",
                         title="Value against the λ-return", caption=_of(run, samples["step"]),
                         alt="The critic's value against the λ-return, one dot per step of the batch")
            share = feed.value("explained_variance", at=samples["step"])
            st.caption(f"{figures.value_words(share)} Batch of step {samples['step']:,}, before the critic was "
                       f"trained on it; {len(values):,} of its steps are drawn. {figures.LAMBDA_RETURN}")
    with right:
        gamma, gae_lambda = float(knobs["gamma"]), float(knobs["gae_lambda"])
        figure_chart(figures.gae_figure(gamma, gae_lambda, theme.ground()), "gae",
                     title="Weights of the TD errors in GAE", caption=_of(run, step),
                     alt="The weight of each later TD error in the advantage")
        st.caption(figures.gae_words(gamma, gae_lambda))


def variance(run: RunRow, feed: Feed, step: int) -> None:
    """The gradient's variance for each choice of Ψ_t, on one batch."""
    count = int(run.spec.knobs["environments"])
    if count < 2:
        st.caption("The variance needs at least two environments, because with one a step has a single gradient. "
                   "Start a new run with more environments.")
        return
    begin = "gradient_variance/"
    found = next((each for each in reversed(feed.steps)
                  if each.step <= step and any(key.startswith(begin) for key in each.metrics)), None)
    if found is None:
        st.caption("Not measured yet.")
        return
    measured = {key.removeprefix(begin): value for key, value in found.metrics.items() if key.startswith(begin)}
    figure_chart(figures.variance_figure(measured, str(feed.knobs(found.step)["psi"]), theme.ground()), "variance",
                 title="Variance of the gradient", caption=_of(run, found.step),
                 alt="Gradient variance of the four choices of Ψ, on a log axis")
    st.caption(f"{figures.variance_words(measured)} Step {found.step:,}: trace of the covariance of the "
               f"gradients of {count} episodes, the same {count} for each choice, before any normalisation. The filled "
               "bar is the choice in use.")


def _filmed(run: RunRow, feed: Feed, step: int, part: str) -> dict[str, Any] | None:
    """The samples of the greedy evaluation at or before a step, where there are any with `part`."""
    samples = film(run, feed, step, part)
    if samples is None:
        st.caption("This picture appears after the first evaluation.")
    return samples


def _of(run: RunRow, step: int) -> str:
    """The caption of a saved picture."""
    return f"{title(run)}, step {step:,}"


def _has(panel: str) -> Callable[[RunRow], bool]:
    return lambda run: panel in run.spec.row.panels


def _numbers(run: RunRow) -> bool:
    """False for worlds of states: the player shows their whole map."""
    return episodes.world_of(run.spec.task).grid is None


TABS = {"Policy": (policy, _numbers), "Surrogate": (surrogate, _has("surrogate_clip")),
        "Value": (value, _has("explained_variance")),
        "Variance": (variance, _has("gradient_variance"))}
