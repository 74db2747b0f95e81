"""The tokens of a run for the surrogate explorer: their ratios and advantages, and the run's ε, β and the like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from app import charts
from app.charts import Dot
from app.surrogate.place import KNOBS, SURROGATES
from app.training import files
from labcore.catalog import choices
from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.runs.knob_history import KnobHistory
from labcore.runs.store.rows import Event, RunRow
from labcore.runs.titles import title

MOST = 2000  # tokens that are drawn
NEWEST = 10**9


@dataclass(frozen=True)
class Tokens:
    """The tokens of one step. `knobs` are the values at that step, `surrogate` is the objective that the run maximises,
    and `delta` is TRPO's radius."""

    step: int
    dots: list[Dot]
    knobs: dict[str, float]
    surrogate: str
    delta: float | None = None

    @property
    def thinned(self) -> list[Dot]:
        """At most MOST dots, evenly spread."""
        return self.dots[::-(-len(self.dots) // MOST) or 1]

    @property
    def usual(self) -> float:
        """The median absolute advantage of the tokens whose advantage is not 0; 1 without such tokens."""
        sizes = [abs(dot.advantage) for dot in self.dots if dot.advantage]
        return median(sizes) if sizes else 1.0


def has_ratio(run: RunRow) -> bool:
    """True if the run's surrogate compares the policy with the policy that sampled; unknown for watched runs."""
    if run.spec.kind_row.elsewhere:
        return False
    surrogate = run.spec.knobs.get("surrogate")
    if surrogate is not None:
        return choices.SURROGATE[str(surrogate)].needs_ratio
    return any(panel.startswith(f"{choices.SURROGATE.key}_") for panel in run.spec.row.panels)


def steps_of(run: RunRow) -> list[int]:
    """The steps whose samples are kept, oldest first; some of them may be without ratios."""
    return files.steps_of(run.id, "samples")


def of_run(run: RunRow, events: list[Event], at: int = 0) -> Tokens:
    """The tokens of step `at` (0: the newest), or of the nearest earlier step that has tokens. Raises LabError if the
    run has no ratio, or saved none up to that step."""
    if not has_ratio(run):
        raise LabError(f"{title(run)} learns by {run.spec.row.label}, which has no ratio to an old policy. Choose a "
                       f"run with a tab Surrogate.")
    for step in reversed([step for step in steps_of(run) if step <= (at or NEWEST)]):
        samples = files.read(run.id, "samples", step)
        if samples and (dots := _dots(samples)):
            return _of_samples(run, KnobHistory(run.spec, events).at(step), samples, dots)
    raise LabError(f"{title(run)} has saved no ratios {f'up to step {at:,}' if at else 'yet'}. They appear with its "
                   f"first samples.")


def _dots(samples: Mapping[str, Any]) -> list[Dot]:
    """The dots of a language model's samples, or of a batch of steps in an environment."""
    if found := samples.get("ratios"):
        cut = found.get("cut") or [""] * len(found["ratio"])
        return [Dot(*each) for each in zip(found["ratio"], found["advantage"], cut, strict=True)]
    return charts.token_dots(dict(samples))


def _of_samples(run: RunRow, knobs: Mapping[str, Value], samples: Mapping[str, Any], dots: list[Dot]) -> Tokens:
    own = {key: float(value) for key, value in {**knobs, **samples}.items() if key in KNOBS}
    objective = str(knobs.get("surrogate") or knobs.get("objective") or "")
    bounds = (samples.get("surrogate") or {}).get("bounds")
    if "objective" in knobs and bounds:  # as the updates had them: annealed
        own |= {"clip_low": round(1 - bounds[0], 6), "clip_high": round(bounds[1] - 1, 6)}
    surrogate = {"kl_penalty": "kl_penalised"}.get(objective, objective if objective in SURROGATES else "cpi")
    delta = knobs.get("delta")
    return Tokens(int(samples["step"]), dots, own, surrogate, float(delta) if delta else None)
