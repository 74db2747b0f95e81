"""The summary of an algorithm as far as it is true of a run's own knobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.choices import SURROGATE
from labcore.catalog.knob import Value

WIDE = 10.0  # an upper clip bound that no ratio of a sound run meets
_SENTENCE = re.compile(r"(?<=[.]) (?=[A-Z])")


def summary_of(row: Algorithm, values: Mapping[str, Value]) -> str:
    """The row's summary without the sentences on a clip or a KL that the `values` have switched on, off or elsewhere;
    empty where none is left."""
    usual = {knob.key: knob.default for knob in row.knobs}
    own = usual | dict(values)
    changed = [word for word, how in _HOW.items() if how(own) != how(usual)]
    return " ".join(each for each in _SENTENCE.split(row.summary) if not any(re.search(word, each) for word in changed))


def _clips(values: Mapping[str, Value]) -> bool:
    """True if a clip bounds the ratio: not one whose bounds are never met."""
    surrogate = values.get("surrogate")
    if "clip_low" not in values or (surrogate is not None and not SURROGATE[str(surrogate)].cut):
        return False
    return float(values["clip_low"]) < 1 or float(values["clip_high"]) < WIDE


def _kl(values: Mapping[str, Value]) -> Value:
    """The place of the KL; with β = 0 there is none."""
    return values.get("kl_placement", "off") if values.get("beta") else "off"


_HOW: Mapping[str, Callable[[Mapping[str, Value]], Value]] = {r"\b[Cc]lip": _clips, r"\bKL\b": _kl}
