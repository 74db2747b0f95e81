"""Colours, chart layout and the few CSS rules that Streamlit's theme cannot say.

Left out: anything a widget option or `config.toml` already does; and any selector of a part of a class's name, since
with one a browser styles all that is below an element anew whenever the element's class is written.
"""

from __future__ import annotations

import html
import re
from typing import Any

import streamlit as st

from labcore.catalog.amounts import percent, significant
from labcore.catalog.knob import LETTERS
from labcore.catalog.metric import Metric

# Okabe–Ito order; the dark row is the same hues, lightened to 4.5:1 on the dark ground.
LIGHT = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
DARK = ("#4FA8E0", "#F2B84B", "#3FC79A", "#E3A0C4", "#8CD0F2", "#F08A4B")
# The hue of each family of metrics, light and dark. Darker than the list where that is below 3:1 on the light ground.
FAMILY = {"reward": ("#0072B2", "#4FA8E0"), "divergence": ("#D55E00", "#F08A4B"), "entropy": ("#009E73", "#3FC79A"),
          "clip": ("#C0659A", "#E3A0C4"), "critic": ("#2F8FC4", "#8CD0F2"), "gradient": ("#B07A00", "#F2B84B"),
          "system": ("#69727D", "#9AA4AF")}
POSITIVE = {"light": "#0072B2", "dark": "#4FA8E0"}  # an advantage above zero; below: orange, always with its sign
NEGATIVE = {"light": "#B85C00", "dark": "#F2B84B"}
FONT = "Source Sans, Source Sans Pro, sans-serif"  # what Streamlit ships
SIGNS = {**LETTERS, r"\nabla": "∇", r"\lVert": "‖", r"\rVert": "‖", r"\max": "max ", r"\,": " "}

