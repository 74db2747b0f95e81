"""The doctor's rules: a table of small pure functions, and when each is applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from labcore.analysis.doctor import completions, signal, updates
from labcore.analysis.doctor.finding import SEVERITIES, Finding, Severity
from labcore.analysis.doctor.run_view import RunView


@dataclass(frozen=True)
class Rule:
    """`judge` looks once each metric of `needs` has `after` values; it may give its finding a milder severity.

    `reads` are further metrics that it looks at where they are logged. Where the run has knobs of `eased_by` and
    none of them is lower than when it began, a finding lasts longer: what made it is there still. `opens` is after how
    many looks in a row a finding is made. A rule that is `urgent` looks at every row.
    """

    key: str
    severity: Severity
    needs: tuple[str, ...]
    after: int
    judge: Callable[[RunView], Finding | None]
    reads: tuple[str, ...] = ()
    eased_by: tuple[str, ...] = ()
    opens: int = 2
    urgent: bool = False

    def look(self, view: RunView) -> Finding | None:
        """Apply the rule: its finding, under its own key."""
        if any(key not in view or view[key].count < self.after for key in self.needs):
            return None
        found = self.judge(view)
        if found is None:
            return None
        return replace(found, rule=self.key, severity=max(self.severity, found.severity, key=SEVERITIES.index))


NOT_FINITE = "not_finite"
_SUCCESS = ("reward", "exact_match")
_WARM_UP = 20  # steps in which a run finds its footing: Adam's averages fill, easy answers are learnt

# What is not finite comes first: nothing is learnt from there on. Then a fall of the reward: it names a step. Then a
# cause before its consequences: a policy that was thrown far off may have no signal and no entropy left.
RULES = (
    Rule(NOT_FINITE, "problem", (), 0, updates.not_finite, updates.LOSSES, opens=1, urgent=True),
    Rule("reward_fell", "problem", ("reward",), 10, signal.reward_fell, ("reward_std",), opens=1),
    Rule("step_too_big", "problem", (), 0, updates.step_too_big, ("clip_frac/region", "kl", "kl/step", "grad_norm"),
         updates.STEP_SIZE),
    Rule("no_signal", "problem", ("reward", "reward_std"), 10, signal.no_signal, (
        "frac_reward_zero_std", "exact_match", "mean_token_accuracy")),
    Rule("reward_hacking", "problem", ("reward",), 30, signal.reward_hacking,
         ("reward_std", *(gold for _, gold in signal.PROXIES))),
    Rule("kl_runaway", "problem", ("kl",), 10, updates.kl_runaway, ("exact/distance",)),
    Rule("entropy_collapse", "problem", ("entropy",), _WARM_UP, signal.entropy_collapse, _SUCCESS),
    Rule("answers_worse", "problem", ("rewards/accuracies", "exact_match"), 3, signal.answers_worse),
    Rule("overfitting", "warning", ("held_out/rows",), 3, completions.overfits,
         ("mean_token_accuracy", *completions.LOSS, *(key for pair in completions.SHARES for key in pair)),
         ("learning_rate",)),
    Rule("zero_variance", "warning", ("frac_reward_zero_std",), 10, signal.zero_variance, (*_SUCCESS, "reward_std")),
    Rule("unscored", "warning", ("frac_reward_unscored",), 1, signal.unscored, opens=1, urgent=True),
    Rule("precision_mismatch", "warning", (), 0, updates.precision_mismatch, (
        "sampling/logp_difference", "ratio/max")),
    Rule("stale", "warning", ("sampling/effective_frac", "sample_age/mean"), updates.FEW, updates.stale,
         ("clip_frac/region",), ("staleness", "replay_share", "learning_rate")),
    Rule("displacement", "warning", ("logps/chosen", "logps/rejected"), _WARM_UP, completions.displacement, _SUCCESS),
    Rule("critic_lags", "warning", ("explained_variance",), 30, updates.critic_lags, (*_SUCCESS, "episode_return")),
    Rule("truncation", "warning", ("completions/truncated_frac",), _WARM_UP, completions.truncation,
         ("mean_token_accuracy",)),
    Rule("length_bias", "warning", ("completions/mean_length",), 30, completions.length_bias, _SUCCESS),
    Rule("clip_cannot_act", "note", ("clip_frac/region",), 1, updates.clip_cannot_act),
    Rule("tiny_updates", "note", ("clip_frac/region", "ratio/max"), updates.ENOUGH_TINY, updates.tiny_updates,
         (*_SUCCESS, "reward_std", "frac_reward_zero_std", "exact/distance")),
    Rule("loss_is_zero", "note", ("loss", "grad_norm"), 10, updates.loss_is_zero,
         ("reward", "rewards/accuracies", "clip_frac/region")),
)
URGENT = tuple(rule for rule in RULES if rule.urgent)
READS = frozenset(key for rule in RULES for key in (*rule.needs, *rule.reads))


def ordered(findings: list[Finding]) -> list[Finding]:
    """The most severe first; within a severity in the order of the table."""
    places = {rule.key: place for place, rule in enumerate(RULES)}
    return sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), places.get(each.rule, len(places))))
