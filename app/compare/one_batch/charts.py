"""One batch under several algorithms as pictures and tables. Pure: the same result gives the same picture."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app import charts, theme
from app.compare.wording import listed
from app.theme import number
from app.tokens import visible
from labcore.catalog.amounts import percent

# Blue, grey, orange around zero, on either ground.
DIVERGING = {"light": ((0.0, "#E69F00"), (0.5, "#EEF0F2"), (1.0, "#4C9BCB")),
             "dark": ((0.0, "#B87E10"), (0.5, "#2A3037"), (1.0, "#2F7FB5"))}
Z95 = 1.96
NAMED = 3  # pairs of algorithms that a sentence names


def colours_of(found: dict[str, Any], kind: str, hues: Mapping[str, int]) -> list[str]:
    """A colour for each algorithm: the one of its number in `hues`, otherwise a free one.

    >>> colours_of({"algorithms": [{"key": "a"}, {"key": "b"}]}, "light", {"b": 0}) == [*theme.LIGHT[1::-1]]
    True
    """
    keys = [row["key"] for row in found["algorithms"]]
    free = [number for number in range(len(keys) + len(hues)) if number not in hues.values()]
    return [theme.palette(kind)[(hues[key] if key in hues else free.pop(0)) % 6] for key in keys]


def cosine_figure(found: dict[str, Any], kind: str = "light", hues: Mapping[str, int] = MappingProxyType({})
                  ) -> go.Figure:
    """The cosine between each two gradients as a heat map with its numbers, and each gradient's norm beside it."""
    rows = found["algorithms"]
    labels = [row["label"] for row in rows]
    ink = theme.layout(kind)["font"]["color"]
    figure = make_subplots(1, 2, shared_yaxes=True, column_widths=[0.66, 0.34], horizontal_spacing=0.04)
    text = [["–" if value is None else two(value) for value in line] for line in found["cosines"]]
    figure.add_heatmap(z=found["cosines"], x=labels, y=labels, text=text, texttemplate="%{text}", zmin=-1, zmax=1,
                       colorscale=DIVERGING[kind], xgap=2, ygap=2, row=1, col=1, showscale=False,
                       textfont={"size": 14 if len(rows) < 6 else 12, "color": ink},
                       hovertemplate="%{y} and %{x}<br>cosine %{z:.4f}<extra></extra>")
    figure.add_bar(y=labels, x=[row["norm"] for row in rows], orientation="h", row=1, col=2, showlegend=False,
                   text=[number(row["norm"], 3) for row in rows], textposition="auto", width=0.55,
                   marker={"color": colours_of(found, kind, hues)},
                   hovertemplate="%{y}<br>‖∇L‖ %{x:.4f}<extra></extra>")
    charts.finish(figure, kind, 96 + 52 * len(rows))
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(title_text="cosine of two gradients", row=1, col=1)
    figure.update_xaxes(title_text="gradient norm ‖∇L‖", rangemode="tozero", showgrid=True, row=1, col=2)
    return figure


def two(value: float, sign: bool = False) -> str:
    """Two digits after the point.

    >>> two(-0.003), two(0.5, sign=True), two(-1)
    ('0', '+0.50', '−1.00')
    """
    return "0" if abs(value) < 0.005 else f"{value:{'+' if sign else ''}z.2f}".replace("-", "−")