CSS = """
<style>
.stMainBlockContainer{padding:3.9rem 1.25rem 2rem;max-width:1680px}
.stVerticalBlock{gap:.55rem}
.stApp{--st-primary-color:light-dark(#0072B2,#4FA8E0)} /* Streamlit sets it in components alone */
[data-testid=stTopNav]>:has([href$="/runs"]){order:90!important;margin-left:auto}
[data-testid=stTopNav]>:has([href$="/help"]){order:91!important}
[data-testid=stTopNav]+*{min-width:0} /* else a gap between Help and the theme */
[data-testid=stSidebarNavItems]{display:flex;flex-direction:column}
[data-testid=stSidebarNavItems]>:has(>div>[href$="/runs"]){order:1;margin-top:1rem}
[data-testid=stSidebarNavItems]>:has(>div>[href$="/help"]){order:1}
.stAppHeader::after{position:absolute;left:50%;top:50%;transform:translate(-50%,-50%);font-weight:600}
[data-testid=stMainMenuButton] svg{display:none}
[data-testid=stMainMenuButton]::before{content:"";width:17px;height:17px;border-radius:50%;border:2px solid;
  background:linear-gradient(90deg,currentColor 50%,transparent 50%)}
[data-testid=stMainMenuButton]{padding:6px}
.st-key-side,.st-key-side .stVerticalBlock{gap:.3rem}
.st-key-side [data-testid=stSliderTickBar]{display:none}
.st-key-side label p{font-size:14px}
[role=option]{height:auto!important;min-height:2.2rem;padding-block:.2rem!important}
[role=option]>[data-item-hl]{white-space:normal!important;height:auto!important;line-height:1.35}
.st-key-side .stColumn{min-width:0}
.stElementContainer:has(.rl-fold-note){position:relative;z-index:1;height:0;margin-bottom:-.3rem}
.rl-fold-note{position:absolute;right:12px;top:8px;font-size:12.5px;color:light-dark(#0072B2,#4FA8E0);
  pointer-events:none}
.st-key-side button[kind=tertiary]{min-height:1.4rem;padding-block:0}
.st-key-more_knobs .stExpander details{border:none}.st-key-more_knobs .stExpander summary{padding-inline:0}
.st-key-more_knobs .stExpander [data-testid=stExpanderDetails]{padding:0 0 .6rem}
.st-key-side button[kind=tertiary]:enabled p{color:light-dark(#0072B2,#4FA8E0);font-size:13px}
.st-key-setup{padding-bottom:.75rem;margin-bottom:.3rem;
  border-bottom:1px solid color-mix(in srgb,currentColor 12%,transparent);container-type:inline-size}
@container (max-width:300px){.st-key-setup [data-testid=stNumberInputContainer] button{display:none}}
@container (max-width:250px){.st-key-setup .stHorizontalBlock:has(.stSelectbox){flex-wrap:wrap;row-gap:.3rem}
  .st-key-setup .stColumn:has(.stSelectbox){flex:1 0 100%}}
.st-key-pretrained_models{margin-top:-.45rem}
.st-key-pretrained_models button{min-height:1.4rem;padding:0 .35rem 0 .25rem;border:none;background:none;
  justify-content:flex-end}
.st-key-show_knobs{display:none}
.st-key-resume_banner{padding:.3rem .8rem;border-radius:8px;background:light-dark(#F5F6F8,#1E2329)}
div:has(>.st-key-bar),div:has(>.st-key-clock){position:sticky;z-index:20;
  background:light-dark(#FFFFFF,#14171B)}
div:has(>.st-key-bar){top:3.25rem;padding:.5rem 0 .35rem;margin-top:-.5rem;z-index:21;
  box-shadow:0 8px light-dark(#FFFFFF,#14171B)}
div:has(>.st-key-clock){top:calc(3.25rem + 55px);bottom:0;padding:2px 0 4px}
@media (min-width:641px){.st-key-side{max-height:calc(100dvh - 3.25rem - 66px);overflow-y:auto;overflow-x:hidden;
  padding-right:8px;scrollbar-width:thin}
  div:has(>.st-key-side){position:sticky;top:calc(3.25rem + 58px)}}
@media (min-width:641px){.stHorizontalBlock:has(>.stColumn .st-key-side){flex-wrap:nowrap}
  .stColumn:has(.st-key-side){min-width:14.5rem}.stColumn:has(.st-key-side)+.stColumn{min-width:0}}
@media (max-width:1100px){.st-key-bar{gap:.5rem}.st-key-bar kbd{display:none}
  .st-key-bar>:first-child{flex:1 1 9rem;min-width:0;max-width:300px}}
@media (max-width:640px){.st-key-bar{gap:.35rem}.st-key-bar>:first-child{flex-basis:100%;max-width:none}
  .st-key-bar button{padding-left:.4rem;padding-right:.4rem}
  .st-key-bar button span:has(>[data-testid=stIconMaterial]):first-child{display:none}
  .stHorizontalBlock:has(.st-key-knobs .st-key-setup){row-gap:0}
  .st-key-show_knobs,.st-key-knobs{position:fixed;left:0;right:0;z-index:60;background:light-dark(#FFFFFF,#14171B);
    border-top:1px solid color-mix(in srgb,currentColor 18%,transparent)}
  .st-key-show_knobs{display:block;bottom:0;width:100%;padding:0;z-index:61}
  .st-key-show_knobs .stCheckbox,.st-key-show_knobs label{width:100%}
  .st-key-show_knobs label{position:relative;justify-content:center;height:43px;align-items:center;padding-top:6px}
  .st-key-show_knobs label>span+div{display:none}
  .st-key-show_knobs label::before{content:"";position:absolute;top:6px;left:calc(50% - 20px);width:40px;height:4px;
    border-radius:2px;background:color-mix(in srgb,currentColor 28%,transparent)}
  .st-key-show_knobs label:has(:focus-visible){outline:2px solid var(--st-primary-color);outline-offset:-3px}
  .st-key-knobs{display:none;bottom:44px;max-height:62dvh;overflow-y:auto;overscroll-behavior:contain;
    padding:14px 14px 10px;box-shadow:0 -6px 18px rgb(0 0 0/14%);border-radius:14px 14px 0 0}
  .stMainBlockContainer:has(.st-key-show_knobs input:checked) .st-key-knobs{display:flex}
  .stMainBlockContainer:has(.st-key-show_knobs){padding-bottom:64px}
  div:has(>.st-key-bar),div:has(>.st-key-clock){position:static;box-shadow:none}}
@media (hover:none),(pointer:coarse),(max-width:640px){
  .stButton kbd,.stTextArea [data-testid=InputInstructions]{display:none}}
@media (hover:none){[data-testid=stElementToolbar]{display:none}} /* on touch it would stay over a table's rows */
[data-stale=true],.stTabs [role=tabpanel],.stExpander summary{opacity:1!important;transition:none!important}
.rl-status{font-size:15px;line-height:1.45;padding-top:2px;overflow-wrap:anywhere}
.rl-status .rl-dot{width:9px;height:9px;border-radius:50%;display:inline-block;margin-right:.55rem}
.rl-status .rl-muted{margin-left:.5rem}
.rl-listed-goal{margin-left:1.3rem;font-size:14px;line-height:1.45;opacity:.85}
.rl-listed-goal code{font:600 .92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:inherit;padding:0 4px;
  background:color-mix(in srgb,currentColor 8%,transparent)}
.rl-status .rl-muted,.rl-muted{opacity:.72}
body:has(.st-key-bar:hover,.st-key-compare_runs:hover,.st-key-runs_top:hover,.st-key-playground_top:hover)
  [role=tooltip]{translate:0 calc(100% + 52px)}
body:has(.st-key-bar button:hover:focus:not(:focus-visible)) [role=tooltip]{visibility:hidden}
@media (min-width:641px){.st-key-tiles{flex-wrap:nowrap}.st-key-tiles>:first-child{min-width:0}}
.rl-bar{height:3px;border-radius:2px;background:color-mix(in srgb,currentColor 14%,transparent);margin-top:4px}
.rl-bar i{display:block;height:3px;border-radius:2px}
sub,sup{line-height:0;font-size:.75em}
.stElementContainer:has(>.stHtml>script){display:none}
.st-key-compare_head{min-height:83px}
@media (max-width:1000px){.st-key-compare_head{min-height:136px}}
@media (max-width:640px){.st-key-compare_head{min-height:233px}}
.st-key-doctor{height:30px;max-height:30px;margin:-7px 0 -9px;flex-wrap:nowrap;font-size:15px}
.st-key-no_doctor{display:none}
.st-key-doctor>*{min-width:0}
.st-key-doctor>.stElementContainer:has(.rl-doctor){flex:0 1 auto;width:auto}
.rl-doctor{display:flex;flex-wrap:wrap;align-items:center;height:30px;line-height:30px;white-space:nowrap;
  overflow:hidden}
.rl-doctor i{line-height:normal}
.rl-doctor i,.rl-finding i{font-style:normal;font-size:13px;font-weight:600;padding:1px 7px;border-radius:9px;
  margin-right:.5rem;border:1px solid}
.rl-problem i{color:light-dark(#A63D00,#FF9B5E)}.rl-warning i{color:light-dark(#8A5A00,#F2B84B)}
.rl-note i{color:light-dark(#0072B2,#6FBDF0)}
.st-key-doctor .stButton,.st-key-doctor .stPopover{flex:none}
.st-key-doctor button{height:30px;min-height:0;padding:0 .65rem;white-space:nowrap}
.rl-finding{line-height:1.45;max-width:30rem}
@media (max-width:1100px){.st-key-doctor{height:46px;max-height:46px}.rl-doctor span{display:none}
  .rl-doctor{display:block;height:auto;max-height:46px;line-height:23px;white-space:normal}}
@media (max-width:640px){.st-key-doctor .stButton{display:none}}
.rl-table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
.rl-table td,.rl-table th{padding:3px 10px 3px 0;text-align:left;vertical-align:top;border:0;
  border-bottom:1px solid color-mix(in srgb,currentColor 12%,transparent)}
.rl-table th{font-weight:500;opacity:.72}
.rl-table code,.rl-mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:none;color:inherit;
  overflow-wrap:anywhere;padding:0}
.rl-scroll{overflow-x:auto}
.rl-ask{display:inline-block;width:17px;height:17px;line-height:16px;border-radius:50%;text-align:center;font-size:12px;
  font-weight:600;text-decoration:none!important;color:inherit!important;opacity:.7;vertical-align:1px;
  border:1px solid color-mix(in srgb,currentColor 45%,transparent)}
.rl-ask:hover{opacity:1}
.rl-code{margin:0;padding:.8rem 1rem;border-radius:.5rem;background:color-mix(in srgb,currentColor 5%,transparent);
  font:13.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
.rl-code code{all:unset}.rl-code b{font-weight:inherit}
.rl-code .keyword{color:light-dark(#00609A,#6FBDF0)}.rl-code .string{color:light-dark(#00704F,#3FC79A)}
.rl-code .number{color:light-dark(#A63D00,#F08A4B)}.rl-code .name{color:light-dark(#8A3A6E,#E3A0C4)}
.rl-code .comment{opacity:.72}
.rl-chip{display:inline-block;font:12px/16px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;padding:0 5px;
  border-radius:8px;border:1px solid color-mix(in srgb,currentColor 28%,transparent);opacity:.75;white-space:nowrap;
  vertical-align:1px}
.rl-said{white-space:pre-wrap;overflow-wrap:anywhere}
.rl-fold{display:inline;vertical-align:1px}
.rl-fold>summary{display:inline-block;cursor:pointer;list-style:none;font-size:12px;line-height:16px;padding:0 7px;
  border-radius:9px;border:1px solid color-mix(in srgb,currentColor 28%,transparent);white-space:nowrap;
  font-weight:400;color:color-mix(in srgb,currentColor 80%,transparent)}
.rl-fold>summary::-webkit-details-marker{display:none}
.rl-fold>summary::before{content:"+ "}.rl-fold[open]>summary::before{content:"− "}
.rl-fold>summary:hover{border-color:var(--st-primary-color);color:var(--st-primary-color)}
.rl-fold>summary:focus-visible{outline:2px solid var(--st-primary-color);outline-offset:1px}
.rl-fold>div{margin:4px 0 6px;padding:6px 10px;border-radius:6px;max-height:300px;overflow:auto;font-size:13px;
  line-height:1.45;background:color-mix(in srgb,currentColor 5%,transparent)}
.rl-strip{display:flex;flex-wrap:wrap;gap:4px}
.rl-strip span{padding:2px 5px 3px;border-radius:5px;text-align:center;
  border:1px solid color-mix(in srgb,currentColor 14%,transparent);font-size:15px}
.rl-strip small{display:block;font-size:12px;opacity:.85;font-variant-numeric:tabular-nums}
.rl-pos{color:light-dark(#0072B2,#4FA8E0);font-weight:600}.rl-neg{color:light-dark(#B85C00,#F2B84B);font-weight:600}
@media (min-width:641px){.st-key-entries .stHorizontalBlock{flex-wrap:nowrap}
  .st-key-entries .stHorizontalBlock>:first-child{min-width:0;flex:1 1 0}}
.stDataFrame button[aria-label^="Download as CSV"]{display:none} /* it writes formulas as formulas; see tables.py */
button[kind=primary]:enabled,button[kind=primary]:enabled *{color:light-dark(#fff,#0E1116)}
@media (max-width:640px){.stMainBlockContainer{padding:3.9rem .8rem 2rem}
  .stDataFrame .stElementToolbar{top:2px!important}}
</style>
"""


