"""The findings of a study as HTML: each contrast with its interval over the region of the claim. Pure.

Intervals of one kind, such as all differences of reward, share one scale, so that the eye can compare them; its
ticks are written once, below them. The interval of the reader's own runs is blue, the recorded one grey, the claimed
region shaded. Streamlit takes SVG out of HTML, so all of it are boxes, placed in percent of the width.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from app.scale import Scale, around
from labcore.analysis.estimate import Estimate
from labcore.analysis.studies.recorded import Recorded
from labcore.analysis.studies.result import Result
from labcore.analysis.studies.study import Contrast, Measure, Study
from labcore.analysis.studies.verdict import WORDS, Verdict, interval_text

Found = tuple[Estimate, Verdict]

CSS = """<style>
.rl-verdict{font-size:13px;font-weight:600;padding:1px 9px;border-radius:10px;white-space:nowrap;display:inline-block;
  border:1px solid color-mix(in srgb,currentColor 45%,transparent);
  background:color-mix(in srgb,currentColor 8%,transparent)}
.rl-agrees{color:light-dark(#00725A,#3FC79A)}.rl-disagrees{color:light-dark(#A63D00,#FF9B5E)}
.rl-unclear{color:light-dark(#5A636D,#AEB7C0)}
.rl-here{color:light-dark(#0072B2,#4FA8E0)}.rl-kept{color:light-dark(#69727D,#9AA4AF)}
.rl-claim{font-size:1.2rem;line-height:1.45;max-width:56rem;text-wrap:pretty}
.rl-claim small{display:block;font-size:14px;opacity:.75;margin-top:4px}
.rl-told{display:flex;flex-wrap:wrap;align-items:center;gap:4px 18px;font-size:14px;margin-top:6px}
.rl-title{margin-right:6px}.rl-told b{margin-right:4px}
.rl-forest{font-size:14px;line-height:1.4;font-variant-numeric:tabular-nums;margin-bottom:14px}
.rl-forest h4{font-size:13px;font-weight:600;opacity:.72;margin:6px 0 2px;padding:0}
.rl-row{display:grid;grid-template-columns:minmax(11rem,1.15fr) minmax(10rem,1.5fr) 12.5rem 7rem;column-gap:18px;
  align-items:center}
.rl-row>div:first-child{padding:7px 0}
.rl-row+.rl-row{border-top:1px solid color-mix(in srgb,currentColor 9%,transparent)}
.rl-row small{display:block;font-size:13px;opacity:.72}
.rl-row.rl-aside>:first-child{opacity:.85}.rl-forest .rl-beside{font-weight:400;margin-top:8px}
.rl-row.rl-axis{border-top:1px solid color-mix(in srgb,currentColor 35%,transparent)!important;height:20px}
.rl-interval{position:relative;align-self:stretch;min-height:34px;font-size:12px}
.rl-axis .rl-interval{min-height:20px}
.rl-interval u{position:absolute;top:0;bottom:0;background:light-dark(rgb(0 158 115/13%),rgb(63 199 154/17%))}
.rl-interval em{position:absolute;top:0;bottom:0;border-left:1px solid;
  border-color:color-mix(in srgb,currentColor 13%,transparent)}
.rl-interval em.rl-edge{border-left:1.5px dashed light-dark(#00725A,#3FC79A)}
.rl-interval span{position:absolute;top:2px;transform:translateX(-50%);opacity:.75}
.rl-interval i{position:absolute;height:3px;margin-top:-1.5px;border-radius:2px;background:currentColor;opacity:.65}
.rl-interval b{position:absolute;width:9px;height:9px;margin:-4.5px;border-radius:50%;background:currentColor}
.rl-key{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;opacity:.85;margin-bottom:2px}
.rl-key i{display:inline-block;width:22px;height:10px;margin-right:6px;vertical-align:-1px;
  background:light-dark(rgb(0 158 115/22%),rgb(63 199 154/26%))}
.rl-need{font-size:15px;line-height:1.45;max-width:52rem;text-wrap:pretty}
.rl-study{display:grid;grid-template-columns:minmax(16rem,1fr) minmax(8rem,15rem);gap:22px;align-items:center}
.rl-glance .rl-interval{min-height:0;height:15px;margin:2px 0}.rl-glance .rl-ticks{height:15px;margin:0}
.rl-glance .rl-ticks span{top:-1px}
.rl-glance small{display:block;font-size:12px;line-height:15px;text-align:center;opacity:.72;margin-bottom:5px}
@media (max-width:760px){.rl-study{grid-template-columns:1fr;gap:6px}
  .rl-row{grid-template-columns:auto 1fr;row-gap:2px;padding:6px 0}
  .rl-row>div:first-child,.rl-row>.rl-interval{grid-column:1/-1;padding:2px 0 0}.rl-row.rl-axis{padding:0}
  .rl-row.rl-axis>:not(.rl-interval){display:none}}
</style>"""


def scales(contrasts: Iterable[Contrast], found: Sequence[Mapping[str, Found]]) -> dict[str, Scale]:
    """The scale of each kind of number among the contrasts: all edges and intervals fit."""
    values: dict[str, list[float]] = {}
    for contrast in contrasts:
        there = [each[contrast.label][0] for each in found if contrast.label in each]
        values.setdefault(contrast.measure.kind, []).extend(
            [value for each in there for value in (each.mean, each.low, each.high) if value is not None]
            + [edge for edge in (contrast.low, contrast.high) if isfinite(edge)])
    return {kind: around(min(each), max(each)) for kind, each in values.items()}


def _x(scale: Scale, value: float) -> float:
    """The position of a number, in percent of the width."""
    return round(100 * scale.share(value), 1)


def badge(verdict: Verdict, short: bool = False) -> str:
    """A verdict in words: colour is not all that tells them apart."""
    words = WORDS[verdict].removesuffix(" at this scale") if short else WORDS[verdict]
    return f'<span class="rl-verdict rl-{verdict}">{words}</span>'


def findings(study: Study, own: Result | None, kept: Recorded | None) -> str:
    """All contrasts of a study by kind, on one scale each; those that decide come first."""
    found = {name: each for name, each in (("here", own and own.by_label), ("kept", kept and kept.findings)) if each}
    scale_of = scales(study.contrasts, [*found.values()])
    parts = []
    for kind, scale in scale_of.items():
        same = [each for each in study.contrasts if each.measure.kind == kind]
        measures = {each.measure.words for each in same}
        head = measures.pop() if len(measures) == 1 else kind
        rows = [_row(each, scale, found, bool(measures)) for each in same if each.decides]
        beside = [_row(each, scale, found, bool(measures)) for each in same if not each.decides]
        aside = ['<h4 class="rl-beside">Shown, but not part of the verdict</h4>', *beside] if beside else []
        parts.append(f'<div class="rl-forest"><h4>{html.escape(head)}</h4>{"".join([*rows, *aside])}{_axis(scale)}'
                     "</div>")
    return f'{CSS}{_key([*found])}{"".join(parts)}'


def _key(names: Sequence[str]) -> str:
    words = {"here": '<span class="rl-here">●</span> your runs', "kept": '<span class="rl-kept">●</span> recorded'}
    dots = "".join(f"<span>{words[name]}, with the interval</span>" for name in names)
    return f'<div class="rl-key"><span><i></i>region of the claim</span>{dots}</div>'


def _row(contrast: Contrast, scale: Scale, found: Mapping[str, Mapping[str, Found]], measured: bool) -> str:
    """A contrast; `measured`: with the name of its measure, if that is not in the heading."""
    there = {name: each[contrast.label] for name, each in found.items() if contrast.label in each}
    what = f"{html.escape(contrast.measure.words)}. " if measured else ""
    title = f"<div>{html.escape(contrast.label)}<small>{what}Claimed: {contrast.region}</small></div>"
    unit = html.escape(contrast.measure.unit)
    numbers = "".join(f'<div class="rl-{name}">{interval_text(each, contrast.measure.digits)} {unit}</div>'
                      for name, (each, _) in there.items())
    verdicts = "".join(f"<div>{badge(verdict, short=True)}</div>" for _, verdict in there.values())
    drawn = drawing(contrast, {name: each for name, (each, _) in there.items()}, scale)
    return (f'<div class="rl-row{"" if contrast.decides else " rl-aside"}">{title}{drawn}<div>{numbers}</div>'
            f"<div>{verdicts}</div></div>")


def glance(study: Study, kept: Recorded, scale_of: Mapping[str, Scale]) -> str:
    """The recorded intervals that decide, small, on the scales of all studies."""
    parts = []
    for kind in dict.fromkeys(each.measure.kind for each in study.deciding):
        drawn = [drawing(each, {"kept": kept.findings[each.label][0]}, scale_of[kind]) for each in study.deciding
                 if each.measure.kind == kind]
        parts += [*drawn, f'<div class="rl-interval rl-ticks">{_ticks(scale_of[kind])}</div>',
                  f"<small>{html.escape(kind)}</small>"]
    return "".join(parts)


def _axis(scale: Scale) -> str:
    return (f'<div class="rl-row rl-axis"><div></div><div class="rl-interval">{_ticks(scale)}</div><div></div>'
            "<div></div></div>")


def _ticks(scale: Scale) -> str:
    return "".join(f'<span style="left:{_x(scale, tick)}%">{_edge(tick)}</span>' for tick in scale.ticks)


def drawing(contrast: Contrast, there: Mapping[str, Estimate], scale: Scale) -> str:
    """Intervals over the region of the claim, as HTML with its meaning as text. `there`: "here" or "kept", estimate."""
    left, right = _x(scale, contrast.low), _x(scale, contrast.high)
    parts = [f'<u style="left:{left}%;width:{round(right - left, 1)}%"></u>',
             *(f'<em style="left:{_x(scale, tick)}%"></em>' for tick in scale.ticks),
             *(f'<em class="rl-edge" style="left:{_x(scale, edge)}%"></em>' for edge in (contrast.low, contrast.high)
               if isfinite(edge)),
             *(_bar(name, each, scale, 100 * (place + 1) / (len(there) + 1))
               for place, (name, each) in enumerate(there.items()))]
    words = "; ".join(f"{'here' if name == 'here' else 'recorded'} {interval_text(each, contrast.measure.digits)}"
                      for name, each in there.items()) or "no runs yet"
    return (f'<div class="rl-interval" role="img" aria-label="{html.escape(contrast.label)}: {html.escape(words)} '
            f'{html.escape(contrast.measure.unit)}; claimed {contrast.region}">{"".join(parts)}</div>')


def _edge(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _bar(name: str, found: Estimate, scale: Scale, top: float) -> str:
    line = ""
    if found.low is not None and found.high is not None:
        left, right = _x(scale, found.low), _x(scale, found.high)
        line = f'<i style="left:{left}%;width:{round(right - left, 1)}%;top:{top:.0f}%"></i>'
    return f'<div class="rl-{name}">{line}<b style="left:{_x(scale, found.mean)}%;top:{top:.0f}%"></b></div>'


def settings(own: Result) -> str:
    """A table of each setting's mean with the numbers of its seeds, for each measure: HTML."""
    rows = "".join(
        f"<tr><td>{html.escape(measure.words)}</td><td>{html.escape(label)}</td>"
        f"<td>{_number(sum(values) / len(values), measure)}</td>"
        f"<td>{', '.join(_number(value, measure) for value in values)}</td><td>{html.escape(measure.unit)}</td></tr>"
        for (measure, label), values in own.values.items())
    heads = "".join(f"<th>{head}</th>" for head in ("Measured", "Setting", "Mean", "Each seed", "Unit"))
    return (f'<div class="rl-scroll"><table class="rl-table"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
            "</table></div>")


def _number(value: float, measure: Measure) -> str:
    return f"{value:z.{measure.digits}f}".replace("-", "−")
