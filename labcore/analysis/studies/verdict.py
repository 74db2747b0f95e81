"""Judge a claim by its runs: whether each contrast lies in the claimed region, by `labcore.analysis.estimate`.

The deciding contrasts of a study share 5 % of error between them, so that all of their intervals hold together with
95 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from labcore.analysis.estimate import Estimate, within

Verdict = Literal["agrees", "disagrees", "unclear"]
WORDS: dict[Verdict, str] = {"agrees": "agrees", "disagrees": "disagrees", "unclear": "cannot tell at this scale"}
_OF_TRUTH: dict[bool | None, Verdict] = {True: "agrees", False: "disagrees", None: "unclear"}


def interval_text(found: Estimate, digits: int) -> str:
    """
    >>> interval_text(Estimate(-0.5, -0.75, 0.25, 3), 2), interval_text(Estimate(4.0, 4.0, 4.0, 3), 0)
    ('−0.50 [−0.75, 0.25]', '4')
    """
    said = f"{found.mean:.{digits}f}"
    if found.low is not None and found.low != found.high:
        said += f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
    return said.replace("-", "−")


def judged(found: Estimate, low: float, high: float) -> Verdict:
    """Whether a contrast lies in the region that the claim names."""
    return _OF_TRUTH[within(found, low, high)]


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """That of a claim with several parts: it agrees where all do, and disagrees where one does."""
    found = set(verdicts)
    return "disagrees" if "disagrees" in found else "agrees" if found == {"agrees"} else "unclear"
