"""A finding of the doctor: a verdict, its evidence, and a fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from labcore.catalog.knob import Value
from labcore.runs.store.rows import SEVERITIES, Severity

__all__ = ["SEVERITIES", "Change", "Finding", "Severity"]


@dataclass(frozen=True)
class Finding:
    """One verdict. `evidence` are the numbers with their steps; `fix` says what to do.

    Where another value of one knob fixes it, `knob` and `value` are these. `rule` is the key of the rule that made it.
    A rule's function may give its finding a milder `severity` than the rule has. `began` is the step at which it went
    wrong, where the rule knows it; else 0.
    """

    verdict: str
    evidence: str
    fix: str
    knob: str = ""
    value: Value | None = None
    rule: str = ""
    severity: Severity = SEVERITIES[0]
    began: int = 0

    @property
    def text(self) -> str:
        """Verdict and evidence as one line."""
        return f"{self.verdict}: {self.evidence}"

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of the event of its beginning; `of` reads it back."""
        return asdict(self) | {"holds": True, "text": self.text}

    @staticmethod
    def of(payload: Mapping[str, Any]) -> Finding:
        """The finding in an event's payload."""
        return Finding(**{key: payload[key] for key in Finding.__dataclass_fields__ if key in payload})


@dataclass(frozen=True)
class Change:
    """At `step` the finding of a rule began (`finding`), or ended (`finding` is None)."""

    step: int
    rule: str
    finding: Finding | None = field(default=None)


# ---------------------------------------------------------------- seeds
# The rule about several runs: few seeds are no evidence.

KEY = "one_seed"


def few_seeds(seeds: Mapping[str, int], fewest: int) -> Finding | None:
    """`seeds` counts the seeds of each group of runs that differ by their seed only; `fewest` make a comparison."""
    few = {label: count for label, count in seeds.items() if count < fewest}
    if not few:
        return None
    said = ", ".join(f"{label} has {count} seed{'s' if count > 1 else ''}" for label, count in few.items())
    verdict = "One seed is not enough to compare" if min(few.values()) == 1 else "Too few seeds to compare"
    return Finding(verdict, said, f"Run at least {fewest} seeds on each side.", rule=KEY, severity="warning")
