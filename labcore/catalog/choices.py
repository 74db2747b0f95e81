"""The five choices that make an online policy-gradient algorithm, and the functions they name.

    L(θ) = agg_mask[ −S(ρ_t(θ), Â_t) + β·KL_t ]

Each choice's key is the name of a pure function in the module of `labcore.maths` given by its family. A
function asks for what it needs by its parameter names (rewards, values, completion_mask, clip_low …).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labcore.catalog.knob import suggestion
from labcore.errors import LabError


@dataclass(frozen=True)
class Choice:
    """One member of a family.

    `level` says what an advantage is made from: one reward per completion ("sequence") or one per token
    ("token"). `group` marks those that compare completions of one prompt; `critic` those that need values.
    `needs` are the knobs that its function asks for: only algorithms that have them can choose it.
    """

    key: str
    label: str
    latex: str
    level: Literal["sequence", "token"] = "token"
    group: bool = False
    critic: bool = False
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """One of the five choices: its module under `labcore.maths` and its members."""

    key: str
    label: str
    module: str
    members: tuple[Choice, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.key for member in self.members)

    def __getitem__(self, key: str) -> Choice:
        for member in self.members:
            if member.key == key:
                return member
        raise LabError(f"There is no {self.label} {key!r}: {suggestion(key, self.names)}")


ADVANTAGE = Family("advantage", "advantage", "advantages", (
    Choice("batch_mean", "reward − batch mean", r"R - \bar R", "sequence"),
    Choice("leave_one_out", "reward − mean of the others in its group",
           r"R_i - \tfrac{1}{G-1}\textstyle\sum_{j\ne i}R_j", "sequence", group=True),
    Choice("group_mean", "reward − group mean", r"R - \bar R_g", "sequence", group=True),
    Choice("group_standardised", "reward − group mean, over the group's spread",
           r"\frac{R - \bar R_g}{s_g + \epsilon}", "sequence", group=True),
    Choice("gae", "generalised advantage estimate with a critic",
           r"\textstyle\sum_{l}(\gamma\lambda)^l\delta_{t+l}", critic=True, needs=("gamma", "gae_lambda")),
))

RATIO = Family("ratio", "ratio", "ratios", (
    Choice("none", "none: the score function on policy", "1"),
    Choice("token", "per token", r"\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}"),
    Choice("sequence_sum", "whole sequence", r"\prod_t\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}", "sequence"),
    Choice("sequence_mean", "whole sequence, geometric mean",
           r"\Big(\prod_t\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}\Big)^{1/T}", "sequence"),
))

SURROGATE = Family("surrogate", "surrogate", "surrogates", (
    Choice("score_function", "advantage × log-probability", r"\hat A\,\log\pi_\theta"),
    Choice("clip", "clipped", r"\min\big(\rho\hat A,\ \operatorname{clip}(\rho, 1-\varepsilon_{low}, "
           r"1+\varepsilon_{high})\hat A\big)", needs=("clip_low", "clip_high")),
))

KL_ESTIMATOR = Family("kl_estimator", "KL estimator", "kl", (
    Choice("k1", "k1: log-ratio", r"\log\tfrac{\pi}{\pi_{ref}}"),
    Choice("k2", "k2: half the squared log-ratio", r"\tfrac12\log^2\tfrac{\pi}{\pi_{ref}}"),
    Choice("k3", "k3: never negative", r"\tfrac{\pi_{ref}}{\pi} - 1 - \log\tfrac{\pi_{ref}}{\pi}"),
    Choice("ratio_k3", "ratio × k3: its gradient is that of the KL",
           r"\rho\big(\tfrac{\pi_{ref}}{\pi} - 1 - \log\tfrac{\pi_{ref}}{\pi}\big)"),
))

AGGREGATION = Family("aggregation", "aggregation", "aggregation", (
    Choice("sequence_mean_token_mean", "mean over sequences of token means",
           r"\tfrac1B\sum_i\tfrac1{T_i}\sum_t"),
    Choice("token_mean", "mean over all tokens of the update", r"\tfrac1{\sum_i T_i}\sum_i\sum_t"),
    Choice("constant_length", "sum over tokens, divided by B × the length limit",
           r"\tfrac1{B\,L_{max}}\sum_i\sum_t"),
    Choice("sequence_mean_token_sum", "mean over sequences of token sums", r"\tfrac1B\sum_i\sum_t"),
))

PREFERENCE_LOSS = Family("preference_loss", "preference loss", "preferences", (
    Choice("sigmoid", "DPO: logistic loss of the difference of log-ratios", r"-\log\sigma(\beta\Delta)", "sequence",
           needs=("beta",)),
))

FAMILIES = (ADVANTAGE, RATIO, SURROGATE, KL_ESTIMATOR, AGGREGATION, PREFERENCE_LOSS)

KL_PLACEMENTS = ("reward", "loss", "off")