def style() -> None:
    """Write the page's CSS once per script run."""
    st.html(CSS)


def here(title: str, section: int | None, alone: int, named: str = "") -> None:
    """Show the page's title after its section in the navigation; on a phone, which folds the navigation, at the top.

    `section` is the number of the page's section and `named` its name, which is not written twice; `alone` the number
    of pages without one, which Streamlit puts first.
    """
    item = f"[data-testid=stTopNav]>:nth-child({alone + section + 1})" if section is not None else ""
    behind = f" · {title}" if title != named else ""
    st.html(f"""<style>@media (max-width:768px){{.stAppHeader::after{{content:"{title}"}}}}
{f'{item} button{{font-weight:600}}{item} button>span p::after{{content:"{behind}"}}' if item else ""}</style>""")


def ground() -> str:
    """'light' or 'dark': the theme the browser shows; light until it has said so."""
    return "dark" if st.context.theme.type == "dark" else "light"


def palette(kind: str) -> tuple[str, ...]:
    return DARK if kind == "dark" else LIGHT


def on(colour: str) -> str:
    """The ink that can be read on a ground of this colour: white or near black.

    >>> on("#0072B2"), on("#E69F00")
    ('#FFFFFF', '#0E1116')
    """
    red, green, blue = ((int(colour[at:at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5))
    return "#FFFFFF" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.2 else "#0E1116"


def layout(kind: str, height: int = 300) -> dict[str, Any]:
    """Plotly layout of a static picture on a light or dark ground."""
    ink, line = ("#E7EAEE", "#343B44") if kind == "dark" else ("#1B1F24", "#E3E6EA")
    axis = {"gridcolor": line, "zerolinecolor": line, "linecolor": line, "title": {"font": {"size": 13}},
            "tickfont": {"size": 12}, "automargin": True}
    return {"height": height, "margin": {"l": 8, "r": 8, "t": 34, "b": 8}, "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": ink, "size": 13, "family": FONT},
            "colorway": list(palette(kind)), "xaxis": {**axis, "showgrid": False}, "yaxis": axis,
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": line, "activecolor": ink}, "hovermode": "closest",
            "legend": {"orientation": "h", "y": -0.22, "x": 0, "font": {"size": 13}}}


# A vertical axis of shares in percent.
RATES = {"range": [-0.03, 1.03], "tickvals": [0, 0.25, 0.5, 0.75, 1], "ticktext": ["0", "25", "50", "75", "100"]}


def symbol(latex: str) -> str:
    r"""A catalog symbol as HTML, for places where LaTeX is not drawn.

    >>> symbol(r"\varepsilon_{low}")
    'ε<sub>low</sub>'
    >>> symbol(r"\widehat{KL}_{k3}")
    'K̂L<sub>k3</sub>'
    """
    text = re.sub(r"\\operatorname\{(\w+)\}", r"\1", latex)
    text = re.sub(r"\\(?:bar|hat) ?\{?(\w)\}?", lambda m: m[1] + "\u0304", text)
    text = re.sub(r"\\overline\{(\w+)\}", lambda m: "".join(letter + "\u0305" for letter in m[1]), text)
    text = re.sub(r"\\widehat\{(\w)(\w*)\}", lambda m: m[1] + "\u0302" + m[2], text)
    for name, letter in SIGNS.items():
        text = text.replace(name, letter)
    text = html.escape(text.replace("\\", ""))
    text = re.sub(r"_\{([^}]*)\}|_(\w)", lambda m: f"<sub>{m[1] or m[2]}</sub>", text)
    return re.sub(r"\^\{([^}]*)\}|\^([\w*])", lambda m: f"<sup>{m[1] or m[2]}</sup>", text)


def number(value: float, digits: int = 3) -> str:
    """A number with a sensible count of digits: at most `digits` decimals, and none beyond three significant digits
    from 10 on. As `format` in components/component.js.

    >>> number(0.04213), number(1234.5, 0), number(1e-05), number(0.0), number(-0.5)
    ('0.042', '1,234', '1e−5', '0', '−0.500')
    >>> number(6.1204), number(-27.904, 2), number(483.8, 2), number(1234.56), number(99.96, 2)
    ('6.120', '−27.9', '484', '1,235', '100')
    """
    if abs(value) < 1e-9:
        return "0"
    digits = min(digits, 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else digits)
    text = f"{value:.0e}".replace("e-0", "e-") if abs(value) < 10 ** -digits / 2 else f"{value:,.{digits}f}"
    return text.replace("-", "−")


def metric_text(metric: Metric, value: float, exact: bool = False) -> str:
    """A metric's value as all pages write it: shares in percent, with three digits if `exact`, as in comparisons.

    >>> match = Metric("exact_match", "Exact match", "share of completions", "", scale="rate")
    >>> metric_text(match, 0.9048), metric_text(match, 0.9048, exact=True)
    ('90 %', '90.5 %')
    >>> metric_text(Metric("kl", "KL to the reference", "nats/token", ""), 0.9048)
    '0.905'
    """
    if not metric.share:
        return number(value, metric.digits)
    return f"{significant(100 * value)} %" if exact else percent(value)


def hover_text(metric: Metric, name: str) -> str:
    """A value of a metric in Plotly's hover words; the field `name` of the trace has it in the unit of the page.

    >>> hover_text(Metric("kl", "KL", "nats", ""), "y")
    '%{y:.3~f}'
    """
    return f"%{{{name}:.3~g}} %" if metric.share else f"%{{{name}:.3~f}}"


def difference_text(metric: Metric, value: float) -> str:
    """A difference of two values of a metric, with its sign.

    >>> match = Metric("exact_match", "Exact match", "share of completions", "", scale="rate")
    >>> difference_text(match, 0.12), difference_text(Metric("kl", "KL", "nats", ""), -0.07)
    ('+12.0 points', '−0.070')
    """
    text = f"{significant(100 * value)} points" if metric.share else number(value, metric.digits)
    return text if value <= 0 else f"+{text}"
