"""Presets: a card with a recorded curve for each effect; the chosen one says what to look at, and starts beside the
preset that it is to be compared with.

Two presets that belong together share a card, which shows both curves.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from urllib.parse import quote

import streamlit as st

from app import link, session
from app.draft import PRESET, Draft
from app.lab import errors_shown, lab
from app.theme import FAMILY, NEGATIVE, ground, metric_text
from app.tokens import literal
from labcore.catalog import kinds
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.catalog.presets import PRESETS, Preset, of_kind, recorded
from labcore.catalog.right import in_run
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.presets import preset_of, spec_of
from labcore.runs.store.rows import RunRow

UPDATES = "updates"
WIDE, HIGH, EDGE = 128, 34, 2.5  # of a picture, in pixels
BEHIND = "#9AA4AF"  # the curve of the preset beside it
CSS = """
<style>
.st-key-presets{display:grid!important;grid-template-columns:repeat(auto-fill,minmax(138px,1fr));gap:8px!important;
  align-items:stretch!important}
.st-key-presets>div{position:relative;width:auto!important;height:auto!important;min-width:0;border-radius:8px;
  border:1px solid color-mix(in srgb,currentColor 16%,transparent)}
.st-key-presets>div:hover{border-color:light-dark(#0072B2,#4FA8E0)}
.st-key-presets>div:has(.rl-chosen){border-color:light-dark(#0072B2,#4FA8E0);
  background:light-dark(#0072B212,#4FA8E01F)}
.st-key-presets .stVerticalBlock{gap:0!important}
.rl-preset{padding:6px 9px 7px}.rl-preset b{display:block;font-size:13.5px;font-weight:600;line-height:1.3}
.rl-preset img{display:block;width:100%;height:34px;margin-top:4px}
.rl-preset small{display:flex;flex-wrap:wrap;gap:0 8px;font-size:11.5px;line-height:1.3;margin-top:2px;opacity:.8}
.rl-preset i{display:inline-block;width:9px;height:2px;margin-right:4px;vertical-align:3px}
.st-key-presets .stElementContainer:not(:has(.stHtml)){position:absolute!important;inset:0;width:100%!important}
.st-key-presets .stButton,.st-key-presets .stButton button{position:absolute;inset:0;width:100%;height:100%;opacity:0}
.st-key-presets>div:has(button:focus-visible){outline:2px solid light-dark(#0072B2,#4FA8E0);outline-offset:1px}
.rl-look{font-size:15px;line-height:1.45}.rl-look ol{margin:.3rem 0 0;padding-left:1.3rem}.rl-look li{margin:0 0 2px}
.rl-look small{font-size:13px;opacity:.75}.rl-look summary{cursor:pointer}
@media (max-width:640px){.st-key-presets{grid-template-columns:none!important;grid-auto-flow:column;
  grid-auto-columns:138px;overflow-x:auto;padding-bottom:4px}}
</style>"""


def show(draft: Draft) -> None:
    """The cards of the draft's kind, and the description of the chosen one."""
    offered = leads(of_kind(draft.kind.key))
    if not offered or read_only():
        return
    st.html(CSS)
    chosen = draft.preset
    with st.container(key="presets"):
        for preset in offered:
            with st.container(key=f"preset_{preset.key}"):
                st.html(card(preset, chosen is not None and chosen.key in (preset.key, preset.beside)))
                st.button(preset.label, key=f"preset:{preset.key}", on_click=draft.take, args=(preset,),
                          help=_of_both(preset.key))
    if chosen is not None and draft.preset_chosen:
        _chosen(draft, chosen)


def leads(presets: Sequence[Preset]) -> list[Preset]:
    """The presets that have a card of their own: of two that belong together, the first."""
    found: list[Preset] = []
    for preset in presets:
        if not any(preset.beside == other.key for other in found):
            found.append(preset)
    return found


@cache
def _of_both(key: str) -> str:
    """The change of a preset and the caption of its picture: each line with its values, and the grey one."""
    preset = PRESETS[key]
    said = [preset.change + "."]
    if preset.key in recorded():
        curves = recorded()[preset.key].curves
        ends = (_ends(_metric(preset.key, key), curves[key]) for key in preset.drawn)
        said.append(f"Recorded: {'; '.join(ends)}.")
    if preset.beside:
        said.append(f"Grey line: {METRICS[preset.drawn[0]].inline} of {PRESETS[preset.beside].label}.")
    return literal(" ".join(said))


@cache
def _metric(preset: str, key: str) -> Metric:
    """A metric as the run of a preset calls it, with few digits."""
    spec = spec_of(PRESETS[preset])
    return replace(in_run(key, spec.row, spec.task_row, spec.knobs), digits=2)


def _ends(metric: Metric, values: Sequence[float]) -> str:
    """A recorded metric with its first and last value: "exact match 46 % → 86 %"; a flat one: "KL always 0.00"."""
    if min(values) == max(values):
        return f"{metric.inline} always {metric_text(metric, values[0])}"
    return f"{metric.inline} {metric_text(metric, values[0])} → {metric_text(metric, values[-1])}"


@errors_shown()
def _chosen(draft: Draft, preset: Preset) -> None:
    """The description of the chosen preset, the buttons to run it beside the other one, and its link."""
    with st.container(border=True, key="preset_chosen"):
        st.html(f'<div class="rl-look"><b>{html.escape(preset.label)}.</b> {html.escape(preset.change)}.'
                f"{_looks(preset)}</div>")
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            if preset.beside:
                other = PRESETS[preset.beside]
                if st.button("Run both, side by side", icon=":material/compare_arrows:", key="preset:both",
                             help=f"{preset.label} and {other.label}: same seed, same number of updates"):
                    _start_both(draft.spec().seed, preset, other)
                st.button(f"Show {other.label}", icon=":material/swap_horiz:", key="preset:other",
                          on_click=draft.take, args=(other,))
            with st.popover("Link", icon=":material/link:"):
                st.code(link.address({PRESET: preset.key}), language=None, wrap_lines=True)
            if draft.before_preset is not None:
                st.button("Back to my settings", icon=":material/undo:", key="preset:back", on_click=draft.go_back)


def _looks(preset: Preset) -> str:
    """The three sentences and their chart, as HTML."""
    items = "".join(f"<li>{html.escape(each)}</li>" for each in preset.look)
    return f"<ol>{items}</ol><small>Chart: {html.escape(PANELS[preset.chart].title)}</small>"


def _start_both(seed: int, *presets: Preset) -> None:
    _compare(presets[0].kind, *(lab().launcher.start(spec_of(preset, seed)) for preset in presets))


def _compare(kind: str, *runs: str) -> None:
    """Compare runs at equal numbers of updates, where their kind counts them."""
    equal = {"by": UPDATES} if UPDATES in kinds.kind(kind).axes else {}
    st.switch_page("../pages/compare.py", query_params={"runs": ",".join(runs), **equal})


def beside(run: RunRow) -> None:
    """Above a run with the settings of a preset: what to look at, folded, and the other one to be run next to it."""
    preset = preset_of(run.spec)
    if preset is None or preset.key == "default":
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="preset_of_run"):
        st.html(f'{CSS}<details class="rl-look"><summary>Preset <b>{html.escape(preset.label)}</b>: what to look at'
                f"</summary>{_looks(preset)}</details>", width="stretch")
        if preset.beside and not read_only():
            other = PRESETS[preset.beside]
            if st.button(f"Run {other.label} beside it", icon=":material/compare_arrows:", key="preset:beside",
                         type="tertiary", help="Same seed and number of updates; opens both on the page Compare"):
                _start_beside(run, other)


def _start_beside(run: RunRow, other: Preset) -> None:
    try:
        started = lab().launcher.start(spec_of(other, run.spec.seed))
    except LabError as error:
        session.show_error(str(error))
        st.rerun()
    _compare(run.spec.kind, run.id, started)


# ---- pictures -----------------------------------------------------------------------------------------------------


def card(preset: Preset, chosen: bool = False) -> str:
    """A card as HTML: the name over the picture. Screen readers read the name from the button that covers the card."""
    mark = " rl-chosen" if chosen else ""
    return (f'<div class="rl-preset{mark}"><b aria-hidden="true">{html.escape(preset.label)}</b>'
            f"{_recording(preset.key, ground())}</div>")


@cache
def _recording(key: str, _ground: str) -> str:
    """The picture and the legend of a card. They depend only on the preset and on the theme (light or dark)."""
    return picture(PRESETS[key]) + legend(PRESETS[key])


def legend(preset: Preset) -> str:
    """The metric of each line of a preset's picture, with its colour, as HTML. Empty where none is recorded."""
    if preset.key not in recorded():
        return ""
    names = "".join(f'<span><i style="background:{colour}"></i>{html.escape(METRICS[metric].inline)}</span>'
                    for metric, colour in _hues(preset))
    return f'<small aria-hidden="true">{names}</small>'


def picture(preset: Preset) -> str:
    """The recorded curves of a preset as an image, with the curve of the preset beside it, pale, behind them. Empty if
    the preset has no recording."""
    if preset.key not in recorded():
        return ""
    curves = recorded()[preset.key].curves
    first = preset.drawn[0]
    lines = [(curves[metric], colour) for metric, colour in _hues(preset)]
    if preset.beside in recorded() and (behind := recorded()[preset.beside].curves.get(first)):
        lines.insert(0, (behind, BEHIND))
    low, high = _range([value for values, _ in lines for value in values])
    drawn = "".join(f'<polyline points="{_points(values, low, high)}" stroke="{colour}" vector-effect='
                    '"non-scaling-stroke"/>' for values, colour in lines)
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" '
           f'fill="none" stroke-width="1.75" stroke-linejoin="round">{drawn}</svg>')
    metric = _metric(preset.key, first)
    label = (f"{metric.label} of a recorded run: {metric_text(metric, curves[first][0])} at the start, "
             f"{metric_text(metric, curves[first][-1])} at the end")
    # An element svg would be taken out of the page's HTML; an image of one is not.
    return f'<img alt="{html.escape(label)}" src="data:image/svg+xml,{quote(svg)}">'


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the vertical axis: of shares 0 and 1, else those of the values.

    >>> _range([0.2, 0.9]), _range([-3.0, 40.0])
    ((0.0, 1.0), (-3.0, 40.0))
    """
    low, high = min(values), max(values)
    return (0.0, 1.0) if low >= 0 and 0.3 < high <= 1 else (low, high)


def _hues(preset: Preset) -> list[tuple[str, str]]:
    """(metric, colour) of each line of a preset: the first in the hue of its family."""
    first, *more = preset.drawn
    return [(first, _hue(first, ground() == "dark")), *((metric, NEGATIVE[ground()]) for metric in more)]


def _hue(metric: str, dark: bool) -> str:
    family = next(panel.family for panel in PANELS.values() if metric in panel.metrics)
    return FAMILY["reward" if family == "system" else family][dark]  # its grey is that of the curve behind


def _points(values: Sequence[float], low: float, high: float) -> str:
    """Points of a polyline within the picture.

    >>> _points([0.0, 1.0], 0.0, 1.0)
    '2.5,31.5 125.5,2.5'
    """
    across = (WIDE - 2 * EDGE) / max(1, len(values) - 1)
    down = (HIGH - 2 * EDGE) / ((high - low) or 1)
    return " ".join(f"{EDGE + place * across:.4g},{HIGH - EDGE - (value - low) * down:.4g}"
                    for place, value in enumerate(values))
