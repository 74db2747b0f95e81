"""Early stopping of a sweep by asynchronous successive halving (ASHA): which runs continue at which steps.

At `min_steps`, and each time that it has made `factor` times as many, a run continues if it is among the best of those
that have reached that step by then, 1 of `factor`; no run waits for others. The rule is Optuna's
`SuccessiveHalvingPruner`. Its inputs are kept as events `rung` of the runs. Replayed in their order they give the same
decisions, so decisions survive every process.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020. Imports Optuna only to decide.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from statistics import fmean

from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.errors import LabError, quoted
from labcore.runs.files.untrusted import json_of
from labcore.runs.spec.run_spec import RunSpec

FACTORS = (2, 10)  # the bounds of the reduction factor
LAST = 5  # steps whose rows count for a decision, as for a run's final value (`compare.statistics.LAST`)
MISSING = ("Early stopping needs Optuna, which is not installed: run pip install -r requirements-sweeps.txt, or start "
           "the sweep without early stopping.")
_SHARES = ("half", "third", "quarter", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class Halving:
    """The early stopping of a sweep: its metric, the step of the first decision, and `factor`: one in `factor` runs
    continues."""

    metric: str
    min_steps: int
    factor: int = 3

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Halving:
        return Halving(**json_of(text))

    def rungs(self, steps: int) -> list[int]:
        """The steps at which a run of so many steps is judged: before its end.

        >>> Halving("reward", 4, 3).rungs(40)
        [4, 12, 36]
        """
        found = []
        step = self.min_steps
        while step < steps:
            found.append(step)
            step *= self.factor
        return found

    def words(self) -> str:
        """The rule in a sentence."""
        return (f"Successive halving by {METRICS[self.metric].inline}: after {self.min_steps:,} steps, again after "
                f"{self.min_steps * self.factor:,} and so on, a run continues only if it is among the best "
                f"{_share(self.factor)} of the runs that have reached that step by then.")

    def verdict(self, step: int, value: float, of: int, kept: bool, over: bool) -> str:
        """The decision on a run that was at `value` after `step` steps, one `of` so many. `over`: it finished."""
        best = (f"among the best {_share(self.factor)} of {of:,} runs" if of >= self.factor else
                f"the best of {of:,} runs" if of > 1 else "the first")
        begin = "Finished before it was judged" if over else "Continues" if kept else "Stopped early"
        return (f"{begin} at step {step:,}: its {METRICS[self.metric].inline} {value:z.3g} "
                f"{'is' if kept else 'is not'} {best} at this step.")


def _share(factor: int) -> str:
    return _SHARES[factor - 2]


def metrics_of(spec: RunSpec) -> list[str]:
    """The metrics of a run's charts that have a better direction, the headline metric first."""
    shown = [key for panel in spec.row.charts(spec.task_row) for key in PANELS[panel].metrics]
    return [key for key in dict.fromkeys(shown) if METRICS[key].better and METRICS[key].about == "training"
            and METRICS[key].kind in ("", spec.kind)]


def usual(spec: RunSpec) -> Halving:
    """The suggested early stopping of a sweep: two judgements, the last one well before their end."""
    return Halving(next(iter(metrics_of(spec)), ""), -(-spec.steps // 9))


def check(how: Halving, specs: Sequence[RunSpec]) -> None:
    """Raise LabError if these runs cannot be stopped early by `how`, or Optuna is not installed."""
    low, high = FACTORS
    if not low <= how.factor <= high:
        raise LabError(f"The reduction factor of early stopping is {how.factor}: give a whole number from {low} to "
                       f"{high}, for example 3.")
    shortest = min((spec.steps for spec in specs), default=0)
    if not 1 <= how.min_steps < shortest:
        raise LabError(f"Early stopping begins after {how.min_steps:,} steps, and the runs have {shortest:,}: let it "
                       "begin after one step at least, and before their end.")
    for spec in specs:
        if how.metric not in (known := metrics_of(spec)):
            raise LabError(f"Early stopping cannot use {quoted(how.metric)} of {spec.row.label}: choose "
                           f"{', '.join(known[:4]) or 'another algorithm, whose charts have a better direction'}.")
    if lacks_optuna():
        raise LabError(MISSING)


def lacks_optuna() -> bool:
    """True if Optuna, which makes the decisions, is not installed."""
    return find_spec("optuna") is None


def value_at(step: int, steps: Sequence[int], values: Sequence[float | None]) -> float | None:
    """The value by which a run is judged at a step: the mean of the last row up to it that has the metric and of those
    in the LAST steps up to that; None of none.

    >>> value_at(3, [1, 2, 3, 4], [0.5, None, 1.5, 9.0]), value_at(25, [1, 10, 20], [0.0, 1.0, 2.0])
    (1.0, 2.0)
    """
    found = [(at, value) for at, value in zip(steps, values, strict=True) if at <= step and value is not None]
    return fmean(value for at, value in found if at > found[-1][0] - LAST) if found else None


class Rungs:
    """Optuna's pruner over the runs of a sweep. `came` must be called in the order in which the runs reached their
    rungs."""

    def __init__(self, how: Halving) -> None:
        import optuna  # here, because reading a sweep does not need it

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            direction="minimize" if METRICS[how.metric].better == "lower" else "maximize",
            sampler=optuna.samplers.RandomSampler(seed=0),
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=how.min_steps, reduction_factor=how.factor))
        self._trials: dict[str, optuna.Trial] = {}
        self._came: dict[int, int] = {}  # step -> how many runs

    def came(self, run_id: str, step: int, value: float) -> tuple[bool, int]:
        """(True if a run that has reached a rung continues, how many have reached it with this one)."""
        if run_id not in self._trials:
            self._trials[run_id] = self._study.ask()
        trial = self._trials[run_id]
        trial.report(value, step)
        self._came[step] = self._came.get(step, 0) + 1
        return not trial.should_prune(), self._came[step]