def effect_figure(found: dict[str, Any], kind: str = "light", hues: Mapping[str, int] = MappingProxyType({})
                  ) -> go.Figure:
    """Each algorithm's step in the plane of its KL and its change of the mean reward, with 95 % error bars."""
    figure = make_subplots(1, 2, horizontal_spacing=0.06, shared_yaxes=True,
                           subplot_titles=("steps of one length", "own optimizers"))
    colours = colours_of(found, kind, hues)
    for place, row in enumerate(found["algorithms"]):
        for column, which in ((1, "equal"), (2, "own")):
            effect = found["effects"][row["key"]][which]
            if effect is None:
                continue
            change, kl = effect["resampled"], effect["kl"]
            figure.add_scatter(
                x=[kl["mean"]], y=[change["mean"]], name=row["label"], mode="markers", legendgroup=row["key"],
                showlegend=column == 2 or found["effects"][row["key"]]["own"] is None,
                error_x={"array": [Z95 * kl["se"]], "thickness": 1.2, "width": 3},
                error_y={"array": [Z95 * change["se"]], "thickness": 1.2, "width": 3},
                marker={"size": 11, "color": colours[place],
                        "symbol": ("circle", "square", "diamond", "cross", "triangle-up", "star")[place % 6]},
                hovertemplate=f"{row['label']}<br>KL %{{x:.4f}} nats/token<br>Δ reward %{{y:+.4f}}<extra></extra>",
                row=1, col=column)
    charts.finish(figure, kind, 320)
    figure.update_yaxes(zeroline=True, zerolinewidth=1.5, zerolinecolor=theme.layout(kind)["font"]["color"],
                        tickformat=".3~f")
    figure.update_yaxes(title_text="change of the mean reward", row=1, col=1)
    figure.update_xaxes(title_text="KL(before ‖ after), nats/token", rangemode="tozero", showgrid=True)
    figure.update_layout(legend={"orientation": "h", "y": -0.3, "x": 0})
    return figure


def effect_table(found: dict[str, Any]) -> str:
    """The numbers of all steps, mean ± standard error: HTML."""
    rows = ""
    for row in found["algorithms"]:
        for which, words in (("equal", "same length"), ("own", "own optimizer")):
            effect = found["effects"][row["key"]][which]
            length = found["step_length"] if which == "equal" else effect and effect["length"]
            cells = "".join(f"<td>{estimate(effect[key], sign=key != 'kl')}</td>" for key in (
                "resampled", "weighted", "kl")) if effect else "<td colspan=3>no gradient, so no step</td>"
            rows += (f"<tr><td>{html.escape(row['label'])}</td><td>{words}</td>"
                     f"<td>{number(length, 3) if length else '–'}</td>{cells}</tr>")
    return ('<div class="rl-scroll"><table class="rl-table"><tr><th>algorithm</th><th>step</th><th>length ‖Δθ‖</th>'
            "<th>Δ reward, resampled</th><th>Δ reward, importance-weighted</th><th>KL(before ‖ after), "
            f"nats/token</th></tr>{rows}</table></div>")


def estimate(value: dict[str, float], sign: bool = True) -> str:
    """A mean with its standard error.

    >>> estimate({"mean": 0.0123, "se": 0.004})
    '+0.0123 ± 0.0040'
    """
    return f"{'+' if sign and value['mean'] > 0 else ''}{number(value['mean'], 4)} ± {number(value['se'], 4)}"


def push_table(found: dict[str, Any], place: int) -> str:
    """A table of each algorithm's push on each token of a shown completion, up or down: HTML.

    The unit is the algorithm's own mean |push| on the whole batch, so that rows can be compared.
    """
    completion = found["completions"][place]
    reach = max((abs(value) for row in found["algorithms"] for value in row["push"][place]), default=0.0) or 1.0
    last = len(completion["tokens"]) - 1
    words = ["end" if at == last and not completion["truncated"] else visible(token) or "∅"
             for at, token in enumerate(completion["tokens"])]
    heads = "".join(f"<th>{word}</th>" for word in words)
    ratios = ""
    if found["updates"]:
        ratios = "<tr><td>ratio π/π_old</td>" + "".join(f"<td>{two(value)}</td>"
                                                        for value in completion["ratio"]) + "</tr>"
    rows = "".join(f"<tr><td>{html.escape(row['label'])}</td>{_pushes(row['push'][place], reach)}</tr>"
                   for row in found["algorithms"])
    return f'<div class="rl-scroll"><table class="rl-push"><tr><th></th>{heads}</tr>{ratios}{rows}</table></div>'


