"""The rule about several runs: few seeds are no evidence."""

from __future__ import annotations

from collections.abc import Mapping

from labcore.doctor.finding import Finding

KEY = "one_seed"


def few_seeds(seeds: Mapping[str, int], fewest: int) -> Finding | None:
    """`seeds` counts the seeds of each group of runs that differ by their seed only; `fewest` make a comparison."""
    few = {label: count for label, count in seeds.items() if count < fewest}
    if not few:
        return None
    said = ", ".join(f"{label} has {count} seed{'s' if count > 1 else ''}" for label, count in few.items())
    verdict = "One seed is no evidence" if min(few.values()) == 1 else "Too few seeds to compare"
    return Finding(verdict, said, f"At least {fewest} seeds on each side.", rule=KEY, severity="warning")
