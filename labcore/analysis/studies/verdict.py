"""Judge a claim by its runs: whether each contrast lies in the claimed region, by `labcore.analysis.estimate`.

The deciding contrasts of a study share 5 % of error between them, so that all of their intervals hold together with
95 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from labcore.analysis.estimate import Estimate, level_of, seeds_needed, within
from labcore.analysis.studies.study import Study

Verdict = Literal["agrees", "disagrees", "unclear"]
WORDS: dict[Verdict, str] = {"agrees": "agrees", "disagrees": "disagrees", "unclear": "cannot tell at this scale"}
_OF_TRUTH: dict[bool | None, Verdict] = {True: "agrees", False: "disagrees", None: "unclear"}


def interval_text(found: Estimate, digits: int) -> str:
    """
    >>> interval_text(Estimate(-0.5, -0.75, 0.25, 3), 2), interval_text(Estimate(4.0, 4.0, 4.0, 3), 0)
    ('−0.50 [−0.75, 0.25]', '4')
    """
    said = f"{found.mean:z.{digits}f}"
    if found.low is not None and found.low != found.high:
        said += f" [{found.low:z.{digits}f}, {found.high:z.{digits}f}]"
    return said.replace("-", "−")


def judged(found: Estimate, low: float, high: float) -> Verdict:
    """Whether a contrast lies in the region that the claim names."""
    return _OF_TRUTH[within(found, low, high)]


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a claim with several parts: it agrees if all parts do, and disagrees if one does."""
    found = set(verdicts)
    return "disagrees" if "disagrees" in found else "agrees" if found == {"agrees"} else "unclear"


@dataclass(frozen=True)
class Need:
    """The seeds that would decide a claim, and the settings that need them; None if that is more than
    `labcore.analysis.estimate.MOST`."""

    seeds: int | None
    settings: tuple[str, ...]


def needed(study: Study, findings: Mapping[str, tuple[Estimate, Verdict]]) -> Need | None:
    """The seeds that would decide the claim of a study, estimated from its `findings`; None if it is decided, or if
    more seeds cannot make it agree."""
    open_ones = [each for each in study.deciding if findings[each.label][1] == "unclear"]
    if together(findings[each.label][1] for each in study.deciding) != "unclear":
        return None
    level = level_of(len(study.deciding))
    seeds = [seeds_needed(findings[each.label][0], each.low, each.high, len(each.weights), level) for each in open_ones]
    labels = {label for each in open_ones for label in each.weights}
    settings = tuple(setting.label for setting in study.settings if setting.label in labels)
    return Need(None if None in seeds else max(each for each in seeds if each is not None), settings)
