"""Show texts of a model: pairs as a table, and one completion token by token.

Everything a model or a file wrote is escaped; spaces and line breaks are made visible.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.chat_text import ends, parts, shortened
from app.chips import chipped, counted, folded
from app.theme import number

LONG = 80  # characters of a text that a table shows whole
WORD_JOINER = "\u2060"  # takes no room and breaks no line
VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍"}

# Where links (www. http:// a@b.co), emoji (:bug: :material/bug:) and arrows (-> <= --) can be broken.
_READ_ANYWAY = re.compile(r"(?i)(?<=www)(?=\.)|(?<=http:|ttps:)(?=//)|(?=@[\w-]+\.[\w-])|(?<=:)(?=[\w+/-]+[:\\])|"
                          r"(?<=[<>=~-])(?=[->=](?:\s|$))")


@dataclass(frozen=True)
class View:
    """One way to colour tokens. `signed`: blue above zero, orange below; else blue only, by size."""

    label: str
    unit: str
    values: Callable[[Mapping[str, Any]], list[float | None]]
    signed: bool = False
    centre: float = 0.0


def _listed(*keys: str) -> Callable[[Mapping[str, Any]], list[float | None]]:
    """The first of these lists that the completion has."""
    return lambda completion: next((found for key in keys if (found := completion.get(key))), [])


def _log_ratio(completion: Mapping[str, Any]) -> list[float | None]:
    """log π − log π_ref of each token."""
    return [new - ref for new, ref in zip(completion.get("logprobs") or [], completion.get("ref_logprobs") or [],
                                          strict=False)]


def _to_teacher(completion: Mapping[str, Any]) -> list[float | None]:
    """log π_T − log π of each token."""
    return [theirs - own for theirs, own in zip(completion.get("teacher_logprobs") or [],
                                                completion.get("logprobs") or [], strict=False)]


# The ratio is the one that the algorithm takes: that of the whole sequence where it does.
VIEWS: dict[str, View] = {
    "advantages": View("Advantage", "", _listed("advantages"), signed=True),
    "logprobs": View("Log-prob", "nats", _listed("logprobs")),
    "ratio": View("Ratio", "π/π_old", _listed("own_ratio", "ratio"), signed=True, centre=1.0),
    "k3": View("KL, k3", "nats", _listed("kl")),
    "entropy": View("Entropy", "nats", _listed("entropy")),
    "values": View("Value", "reward", _listed("values"), signed=True),
    "k1": View("KL, k1", "nats", _log_ratio, signed=True),
    "apart": View("Log-ratio", "nats to the reference", _log_ratio, signed=True),
    "teacher": View("Teacher", "nats likelier under the teacher", _to_teacher, signed=True),
    "loss": View("Loss", "nats", lambda completion: [-value for value in completion.get("logprobs") or []]),
    "slope": View("Gradient", "∂S/∂log π", _listed("slope"), signed=True),
    "share": View("Gradient share", "%", lambda completion: [100 * value for value in completion.get("share") or []]),
    "step_scores": View("Score of the step", "", _listed("step_scores"), signed=True, centre=0.5),
    "step_gold": View("Verifier of the steps", "1 right, 0 wrong", _listed("step_gold"), signed=True, centre=0.5),
}
TOLD = ("advantages", "logprobs", "ratio", "k3", "entropy", "values")  # of every token, in its tooltip


OBSERVED = "observation, not learnt from"  # a token that an environment wrote


def own(completion: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
    """The values of the model's own tokens. An episode also has tokens that the environment wrote.

    >>> own({"observed": [False, True]}, [0.5, 0.0]), own({}, [0.5, 0.0])
    ([0.5], [0.5, 0.0])
    """
    observed = completion.get("observed")
    return [value for value, other in zip(values, observed, strict=False) if not other] if observed else list(values)


def signs(text: str) -> str:
    """`text` with spaces, tabs and line breaks as signs; not yet safe as HTML."""
    return "".join(VISIBLE.get(letter, letter if letter.isprintable() else f"\\x{ord(letter):02x}") for letter in text)


def visible(text: str) -> str:
    """`text` as safe HTML, with spaces, tabs and line breaks as signs.

    >>> visible("a <b>\\n")
    'a·&lt;b&gt;↵'
    """
    return html.escape(signs(text))


def literal(text: str) -> str:
    r"""`text` for a Markdown element, shown as it stands: patterns, paths and links hold signs that Markdown reads.

    Escapes do not keep Streamlit from making links and emoji of plain text: an invisible word joiner does.

    >>> literal("the pattern '^a*$' of ![x](y) &amp; more")
    "the pattern '^a\\*\\$' of !\\[x\\](y) \\&amp; more"
    >>> literal("www.x.de, a@b.co and :bug:") == "www\u2060.x.de, a\u2060@b.co and :\u2060bug:"
    True
    >>> literal("12. of 5"), literal("5.0 MB"), literal("1. a\n- b")
    ('12\\. of 5', '5.0 MB', '1\\. a  \n\\- b')
    """
    text = re.sub(r"(?m)^[ \t]+", lambda found: "\u00a0" * len(found[0]), text)  # else code
    text = re.sub(r"(?m)([\\`*\[\]$~<&]|^[#>+=-]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)
    text = re.sub(r"(?m)^(\d+)([.)])(?=\s|$)", r"\1\\\2", text)  # a numbered list
    return _READ_ANYWAY.sub(WORD_JOINER, text).replace("\n", "  \n")


def readable(text: str) -> str:
    """`text` as safe HTML for a table: inner spaces stay spaces, those at the ends and line breaks are signs."""
    inner = text.strip(" ")
    if not inner:
        return visible(text) or '<span class="rl-muted">(empty)</span>'
    lead, tail = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return "·" * lead + visible(inner).replace("·", " ") + "·" * tail


def written(text: str) -> str:
    """A text by a model or a person as safe HTML for a table: of a long text the first and the last line, which unfold
    to the whole text.

    >>> written("abc "), written("So.\\nIt is\\n7").partition(" <details")[0]
    ('abc·', 'So. … 7')
    """
    if len(text) <= LONG and "\n" not in text.strip():
        return readable(text)
    first, last = (readable(shortened(line, LONG)) if line else "" for line in ends(text))
    return (f"{first}{' … ' if last else ''}{last} {folded(f'whole, {counted(text)}', chipped(parts(text)))}")


def signed(value: float | None) -> str:
    """An advantage: sign, number, blue above zero and orange below.

    >>> signed(-0.5)
    '<span class="rl-neg">−0.50</span>'
    """
    if value is None:
        return "–"
    if abs(value) < 5e-3:
        return '<span class="rl-muted">0</span>'
    return f'<span class="rl-{"pos" if value > 0 else "neg"}">{"+" if value > 0 else ""}{number(value, 2)}</span>'


def pair_table(pairs: list[dict[str, Any]]) -> str:
    """Preference pairs with the policy's log-probs and the margin, as HTML."""
    rows = "".join(
        f'<tr><td><code>{written(pair["prompt"])}</code></td>'
        + "".join(f'<td><code>{written(pair[side]["text"])}</code></td><td>{number(pair[side]["logprob"], 1)}</td>'
                  for side in ("chosen", "rejected"))
        + f"<td>{signed(pair['margin'])}</td></tr>" for pair in pairs)
    return ('<div class="rl-scroll"><table class="rl-table"><tr><th>prompt</th><th>chosen</th><th>log π, nats</th>'
            f"<th>rejected</th><th>log π, nats</th><th>margin β·Δ</th></tr>{rows}</table></div>")