def _pushes(values: Sequence[float], reach: float) -> str:
    cells = []
    for value in values:
        hue = "light-dark(#E69F00,#F2B84B)" if value < 0 else "light-dark(#0072B2,#4FA8E0)"
        ground = f"color-mix(in srgb,{hue} {55 * abs(value) / reach:.0f}%,transparent)"
        cells.append(f'<td style="background:{ground}">{two(value, sign=True)}</td>')
    return "".join(cells)


def _directions(pairs: Sequence[tuple[float, str, str]]) -> str:
    """Which gradients agree most and which least. Pairs that show the same figure are named together: the digits that
    would tell them apart are not to be seen.

    >>> _directions([(0.994, "A", "B"), (0.987, "A", "C"), (0.986, "B", "C"), (0.5, "A", "D")])
    'A, B and C point most nearly the same way (cosine 0.99), A and D least (0.50).'
    >>> _directions([(0.994, "A", "B"), (0.987, "C", "D"), (0.5, "A", "D")])
    'A with B and C with D point most nearly the same way (cosine 0.99), A and D least (0.50).'
    >>> _directions([(0.51, "A", "B"), (0.51, "A", "C"), (0.51, "B", "C")])
    'A, B and C agree equally: the cosine between any two is 0.51.'
    """
    near, far = two(max(pairs)[0]), two(min(pairs)[0])
    most, least = (_named([pair[1:] for pair in pairs if two(pair[0]) == figure]) for figure in (near, far))
    if near != far:
        return f"{most} point most nearly the same way (cosine {near}), {least} least ({far})."
    return f"{most} agree equally: the cosine between any two is {near}." if len(pairs) > 1 else \
        f"The cosine between {most} is {near}."


def _named(pairs: Sequence[tuple[str, str]]) -> str:
    """Pairs of algorithms; as one group where they are all the pairs of it."""
    group = list(dict.fromkeys(label for pair in pairs for label in pair))
    if len(pairs) == len(group) * (len(group) - 1) // 2:
        return listed(group)
    named, more = [f"{a} with {b}" for a, b in pairs[:NAMED]], len(pairs) - NAMED
    return listed([*named, f"{more} more pair{'s' if more > 1 else ''}"] if more > 0 else named)


def said(found: dict[str, Any]) -> list[str]:
    """The main observations on the picture, in sentences: HTML."""
    rows, table = found["algorithms"], found["cosines"]
    pairs = [(table[i][j], rows[j]["label"], rows[i]["label"]) for i in range(len(rows)) for j in range(i)
             if table[i][j] is not None]
    sentences = []
    if pairs:
        sentences.append(_directions(pairs))
    else:
        sentences.append("No algorithm has a gradient here, because all completions of a prompt have the same reward.")
    clipped = [row for row in rows if row["unclipped"] is not None]
    if clipped and not found["updates"]:
        names = listed([row["label"] for row in clipped])
        sentences.append(f"All ratios are 1, so the clip of {names} has no effect and the gradients equal the "
                         f"unclipped ones. The algorithms differ here only in the baseline, the token averaging and "
                         f"the KL coefficient. Make an update on the batch first to see the clip act.")
    elif clipped:
        shares = ", ".join(f"{row['label']} {percent(row['clipped_frac'])} (cosine {two(row['unclipped'])} to its "
                           "unclipped gradient)" for row in clipped)
        sentences.append(f"The ratios differ from 1. Clipped tokens: {shares}. An algorithm without a ratio "
                         "treats the batch as on-policy.")
    if critic := found["critic"]:
        explained = critic["explained_variance"]
        fits = "" if explained is None else f" It explains {percent(explained)} of the variance of the returns here."
        sentences.append((f"The critic was fitted to {critic['batches']} other batches of this policy, "
                          f"{critic['passes']} passes each, because the run has no critic." if critic["fitted"] else
                          "The critic is that of the run.") + fits)
    return [html.escape(sentence) for sentence in sentences]
