"""The findings of a study as a table of HTML: each contrast with its interval drawn over the region of the claim. Pure.

The interval of the reader's own runs is blue, the recorded one grey; the region in which the claim says that the
number lies is shaded. Every row has an axis of its own, since units differ; its ends are written below it.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from math import isfinite

from labcore.analysis.estimate import Estimate
from labcore.analysis.studies.recorded import Recorded
from labcore.analysis.studies.result import Result
from labcore.analysis.studies.study import Contrast, Measure, Study
from labcore.analysis.studies.verdict import WORDS, Verdict, interval_text

CSS = """<style>
.rl-verdict{font-size:13px;font-weight:600;padding:1px 8px;border-radius:9px;white-space:nowrap;
  border:1px solid color-mix(in srgb,currentColor 45%,transparent)}
.rl-agrees{color:light-dark(#00725A,#3FC79A)}.rl-disagrees{color:light-dark(#A63D00,#FF9B5E)}
.rl-unclear{color:light-dark(#5A636D,#AEB7C0)}
.rl-findings td{padding:7px 14px 7px 0;vertical-align:middle}.rl-findings td:first-child{min-width:13rem}
.rl-findings small{display:block;font-size:13px;opacity:.72}
.rl-findings .rl-shown td:first-child{padding-left:14px}
.rl-interval{position:relative;height:44px;width:230px;font-size:12px;font-variant-numeric:tabular-nums}
.rl-interval u{position:absolute;top:0;height:28px;background:color-mix(in srgb,currentColor 11%,transparent)}
.rl-interval em{position:absolute;top:0;height:28px;border-left:1px dashed currentColor;opacity:.6}
.rl-interval span{position:absolute;top:28px;transform:translateX(-50%);opacity:.75}
.rl-interval i{position:absolute;height:3px;border-radius:2px;background:currentColor;opacity:.6}
.rl-interval b{position:absolute;width:9px;height:9px;margin-left:-4.5px;border-radius:50%;background:currentColor}
.rl-numbers-cell{white-space:nowrap;font-variant-numeric:tabular-nums}
.rl-here{color:light-dark(#0072B2,#4FA8E0)}.rl-kept{color:light-dark(#69727D,#9AA4AF)}
.rl-claim{font-size:1.05rem;line-height:1.5;max-width:62rem;text-wrap:pretty}
.rl-claim small{font-size:14px;opacity:.75}
@media (max-width:640px){.rl-findings thead{display:none}.rl-findings tr{display:block;padding:8px 0;
  border-bottom:1px solid color-mix(in srgb,currentColor 14%,transparent)}
  .rl-table.rl-findings td{display:block;border:0;padding:3px 0}.rl-interval{width:min(300px,92%);margin-left:8px}
  .rl-findings td:last-child,.rl-findings td:nth-child(3){display:inline-block;vertical-align:top;margin-right:12px}}
</style>"""


def badge(verdict: Verdict) -> str:
    """A verdict in words: colour is not all that tells them apart."""
    return f'<span class="rl-verdict rl-{verdict}">{WORDS[verdict]}</span>'


def findings(study: Study, own: Result | None, kept: Recorded | None) -> str:
    """The whole table."""
    mine = {each.contrast.label: (each.estimate, each.verdict) for each in own.findings} if own else {}
    rows = "".join(_row(contrast, mine.get(contrast.label), kept.findings.get(contrast.label) if kept else None)
                   for contrast in sorted(study.contrasts, key=lambda each: not each.decides))
    heads = ("Contrast", "Interval, and where the claim says it lies (shaded)", "Numbers", "Verdict")
    return (f'{CSS}<div class="rl-scroll"><table class="rl-table rl-findings"><thead><tr>'
            f'{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead><tbody>{rows}</tbody></table></div>')


def _row(contrast: Contrast, own: tuple[Estimate, Verdict] | None, kept: tuple[Estimate, Verdict] | None) -> str:
    there = [(name, *found) for name, found in (("here", own), ("kept", kept)) if found]
    title = html.escape(contrast.label)
    aside = "" if contrast.decides else " · shown, does not decide"
    measured, unit = contrast.measure.words, contrast.measure.unit
    said = measured if unit.lower() in measured.lower() else f"{measured}, in {unit}"
    what = (f"{title}<small>{html.escape(said)}. "
            f"Claimed: {contrast.region}{aside}</small>")
    cells = "".join(f'<div class="rl-{name} rl-numbers-cell">{interval_text(found, contrast.measure.digits)}</div>'
                    for name, found, _ in there)
    verdicts = "".join(f"<div>{badge(verdict)}</div>" for _, _, verdict in there)
    shown = "" if contrast.decides else ' class="rl-shown"'
    return (f"<tr{shown}><td>{what}</td><td>{drawing(contrast, [(name, found) for name, found, _ in there])}</td>"
            f"<td>{cells}</td><td>{verdicts}</td></tr>")


def drawing(contrast: Contrast, there: Sequence[tuple[str, Estimate]]) -> str:
    """Intervals over the region of the claim, as HTML with its meaning as text. `there`: "here" or "kept", estimate.

    Streamlit takes SVG out of HTML, so all of it are boxes, placed in percent of the width.
    """
    edges = [edge for edge in (contrast.low, contrast.high) if isfinite(edge)]
    values = [value for _, found in there for value in (found.mean, found.low, found.high) if value is not None]
    low, high = min([*edges, *values]), max([*edges, *values])
    span = (high - low) or max(abs(high), 1.0)
    low, high = low - 0.14 * span, high + 0.14 * span

    def x(value: float) -> float:
        return round(100 * (min(max(value, low), high) - low) / (high - low), 1)

    left, right = x(contrast.low), x(contrast.high)
    parts = [f'<u style="left:{left}%;width:{round(right - left, 1)}%"></u>']
    parts += [f'<em style="left:{x(edge)}%"></em><span style="left:{x(edge)}%">{_edge(edge)}</span>' for edge in edges]
    parts += [_bar(name, found, x, 5 + 12 * place if len(there) > 1 else 11)
              for place, (name, found) in enumerate(there)]
    words = "; ".join(f"{'here' if name == 'here' else 'recorded'} {interval_text(found, contrast.measure.digits)}"
                      for name, found in there) or "no runs yet"
    return (f'<div class="rl-interval" role="img" aria-label="{html.escape(contrast.label)}: {html.escape(words)} '
            f'{html.escape(contrast.measure.unit)}; claimed {contrast.region}">{"".join(parts)}</div>')


def _edge(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _bar(name: str, found: Estimate, x: Callable[[float], float], top: int) -> str:
    line = ""
    if found.low is not None and found.high is not None:
        line = f'<i style="left:{x(found.low)}%;width:{round(x(found.high) - x(found.low), 1)}%;top:{top + 3}px"></i>'
    return f'<div class="rl-{name}">{line}<b style="left:{x(found.mean)}%;top:{top}px"></b></div>'


def settings(own: Result) -> str:
    """The mean of each setting with its seeds' numbers, as a table of HTML, by what is measured."""
    rows = "".join(
        f"<tr><td>{html.escape(measure.words)}</td><td>{html.escape(label)}</td>"
        f"<td>{_number(sum(values) / len(values), measure)}</td>"
        f"<td>{', '.join(_number(value, measure) for value in values)}</td><td>{html.escape(measure.unit)}</td></tr>"
        for (measure, label), values in own.values.items())
    heads = "".join(f"<th>{head}</th>" for head in ("Measured", "Setting", "Mean", "Each seed", "Unit"))
    return (f'<div class="rl-scroll"><table class="rl-table"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
            "</table></div>")


def _number(value: float, measure: Measure) -> str:
    return f"{value:.{measure.digits}f}".replace("-", "−")
