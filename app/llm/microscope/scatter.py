"""Sampler–trainer difference: the log-prob of a token by the sampler, and by the trainer's forward pass. Pure.

Both are of the same parameters. They are different computations, so they differ by rounding, and by more in half
precision or where the two do not hold the same weights. A watched run has both if its trainer sent both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app import charts, theme, tokens
from app.chat_text import in_one_line
from app.training import files
from labcore.analysis.doctor.updates import MISMATCH

MOST = 2000  # tokens that are drawn
PROMPT = 60  # characters of the prompt that are said of a token


@dataclass(frozen=True)
class Dot:
    """A token: log-probs in nats."""

    text: str
    prompt: str
    sampler: float
    gap: float  # trainer less sampler


def dots(samples: Mapping[str, Any]) -> list[Dot]:
    """The tokens of a file that have both; earlier files have none."""
    found = []
    for group in samples.get("groups") or []:
        prompt = in_one_line(group["prompt"], PROMPT)
        for each in group["completions"]:
            sampler = each.get("sampler_logprobs") or each.get("old_logprobs") or []
            found += [Dot(tokens.signs(text), prompt, logprob, gap)
                      for text, logprob, gap in tokens.own(each, [*zip(each.get("tokens") or [], sampler, _gaps(each),
                                                                       strict=False)])
                      if logprob is not None and gap is not None]
    return found


def _gaps(completion: Mapping[str, Any]) -> list[float | None]:
    """The trainer's log-probs less the sampler's, as the first update met them; otherwise from the log-probs that a
    trainer sent of both: those before its update, or of its last pass."""
    if gaps := (completion.get("met") or {}).get("gap"):
        return list(gaps)
    sampler = completion.get("sampler_logprobs")
    trainer = completion.get("old_logprobs") or completion.get("logprobs")
    return [] if not sampler or not trainer else [
        None if a is None or b is None else a - b for a, b in zip(trainer, sampler, strict=False)]


def thinned(found: Sequence[Dot]) -> list[Dot]:
    """At most MOST of the tokens: half of them those with the widest gaps, the others evenly from the rest."""
    if len(found) <= MOST:
        return [*found]
    order = sorted(range(len(found)), key=lambda place: -abs(found[place].gap))
    rest = sorted(order[MOST // 2:])
    return [found[place] for place in (*order[:MOST // 2], *rest[::1 + len(rest) // (MOST // 2)])]


OWN = ("before the step's first update", "Both use the same weights, but the sampler computes token by token with a "
       "cache, and the trainer whole sequences at once.")
SENT = ("for which the trainer sent both log-probs", "Besides rounding, the sampler's weights may be older than the "
        "trainer's.")


def caption(found: Sequence[Dot], samples: Mapping[str, Any], elsewhere: bool = False) -> str:
    """Description of the dots of a file, and of the largest difference; `elsewhere`: a run of another trainer."""
    widest = max(found, key=lambda dot: abs(dot.gap))
    mean = sum(abs(dot.gap) for dot in found) / len(found)
    worst = "" if not widest.gap else (f" The widest gap is at {tokens.literal(repr(widest.text))} after "
                                       f"{tokens.literal(repr(widest.prompt))}, where the sampler's log-prob is "
                                       f"{theme.number(widest.sampler, 4)} nats.")
    part = f" of {groups}" if (groups := files.of_groups(samples)) else ""
    only = f" ({len(thinned(found)):,} drawn)" if len(found) > MOST else ""
    which, why = SENT if elsewhere else OWN
    return (f"{len(found):,} tokens{part}{only} {which}: mean |difference| {short(mean)} nats/token, largest "
            f"{short(abs(widest.gap))}. {why}{worst} Above {MISMATCH:g} nats the ratios are wrong from the start.")


def short(value: float) -> str:
    """A size.

    >>> short(0.0), short(2.34e-07), short(0.01234), short(0.5)
    ('0', '2.3e−7', '0.012', '0.5')
    """
    return f"{value:z.2g}".replace("e-0", "e-").replace("-", "−")


def figure(found: Sequence[Dot], kind: str = "light") -> go.Figure:
    """Left both log-probs with the diagonal, right their difference."""
    found, drawn = thinned(found), make_subplots(1, 2, horizontal_spacing=0.12)
    colour = theme.palette(kind)[0]
    sampler = [dot.sampler for dot in found]
    low = min(sampler)
    about = [f"{dot.text} after {dot.prompt}".replace("<", "&lt;") for dot in found]
    marks = {"mode": "markers", "marker": {"color": colour, "size": 7, "opacity": 0.45}, "text": about}
    drawn.add_scatter(x=[low, 0], y=[low, 0], mode="lines", line={"dash": "dot", "width": 1}, hoverinfo="skip",
                      marker={"color": colour}, row=1, col=1)
    drawn.add_scatter(x=sampler, y=[dot.sampler + dot.gap for dot in found], row=1, col=1, **marks,
                      hovertemplate="%{text}<br>sampler %{x:.4f}<br>trainer %{y:.4f}<extra></extra>")
    drawn.add_scatter(x=sampler, y=[dot.gap for dot in found], row=1, col=2, **marks,
                      hovertemplate="%{text}<br>sampler %{x:.4f}<br>difference %{y:.2e}<extra></extra>")
    charts.finish(drawn, kind, 300)
    drawn.update_layout(showlegend=False)
    drawn.update_xaxes(title_text="sampler's log-prob, nats")
    drawn.update_yaxes(title_text="trainer's log-prob, nats", row=1, col=1)
    drawn.update_yaxes(title_text="trainer − sampler, nats", exponentformat="power", row=1, col=2)
    return drawn