def scored_table(pairs: list[dict[str, Any]]) -> str:
    """Held-out pairs with the reward model's scores, and the gold score where the task has one, as HTML."""
    gold = any("gold" in pair["chosen"] for pair in pairs)
    rows = "".join(
        f'<tr><td><code>{written(pair["prompt"])}</code></td>'
        + "".join(f'<td><code>{written(pair[side]["text"])}</code></td><td>{number(pair[side]["score"], 2)}</td>'
                  + (f"<td>{number(pair[side]['gold'], 2)}</td>" if gold else "") for side in ("chosen", "rejected"))
        + f"<td>{signed(pair['chosen']['score'] - pair['rejected']['score'])}</td></tr>" for pair in pairs)
    side = "<th>score</th>" + ("<th>gold</th>" if gold else "")
    return (f'<div class="rl-scroll"><table class="rl-table"><tr><th>prompt</th><th>chosen</th>{side}<th>rejected</th>'
            f"{side}<th>margin</th></tr>{rows}</table></div>")


def calibration_table(bins: list[dict[str, float]]) -> str:
    """Predicted probability of the likelier side against the share of held-out pairs chosen so, as HTML."""
    rows = "".join(f"<tr><td>{number(row['predicted'], 2)}</td><td>{number(row['right'], 2)}</td>"
                   f"<td>{row['pairs']:.0f}</td></tr>" for row in bins)
    return ('<div class="rl-scroll"><table class="rl-table"><tr><th>predicted</th><th>observed</th><th>pairs</th></tr>'
            f"{rows}</table></div>")


