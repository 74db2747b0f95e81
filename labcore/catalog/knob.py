"""A knob: one number, switch or choice of a run, declared once.

The form of the page, the command line, the validation, the docs and the contract test all read this
declaration; nothing about a knob is written anywhere else.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from labcore.errors import ECHO, LabError, listed, quoted

Value = bool | int | float | str
Effect = Literal["live", "next batch", "restart"]
Group = Literal["task", "model", "sampling", "reward", "advantage", "clip", "kl", "loss", "optimisation", "memory",
                "evaluation", "other"]
# The groups of a form, in their order.
GROUPS: dict[Group, str] = {
    "task": "Task and data", "model": "Model and prompt", "sampling": "Sampling", "reward": "Reward",
    "advantage": "Advantage and critic", "clip": "Ratio and clip", "kl": "KL and entropy", "loss": "Loss and pairs",
    "optimisation": "Optimisation", "memory": "Memory and speed", "evaluation": "Evaluation", "other": "Other"}

LETTERS = {r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\delta": "δ", r"\varepsilon": "ε", r"\epsilon": "ε",
           r"\eta": "η", r"\lambda": "λ", r"\mu": "μ", r"\pi": "π", r"\rho": "ρ", r"\sigma": "σ", r"\tau": "τ",
           r"\zeta": "ζ", r"\kappa": "κ", r"\nu": "ν", r"\xi": "ξ", r"\phi": "φ", r"\chi": "χ", r"\omega": "ω",
           r"\theta": "θ", r"\psi": "ψ", r"\Psi": "Ψ", r"\Delta": "Δ"}
MOST_LISTED = 9  # names in a sentence
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # UTF-8, and so JSON and the store, has none


@dataclass(frozen=True)
class Knob:
    """One setting of a run.

    `effect` says when a change made during a run counts: at the next optimizer update ("live"), when the next batch is
    sampled ("next batch"), or only in a new run ("restart"). `low`/`high` are the bounds that validation enforces.
    `safe` is the range that usually works. `reach` are the ends of the slider, if they lie beyond `safe` at values that
    do harm. `forkable`: a fork may have another value although a run cannot change it. `annealed`: it falls linearly to
    0 if the run anneals. `here` ("module:function") returns a sentence about the knob on this machine. `before` is the
    value in runs that are older than the knob; the first knobs have none. `source` names the origin of the
    default, if it is not the algorithm's row. `pick` ("module:function") lists the texts that can be chosen; the value
    joins the chosen texts by " + ". `group` is the group of the form that lists the knob. `aliases` are other words by
    which the search finds it, such as its names in other tools.
    """

    key: str
    label: str
    default: Value
    help: str
    effect: Effect = "restart"
    low: float | None = None
    high: float | None = None
    safe: tuple[float, float] | None = None
    symbol: str = ""
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    choices: tuple[str, ...] = ()
    advanced: bool = False
    forkable: bool = False
    annealed: bool = False
    here: str = ""
    before: Value | None = None
    source: str = ""
    pick: str = ""
    group: Group = "other"
    aliases: str = ""
    reach: tuple[float, float] | None = None

    @property
    def type(self) -> type:
        return type(self.default)

    @cached_property
    def sign(self) -> str:
        """The symbol in plain letters, as it stands in a line of text: "ε_low"; empty where there is none."""
        return re.sub(r"\\[A-Za-z]+", lambda match: LETTERS.get(match[0], match[0][1:]), self.symbol).translate(
            str.maketrans("", "", "{}"))

    @property
    def name(self) -> str:
        """The name of the knob beside a value, as "β" in "β 0.2": its sign, or its label if it has no sign.

        CSV, JSON, links and the command line use the key instead.
        """
        return self.sign or self.label

    @property
    def title(self) -> str:
        """The name of the knob on its own, as on a slider or in a table: "KL coefficient β"."""
        return self.label if not self.sign or self.label.endswith(self.sign) else f"{self.label} {self.sign}"

    def matches(self, words: str) -> bool:
        """Search its names, its aliases and its help for each of `words`.

        >>> Knob("group_size", "Group size", 8, "Completions per prompt.", symbol="G", aliases="num_generations"
        ...      ).matches("GROUP prompt")
        True
        """
        text = f"{self.key} {self.label} {self.sign} {self.symbol} {self.aliases} {self.help}".casefold()
        return all(word in text for word in words.casefold().split())

    @property
    def bounds(self) -> str:
        """The bounds of the value, "from 0 to 1"; empty where it has none."""
        written = "{:.0f}" if self.type is int else "{:g}"  # 1e+07 is no way to write a count
        low = "" if self.low is None else f"from {written.format(self.low)} "
        high = "" if self.high is None else f"to {written.format(self.high)}"
        return f"{low}{high}".strip()

    def with_default(self, default: Value, source: str = "", safe: tuple[float, float] | None = None) -> Knob:
        """A copy with another default, such as an algorithm's own, and with the `source` and `safe` range of it."""
        if (self.type, self.default, self.source, None) == (type(default), default, source, safe):
            return self  # most knobs of most rows: thousands of copies would take a fifth of the catalog's loading time
        return replace(self, default=default, source=source, safe=safe or self.safe, reach=None if safe else self.reach)

    def check(self, value: object) -> Value:
        """Return `value` in the knob's type. Raises LabError if the value has the wrong type, is not finite, is out of
        bounds or not a choice."""
        value = self._coerce(value)
        if self.choices and value not in self.choices:
            raise LabError(f"`{self.key}` cannot be {quoted(value)}: {suggestion(value, self.choices)}")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not math.isfinite(value):
                raise LabError(f"`{self.key}` must be a finite number, not {value}: {self._bounds()}.")
            too_low = self.low is not None and value < self.low
            too_high = self.high is not None and value > self.high
            if too_low or too_high:
                raise LabError(f"`{self.key}` is {shown(value)}, outside its bounds: {self._bounds()}.")
        return value

    def parse(self, text: str) -> Value:
        """The value written as `text` on the command line or in a URL."""
        return self.check(text.strip())

    def _coerce(self, value: object) -> Value:
        if self.type is str:
            if isinstance(value, str) and not _HALF_CHARACTER.search(value):
                return value
        elif self.type is bool:
            words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.lower() in words:
                return words[value.lower()]
        elif not isinstance(value, bool):
            number = _number(value)
            if number is not None and self.type is float:
                return number
            if number is not None and (not math.isfinite(number) or number == int(number)):
                return int(number) if math.isfinite(number) else number
        wanted = {str: "a text of whole characters", bool: "on or off", int: "a whole number",
                  float: "a number"}[self.type]
        raise LabError(f"`{self.key}` must be {wanted}, not {quoted(value)}: for example `{self.key}={self.default}`.")

    def _bounds(self) -> str:
        return f"use a value {self.bounds}" if self.bounds else "use any finite value"


def _number(value: object) -> float | None:
    """`value` as a float, or None where it is no number: the caller says so in the knob's words."""
    if not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):  # the latter: a whole number too large for a float
        return None


def shown(value: Value) -> str:
    """A knob's value as a person writes it.

    >>> shown(True), shown(0.001), shown("sort")
    ('on', '0.001', 'sort')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def suggestion(word: object, known: Sequence[str]) -> str:
    """A closing clause for an unknown name: the known one that it is meant for, else the list; of many the nearest."""
    near = difflib.get_close_matches(word[:ECHO], known, n=1) if isinstance(word, str) else []
    if near:
        return f"did you mean {near[0]!r}?"
    nearest = difflib.get_close_matches(str(word)[:ECHO], known, n=len(known), cutoff=0.0) if known else []
    return f"choose one of {listed(known if len(known) <= MOST_LISTED else nearest)}."
