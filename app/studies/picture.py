"""The findings of a study as a table of HTML: each contrast with its interval drawn over the region of the claim. Pure.

The interval of the reader's own runs is blue, the recorded one grey; the region in which the claim says that the
number lies is shaded. Every row has an axis of its own, since units differ; its ends are written below it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from math import isfinite

from labcore.studies.recorded import Recorded
from labcore.studies.result import Result
from labcore.studies.study import Contrast, Study
from labcore.studies.verdict import WORDS, Estimate, Verdict, told

CSS = """<style>
.rl-verdict{font-size:13px;font-weight:600;padding:1px 8px;border-radius:9px;white-space:nowrap;
  border:1px solid color-mix(in srgb,currentColor 45%,transparent)}
.rl-agrees{color:light-dark(#00725A,#3FC79A)}.rl-disagrees{color:light-dark(#A63D00,#FF9B5E)}
.rl-unclear{color:light-dark(#5A636D,#AEB7C0)}
.rl-findings td{padding:7px 14px 7px 0;vertical-align:middle}.rl-findings td:first-child{min-width:13rem}
.rl-findings small{display:block;font-size:13px;opacity:.72}
.rl-findings .rl-shown td:first-child{padding-left:14px}
.rl-findings svg{display:block;overflow:visible;font-size:12px;font-variant-numeric:tabular-nums}
.rl-numbers-cell{white-space:nowrap;font-variant-numeric:tabular-nums}
.rl-here{color:light-dark(#0072B2,#4FA8E0)}.rl-kept{color:light-dark(#69727D,#9AA4AF)}
.rl-claim{font-size:1.05rem;line-height:1.5;max-width:62rem;text-wrap:pretty}
.rl-claim small{font-size:14px;opacity:.75}
</style>"""
WIDTH, HEIGHT, EDGE = 230, 46, 10  # of a drawing, px; and the room beside its axis


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
    what = (f"{title}<small>{html.escape(contrast.measure.words)}; {html.escape(contrast.measure.unit)}. "
            f"Claimed: {contrast.region}{aside}</small>")
    said = "".join(f'<div class="rl-{name} rl-numbers-cell">{told(found, contrast.measure.digits)}</div>'
                   for name, found, _ in there)
    verdicts = "".join(f"<div>{badge(verdict)}</div>" for _, _, verdict in there)
    shown = "" if contrast.decides else ' class="rl-shown"'
    return (f"<tr{shown}><td>{what}</td><td>{drawing(contrast, [(name, found) for name, found, _ in there])}</td>"
            f"<td>{said}</td><td>{verdicts}</td></tr>")


def drawing(contrast: Contrast, there: Sequence[tuple[str, Estimate]]) -> str:
    """Intervals over the region of the claim, as SVG with its meaning as text. `there`: "here" or "kept", estimate."""
    edges = [edge for edge in (contrast.low, contrast.high) if isfinite(edge)]
    values = [value for _, found in there for value in (found.mean, found.low, found.high) if value is not None]
    low, high = min([*edges, *values]), max([*edges, *values])
    span = (high - low) or max(abs(high), 1.0)
    low, high = low - 0.12 * span, high + 0.12 * span

    def x(value: float) -> float:
        return round(EDGE + (min(max(value, low), high) - low) / (high - low) * (WIDTH - 2 * EDGE), 1)

    left, right = x(contrast.low), x(contrast.high)
    parts = [f'<rect x="{left}" y="2" width="{round(right - left, 1)}" height="26" fill="currentColor" opacity=".1"/>']
    parts += [f'<line x1="{x(edge)}" x2="{x(edge)}" y1="2" y2="28" stroke="currentColor" opacity=".45" '
              'stroke-dasharray="3 3"/>' for edge in edges]
    parts += [_bar(name, found, x, 10 + 11 * place if len(there) > 1 else 15)
              for place, (name, found) in enumerate(there)]
    parts += [f'<text x="{x(edge)}" y="42" text-anchor="middle" fill="currentColor" opacity=".72">'
              f'{f"{edge:g}".replace("-", "−")}</text>' for edge in edges]
    words = "; ".join(f"{'here' if name == 'here' else 'recorded'} {told(found, contrast.measure.digits)}"
                      for name, found in there) or "no runs yet"
    return (f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{html.escape(contrast.label)}: '
            f'{html.escape(words)} {html.escape(contrast.measure.unit)}; claimed {contrast.region}">'
            f'{"".join(parts)}</svg>')


def _bar(name: str, found: Estimate, x, y: float) -> str:
    line = ""
    if found.low is not None and found.high is not None:
        line = (f'<line x1="{x(found.low)}" x2="{x(found.high)}" y1="{y}" y2="{y}" stroke="currentColor" '
                'stroke-width="3" stroke-linecap="round" opacity=".55"/>')
    return f'<g class="rl-{name}">{line}<circle cx="{x(found.mean)}" cy="{y}" r="4.5" fill="currentColor"/></g>'
