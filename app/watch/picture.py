"""The picture on the page without a run: a trainer sends lines, and the lab shows curves, completions and tokens.
Pure."""

from __future__ import annotations

from base64 import b64encode
from html import escape

ALT = "A trainer sends lines, and the lab shows curves, completions by reward, tokens and a warning"
COLOURS = {"light": {"ink": "#1B1F24", "blue": "#0072B2", "orange": "#E69F00", "warning": "#8A5A00"},
           "dark": {"ink": "#E7EAEE", "blue": "#4FA8E0", "orange": "#F2B84B", "warning": "#F2B84B"}}
# For each token: text, left edge, width, whether its advantage is negative, and its share of the gradient.
TOKENS = (("3+4", 294, 38, False, .6), ("is", 336, 26, False, .25), ("maybe", 366, 50, True, .5),
          ("7", 420, 22, False, .5), ("end", 446, 38, False, .15))
BARS = ((46, "1", 88, 1.0), (68, "0.5", 38, .65), (90, "0", 18, .4))  # top, reward, width, opacity
CODE = ((88, 18, "for step in …:"), (110, 34, "sample()"), (132, 34, "update()"))
CURVE = "M294 94 306 90 318 92 330 80 342 83 354 70 366 72 378 60 390 63 402 54 414 56 428 48 446 47"


def html(ground: str) -> str:
    """Return the picture for the light or dark theme as an image, because Streamlit removes SVG from HTML."""
    text = b64encode(svg(**COLOURS[ground]).encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{text}" alt="{escape(ALT)}" width="620" height="210">'


def svg(ink: str, blue: str, orange: str, warning: str) -> str:
    """Return the picture as SVG."""
    frame = f'rx="10" fill="none" stroke="{ink}" stroke-opacity=".22"'
    words = "".join(f'<text x="{x}" y="{y}" class="m" opacity=".75">{text}</text>' for y, x, text in CODE)
    bars = "".join(f'<text x="484" y="{top + 10}" font-size="12">{reward}</text><rect x="510" y="{top}" height="12" '
                   f'rx="2" width="{wide}" fill="{blue}" opacity="{share}"/>' for top, reward, wide, share in BARS)
    tokens = "".join(f'<rect x="{x}" y="146" width="{wide}" height="22" rx="4" fill="{orange if bad else blue}" '
                     f'fill-opacity="{share}" stroke="{ink}" stroke-opacity=".25"/><text x="{x + 6}" y="161" class="m">'
                     f"{text}</text>" for text, x, wide, bad, share in TOKENS)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 210" fill="{ink}" font-size="13"
font-family="system-ui,'Segoe UI',Helvetica,Arial,sans-serif">
<style>.m{{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}.b{{font-weight:600}}</style>
<rect x="1" y="30" width="176" height="150" {frame}/><text x="18" y="56" class="b" font-size="15">your trainer</text>
{words}<text x="34" y="158" class="m b" fill="{blue}">run.log(…)</text>
<path d="M190 105H262m0 0-9-6m9 6-9 6" fill="none" stroke="{ink}" stroke-opacity=".55" stroke-width="1.6"/>
<text x="226" y="92" text-anchor="middle" opacity=".75">lines</text>
<rect x="276" y="1" width="343" height="208" {frame}/><text x="294" y="26" class="b">Reward</text>
<path d="M294 98H446M294 70H446M294 42H446" stroke="{ink}" stroke-opacity=".13"/>
<path d="{CURVE}" fill="none" stroke="{blue}" stroke-width="2" stroke-linejoin="round"/>
<path d="M392 36V98" stroke="{ink}" stroke-opacity=".5" stroke-dasharray="2 3"/>
<text x="398" y="94" font-size="11" opacity=".75">lr halved</text>
<text x="484" y="26" class="b">By reward</text>{bars}
<text x="294" y="134" class="b">Tokens by gradient</text>{tokens}
<text x="294" y="194"><tspan fill="{warning}" class="b">Warning</tspan>  Most groups give no gradient</text>
</svg>"""
