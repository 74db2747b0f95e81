"""Figures of classic policy-gradient runs: the critic's error, the noise of the gradient, the weights of GAE. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from app import theme
from app.charts import finish
from labcore.catalog.amounts import significant
from labcore.classic.tabular.policy_maths import Steps, gae

# The choices of Ψ_t, by their metric's last part, the one with the most variance first.
PSI = {"total_return": "Ψ<sub>1</sub>: total return", "reward_to_go": "Ψ<sub>2</sub>: reward-to-go",
       "baseline": "Ψ<sub>3</sub>: reward-to-go − V", "advantage": "Ψ<sub>4</sub>: GAE"}
LAMBDA_RETURN = ("The λ-return is not a plain sum of rewards. It is the GAE advantage plus V(s), which bootstraps "
                 "from the critic, so the two agree in part by construction.")
DECAY = 31  # terms of the GAE sum that are drawn


def value_figure(values: Sequence[float], returns: Sequence[float], kind: str = "light") -> go.Figure:
    """The critic's values against the λ-return, one dot per step, and the diagonal where they agree."""
    low, high = min(*values, *returns), max(*values, *returns)
    pad = 0.04 * (high - low or 1.0)
    ends = [low - pad, high + pad]
    figure = go.Figure()
    figure.add_scatter(x=ends, y=ends, mode="lines", hoverinfo="skip", name="a perfect critic",
                       line={"dash": "dot", "width": 1.5, "color": theme.layout(kind)["font"]["color"]}, opacity=0.6)
    figure.add_scatter(x=list(values), y=list(returns), mode="markers", name="steps of the batch",
                       marker={"color": theme.palette(kind)[0], "size": 7, "opacity": 0.4},
                       hovertemplate="value %{x:.2f}<br>λ-return %{y:.2f}<extra></extra>")
    finish(figure, kind, 340)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text="V(s), predicted by the critic, reward", range=ends, showgrid=True)
    figure.update_yaxes(title_text="λ-return A<sub>GAE</sub> + V(s), reward", range=ends)
    return figure


def value_words(share: float | None) -> str:
    """The explained variance in words.

    >>> value_words(0.93)
    'Explained variance 0.93: the critic predicts most of the λ-return.'
    """
    if share is None:
        return "No explained variance was logged at this step, for example because all λ-returns are equal."
    said = ("the critic predicts most of the λ-return" if share > 0.8 else
            "the critic predicts some of the λ-return" if share > 0.2 else
            "the critic is hardly better than a constant" if share > -0.2 else
            "a constant would predict better, because the critic is wrong or the λ-returns hardly vary")
    return f"Explained variance {theme.number(share, 2)}: {said}."


def variance_figure(measured: Mapping[str, float], used: str, kind: str = "light") -> go.Figure:
    """The gradient's variance for each choice of Ψ_t, on a log axis; the one in use is filled."""
    names = [name for name in PSI if measured.get(name, 0) > 0]
    colour = theme.palette(kind)[0]
    figure = go.Figure()
    figure.add_bar(y=[PSI[name] for name in names], x=[measured[name] for name in names], orientation="h",
                   marker={"color": colour, "opacity": [1.0 if name == used else 0.35 for name in names]},
                   text=[significant(measured[name]) for name in names], textposition="outside",
                   cliponaxis=False, hovertemplate="%{y}<br>%{x:.3g} reward²<extra></extra>")
    finish(figure, kind, 260)
    figure.update_layout(showlegend=False, margin={"r": 60}, bargap=0.35)
    figure.update_xaxes(type="log", title_text="variance of an episode's gradient, reward² (log)", dtick=1,
                        exponentformat="power", showgrid=True)
    figure.update_yaxes(autorange="reversed", title_text="weight Ψ of ∇ log π")
    return figure


def variance_words(measured: Mapping[str, float]) -> str:
    """The variance of the best choice beside that of the first one measured, in a sentence.

    >>> variance_words({"total_return": 400.0, "reward_to_go": 100.0, "advantage": 4.0})[:61]
    'Ψ4 (GAE) has 100 times less variance than Ψ1 (total return), '
    """
    names = [name for name in PSI if measured.get(name, 0) > 0]
    if len(names) < 2:
        return ""
    best = min(names, key=measured.__getitem__)
    if best == names[0]:
        return f"On this batch no choice has less variance than {_plain(names[0])}."
    share = significant(measured[names[0]] / measured[best], 2)
    return (f"{_plain(best)} has {share} times less variance than {_plain(names[0])}, which needs {share} times the "
            f"episodes for the same variance.")


def _plain(name: str) -> str:
    """A choice of Ψ in running text.

    >>> _plain("reward_to_go")
    'Ψ2 (reward-to-go)'
    """
    return PSI[name].replace("<sub>", "").replace("</sub>", "").replace(": ", " (", 1) + ")"


def gae_weights(gamma: float, gae_lambda: float) -> list[float]:
    """The weight of the TD error l steps ahead, for l from 0 to DECAY − 1: the advantages of an episode with a single
    reward of 1 at its end, where V is 0."""
    states, ends = np.zeros(DECAY, int), np.arange(DECAY) == DECAY - 1
    episode = Steps(np.arange(DECAY), states, states, ends.astype(float), states, ends, ends)
    return [float(weight) for weight in gae(episode, np.zeros(1), gamma, gae_lambda)[::-1]]


def gae_figure(gamma: float, gae_lambda: float, kind: str = "light") -> go.Figure:
    """The weight (γλ)^l of the TD error l steps ahead in the advantage."""
    figure = go.Figure()
    figure.add_bar(x=list(range(DECAY)), y=gae_weights(gamma, gae_lambda),
                   marker={"color": theme.palette(kind)[0]},
                   hovertemplate="l = %{x}<br>weight %{y:.3f}<extra></extra>")
    finish(figure, kind, 260)
    figure.update_layout(showlegend=False, bargap=0.3)
    figure.update_xaxes(title_text="l, steps ahead")
    figure.update_yaxes(title_text="(γλ)<sup>l</sup>, weight of δ<sub>t+l</sub>", range=[0, 1.02])
    return figure


def gae_words(gamma: float, gae_lambda: float) -> str:
    """The number of steps that the advantage looks ahead, in a sentence.

    >>> gae_words(0.98, 0.8)
    'γλ = 0.784: the advantage looks about 5 steps ahead; beyond that it relies on the critic.'
    """
    product = gamma * gae_lambda
    if product == 0:
        return "γλ = 0: one step, then the critic’s value. Low variance, but the full bias of the critic."
    if product >= 1:
        return "γλ = 1: the whole episode counts. No bias from the critic, but the full variance of the returns."
    ahead = theme.number(1 / (1 - product), 0)
    return (f"γλ = {theme.number(product, 3)}: the advantage looks about {ahead} "
            f"step{'s' if ahead != '1' else ''} ahead; beyond that it relies on the critic.")