def strip(completion: dict[str, Any], view: View) -> str:
    """One completion's tokens as boxes coloured by `view`, each with its number; the rest is in the tooltip."""
    tokens, values = completion.get("tokens") or [], view.values(completion)
    observed = completion.get("observed") or [False] * len(tokens)
    values = [None if other else value for value, other in zip(
        values + [None] * (len(tokens) - len(values)), observed, strict=False)]
    reach = max((abs(value - view.centre) for value in values if value is not None), default=0.0) or 1.0
    boxes = []
    for place, (token, value) in enumerate(zip(tokens, values, strict=False)):
        letters = visible(token) or ("∅" if place == 0 else "&nbsp;")  # a further part of the character before it
        share = 0.0 if value is None else (value - view.centre) / reach
        hue = "light-dark(#E69F00,#F2B84B)" if view.signed and share < 0 else "light-dark(#0072B2,#4FA8E0)"
        ground = f"color-mix(in srgb,{hue} {abs(share) * 45:.0f}%,transparent)"
        plus = "+" if view.signed and not view.centre and value is not None and value > 0 else ""
        shown = "–" if value is None else plus + number(value, 2)
        edge = f";outline:2px dashed {hue}" if _cut(completion, place) else ";opacity:.6" if observed[place] else ""
        said = OBSERVED if observed[place] else _arithmetic(completion, place)
        boxes.append(f'<span style="background:{ground}{edge}" title="{said}">'
                     f'<span class="rl-mono" style="border:0;padding:0">{letters}</span>'
                     f"<small>{shown}</small></span>")
    return f'<div class="rl-strip">{"".join(boxes)}</div>'


def _arithmetic(completion: dict[str, Any], place: int) -> str:
    """The numbers of one token, for its tooltip."""
    parts = [f"token {place + 1}"]
    for view in map(VIEWS.__getitem__, TOLD):
        values = view.values(completion)
        if place < len(values) and (value := values[place]) is not None:
            parts.append(f"{view.label} {number(value, 3)} {view.unit}".strip())
    if side := _cut(completion, place):
        parts.append(f"clipped: ratio too {'high' if side == 'bound' else side}")
    return html.escape(" · ".join(parts))


def _cut(completion: dict[str, Any], place: int) -> str:
    """The side on which the surrogate cuts a token off, or ""; earlier files do not say."""
    side: str = (completion.get("cut") or [""] * (place + 1))[place]
    return side
