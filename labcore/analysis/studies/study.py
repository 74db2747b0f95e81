"""A study: a claim, the runs that test it, and the contrasts between their settings that decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from labcore.catalog.knob import Value
from labcore.catalog.metrics import METRICS

SEEDS = (0, 1, 2)
REWARD_MODEL, TEACHER = "reward_model", "teacher"  # knobs that name a run to learn from


@dataclass(frozen=True)
class Measure:
    """One number of a run.

    `how` names the function of `labcore.analysis.studies.result` that computes it. For a `metric` this is the mean of
    its last `rows` rows ("last"), of all rows ("mean"), or the mean of the last rows minus that of the first
    ("change"). Only "top_mass" uses `model` and `top`.
    """

    how: str = "last"
    metric: str = "reward"
    rows: int = 10
    model: str = ""
    top: int = 1

    @property
    def unit(self) -> str:
        """The unit of the number; empty for a count."""
        if self.how == "step_seconds":
            return "s/step"
        own = {"models": "networks", "top_mass": "probability", "wrong_length": "tokens", "solved": "share"}
        return own.get(self.how) or METRICS[self.metric].unit

    @property
    def kind(self) -> str:
        """The quantity and its unit: numbers of one kind can be drawn on one scale."""
        own = {"step_seconds": "Processor time, s/step", "models": "Networks in memory", "top_mass": "Probability mass",
               "wrong_length": "Length, tokens", "solved": "Right answers, share"}
        change = "Change of " if self.how == "change" else ""  # of a reward model's score, say, which has no bounds
        return own.get(self.how) or change + METRICS[self.metric].axis

    @property
    def digits(self) -> int:
        return {"models": 0, "step_seconds": 4, "wrong_length": 2}.get(self.how, METRICS[self.metric].digits)

    @property
    def words(self) -> str:
        """The measure in words: "Reward, mean of the last 10 steps"."""
        if self.how == "step_seconds":
            return "Fastest of a few steps, processor time"
        if self.how == "wrong_length":
            return f"Length of wrong completions in the samples of the last {self.rows} steps"
        if self.how == "models":
            return "Networks in memory, including the reward model"
        if self.how == "top_mass":
            return f"Mass of the likeliest {f'{self.top} tokens' if self.top > 1 else 'token'} after the first position"
        if self.how == "solved":
            return "Right answers of the trained policy to 1,024 prompts of the task"
        said = {"last": f"mean of the last {self.rows} steps", "mean": "mean of all steps",
                "change": f"last {self.rows} steps − first {self.rows}"}[self.how]
        return f"{METRICS[self.metric].label}, {said}"


@dataclass(frozen=True)
class Setting:
    """Runs that differ by their seed only. `task` empty: the study's. `members`: runs of the study's own that they
    learn from, which are trained first: reward models that give the reward, or the teacher."""

    label: str
    algorithm: str
    knobs: Mapping[str, Value] = field(default_factory=dict)
    task: str = ""
    members: int = 0


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of the settings' means, and the region `low` to `high` in which the claim says that it lies.

    The edges are in the unit of `measure` and do not belong to the region. A contrast that does not decide is only
    shown.
    """

    label: str
    weights: Mapping[str, float]
    measure: Measure = field(default_factory=Measure)
    low: float = -inf
    high: float = inf
    decides: bool = True

    @property
    def region(self) -> str:
        """The region of the claim in words: "above 0", "below 0.05", "between 3.5 and 4.5"."""
        low, high = (f"{edge:g}".replace("-", "−") for edge in (self.low, self.high))
        if isfinite(self.low) and isfinite(self.high):
            return f"between {low} and {high}"
        return f"above {low}" if isfinite(self.low) else f"below {high}"


@dataclass(frozen=True)
class Study:
    """A row of the table. `setting` describes the runs in words; all `settings` share the `knobs`.

    `asks_model`: the user chooses the pretrained model of all runs, `model`; without it the runs have the usual model.
    `scorers` is the number of runs that are trained first, with the seeds 0, 1, …, by the algorithm `scorer` on the
    model `scorer_model` (empty: the usual one). Settings with `members` name them in the knob `scorer_knob`.
    """

    key: str
    title: str
    claim: str
    source: str
    setting: str
    settings: Sequence[Setting]
    contrasts: Sequence[Contrast]
    task: str = "sort"
    steps: int = 40
    knobs: Mapping[str, Value] = field(default_factory=dict)
    scorers: int = 0
    scorer: str = "reward_model"
    scorer_steps: int = 0
    scorer_model: str = ""
    scorer_knob: str = REWARD_MODEL
    scorer_knobs: Mapping[str, Value] = field(default_factory=dict)
    winner: str = ""  # the setting whose run with the first seed is kept as a capsule
    asks_model: bool = False
    model: str = ""
    data: str = ""  # the task's data file, in this folder
    seeds: tuple[int, ...] = SEEDS

    @property
    def first(self) -> str:
        """The runs that are trained first, in words."""
        return {REWARD_MODEL: "reward models", TEACHER: "teacher"}[self.scorer_knob]

    @property
    def on(self) -> str:
        """The model of its runs, in words."""
        return self.model or ("a pretrained model of yours" if self.asks_model else "the tiny model")

    @property
    def deciding(self) -> list[Contrast]:
        return [contrast for contrast in self.contrasts if contrast.decides]
