"""Rendered prompts as HTML: special tokens are chips, the template's own text folds (both as in `app.chips`), and each
token of the text has its id in its tooltip. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from app.chips import folded
from app.tokens import VISIBLE

SPECIAL, TEXT, GAP = "special", "text", "gap"
INLINE = 8  # tokens of a template's text that are not folded
Piece = Sequence[Any]  # text, ids, kind

CSS = """
<style>
.rl-read{white-space:pre-wrap;overflow-wrap:anywhere;font-size:14px;line-height:1.7;margin:2px 0 8px;padding:6px 10px;
  border-left:3px solid color-mix(in srgb,currentColor 18%,transparent);max-height:340px;overflow:auto}
.rl-read.rl-answer{border-left-color:light-dark(#0072B2,#4FA8E0)}
.rl-read s{text-decoration:none}
.rl-read s:nth-of-type(odd){background:color-mix(in srgb,currentColor 7%,transparent);border-radius:3px}
.rl-read i{font-style:normal;opacity:.72}
.rl-preview>summary{cursor:pointer}
.rl-preview>summary:focus-visible{outline:2px solid var(--st-primary-color)}
.rl-preview{margin:0 0 4px}.rl-preview>summary{font-size:14px;padding:3px 0;overflow-wrap:anywhere}
.rl-preview small{font-size:13px;opacity:.76}.rl-preview dl{display:grid;grid-template-columns:auto minmax(0,1fr);
  gap:2px 10px;font-size:13px;margin:0 0 8px 12px}
.rl-preview dt{opacity:.76}.rl-preview dd{margin:0;overflow-wrap:anywhere}
.rl-lengths{display:flex;flex-wrap:wrap;gap:10px 28px;margin:2px 0 8px}.rl-lengths div{width:190px}
.rl-lengths small{font-size:12px;opacity:.76;display:flex;justify-content:space-between}
.rl-lengths span{display:flex;align-items:flex-end;gap:1px;height:38px}
.rl-lengths b{flex:1;background:light-dark(#0072B2,#4FA8E0);min-height:1px;border-radius:1px 1px 0 0}
</style>"""


def page(result: Mapping[str, Any]) -> str:
    """The lengths, and the rows, the first of them unfolded."""
    lengths = result.get("lengths") or {}
    return CSS + histograms(lengths) + "".join(row(each, not place) for place, each in enumerate(result["shown"]))


def histograms(lengths: Mapping[str, Any]) -> str:
    """Histograms of the lengths of prompts, and of prompts with answers."""
    drawn = [_histogram(title, lengths[key]) for key, title in (("prompt", "Prompt"), ("whole", "Prompt and answer"))
             if lengths.get(key) and len(lengths[key]["counts"]) > 1]
    return f'<div class="rl-lengths">{"".join(drawn)}</div>' if drawn else ""


def _histogram(title: str, found: Mapping[str, Any]) -> str:
    most, (low, *_, high) = max(found["counts"]), found["quantiles"]
    bars = "".join(f'<b style="height:{100 * count / most:.0f}%" title="{count:,} rows: {edges[0]:,.0f} to '
                   f'{edges[1]:,.0f} tokens"></b>' for count, edges in zip(
                       found["counts"], zip(found["edges"], found["edges"][1:], strict=False), strict=True))
    return (f'<div role="img" aria-label="{title}: {low:,} to {high:,} tokens"><small><em>{title}, tokens</em></small>'
            f"<span>{bars}</span><small><em>{low:,}</em><em>{high:,}</em></small></div>")


def row(given: Mapping[str, Any], unfolded: bool) -> str:
    """A row: how it was understood, its prompt, its answers and the fields that travel with it."""
    place = f"Line {given['line']:,}" if given["line"] else "Prompt"
    mapped = ", ".join(f"{html.escape(name)} → {what}" if name != what else html.escape(name)
                       for name, what in given.get("fields", {}).items())
    sizes = " + ".join(f"{count:,}" for count in (given["tokens"], *(each["tokens"] for each in given["answers"])))
    head = f"<b>{place}</b> <small>{' · '.join(filter(None, (mapped, f'{sizes} tokens')))}</small>"
    inside = (f'<div class="rl-read">{html.escape(given["fault"])}</div>' if given.get("fault") else
              f'<div class="rl-read">{"".join(pieces(given["prompt"]))}</div>')
    for answer in given["answers"]:
        inside += (f"<small>{html.escape(answer['label'])}</small>"
                   f'<div class="rl-read rl-answer">{"".join(pieces(answer["pieces"]))}</div>')
    about = [*given.get("columns", ()), *([["label", given["label"]]] if "label" in given else [])]
    columns = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>" for name, value in about)
    return (f'<details class="rl-preview"{" open" if unfolded else ""}><summary>{head}</summary>{inside}'
            f"{f'<dl>{columns}</dl>' if columns else ''}</details>")


def pieces(found: Sequence[Piece]) -> Iterator[str]:
    """The pieces as safe HTML: what the template wrote between two texts is one stretch, folded where it is long.

    >>> "".join(pieces([["<s>", [1], "special"], ["Hi", [7, 8], "text"]]))
    '<span class="rl-chip" title="token 1">&lt;s&gt;</span><s title="tokens 7, 8">Hi</s>'
    """
    for said, stretch in groupby(found, key=lambda piece: piece[2] in (TEXT, GAP)):
        some = [*stretch]
        if said:
            yield "".join(map(_text, some))
            continue
        count, drawn = sum(len(ids) for _, ids, _ in some), "".join(map(_of_template, some))
        yield drawn if count <= INLINE else folded(f"template, {count:,} tokens", drawn)


def _text(piece: Piece) -> str:
    text, ids, kind = piece
    if kind == GAP:
        return f'<span class="rl-chip">… {html.escape(text)} …</span>'
    return f'<s title="{_ids(ids)}">{html.escape(text)}</s>'


def _of_template(piece: Piece) -> str:
    text, ids, kind = piece
    if kind == SPECIAL:
        return f'<span class="rl-chip" title="{_ids(ids)}">{html.escape(text.strip() or text)}</span>'
    return f'<i title="{_ids(ids)}">{html.escape(text.replace(chr(10), VISIBLE[chr(10)]))}</i>'


def _ids(ids: Sequence[int]) -> str:
    return f"token{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
