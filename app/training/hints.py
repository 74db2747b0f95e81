"""What a run's numbers call for, in a sentence each, while they do. Pure."""

from __future__ import annotations

import html
from collections.abc import Sequence

from app.theme import number
from labcore.catalog.choices import ADVANTAGE
from labcore.spec.run_spec import RunSpec
from labcore.store.rows import Step

MOST_AGREE = 0.5  # share of groups without a gradient
MOVED = 0.05  # a share that rose or fell by more did not do so by chance


def hints(spec: RunSpec, steps: Sequence[Step]) -> list[str]:
    """What holds at the last of `steps`."""
    return [said for said in (_no_gradient(spec, steps), _apart(steps)) if said]


def line(said: Sequence[str]) -> str:
    """The hints as HTML. Its place is kept where there are none, so that nothing below it moves."""
    return f'<div class="rl-hints" role="status">{html.escape(" ".join(said)) or "&nbsp;"}</div>'


def _no_gradient(spec: RunSpec, steps: Sequence[Step]) -> str:
    """Groups whose answers are all right or all wrong: nothing to compare."""
    share = steps[-1].metrics.get("frac_reward_zero_std", 0.0) if steps else 0.0
    compares = "advantage" in spec.knobs and ADVANTAGE[str(spec.knobs["advantage"])].group
    return f"{share:.0%} of the groups agree: no gradient from them.".replace("%", "\u202f%") \
        if compares and share > MOST_AGREE else ""


def _apart(steps: Sequence[Step]) -> str:
    """Pairs that are separated better and better by a model that answers worse and worse."""
    if not steps or "rewards/accuracies" not in steps[-1].metrics:
        return ""
    (pairs, pairs_now), (exact, exact_now) = (_ends(steps, key) for key in ("rewards/accuracies", "exact_match"))
    if not (pairs_now - pairs > MOVED and exact - exact_now > MOVED):
        return ""
    return (f"Pair accuracy rose from {number(pairs)} to {number(pairs_now)} while exact match fell from "
            f"{number(exact)} to {number(exact_now)}: the pairs are separated better, the sampled answers are worse.")


def _ends(steps: Sequence[Step], key: str) -> tuple[float, float]:
    """The first and the last value of a metric; zeros where there is none."""
    first = next((step.metrics[key] for step in steps if key in step.metrics), 0.0)
    return first, next((step.metrics[key] for step in reversed(steps) if key in step.metrics), 0.0)
