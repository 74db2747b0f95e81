"""Rules about the learning signal: whether there is any, and whether the reward still measures the goal."""

from __future__ import annotations

from typing import Any

from labcore.analysis.doctor.finding import Finding
from labcore.analysis.doctor.run_view import BLOCK, RECENT, RunView, number, share
from labcore.catalog.choices import PREFERENCE_LOSS, losses_of
from labcore.catalog.knob import shown
from labcore.catalog.llm.difficulty import by_difficulty
from labcore.catalog.reward_terms import scorers

MOST_GROUPS = 0.5  # half of the batch gives no gradient: a starting guess
# Where four of five answers are right, groups of eight agree because they are right: that is success.
MOSTLY_RIGHT = 0.8
# In at most one group of 32 (the default batch) do rewards differ: too few to learn from.
NO_GROUPS = 0.97
# Ten times the standard error of a mean over 3 × 256 completions, for rewards between 0 and 1: a starting guess.
FELL = 0.2
FELL_NOISE = 4.0  # standard deviations of one step's reward: the best of many blocks is luck in part
FELL_BY = 3  # rows of which the newest mean is made
CHANGE_WITHIN = 10  # steps after which a changed knob no longer counts as the cause of a fall
FLAT_STD = 1e-3  # reward: below one completion in a million that differs
# Ten per cent of the entropy at the start: the doctor's usual mark of a collapse; Cui et al. 2025 (arXiv:2505.22617)
# find that nearly all reward is gained before.
ENTROPY_LEFT = 0.1
STILL_GAINS = 0.02  # reward or share of accepted completions that rose by more over ten steps still learns
# Of rewards between 0 and 1, for which twice the standard error of a difference of two means over 10 × 256 completions
# is 0.03. Rewards that vary more are measured by their spread.
GOLD_FELL = 0.05
PROXY_ROSE = 0.02
FIRST_BETA = 0.05  # reward/nat: a KL penalty where there was none
GOLD_NOISE = 5.0  # standard deviations of the gold reward's means over ten steps: the best of many is luck in part
# What is trained on, and what it stands for. The first pair of which both are logged counts.
PROXIES = (("reward", "reward/gold"), ("reward", "reward/verifier"), ("reward", "exact_match"))
# Evaluations of 256 prompts have a standard error of 0.03 each, so their difference one of 0.04.
ANSWERS_FELL = 0.1
PAIRS_ROSE = 0.05


def zero_variance(view: RunView) -> Finding | None:
    """Groups whose answers all have one reward, while many answers are still wrong."""
    if not _compares_groups(view):
        return None
    found = view["frac_reward_zero_std"].mean()
    mostly_right = view.success is not None and MOSTLY_RIGHT <= view.success.mean() <= 1
    if mostly_right or not view.above(found, MOST_GROUPS):
        return None
    if found >= NO_GROUPS and "reward_std" in view:
        return None  # `no_signal` says more
    return Finding("Most groups give no gradient", f"{share(found)} of the groups have one reward for all their "
                   f"completions in {view.when('frac_reward_zero_std')}",
                   "Use larger groups, prompts of medium difficulty, or a higher temperature.",
                   **view.scaled("group_size", 2))


def unscored(view: RunView) -> Finding | None:
    """Prompts of which no completion was scored by the user's functions or the judge, in the newest rows."""
    seen = [(step, value) for step, value in [*view["frac_reward_unscored"].recent][-BLOCK:] if value]
    if not seen:
        return None
    step, value = seen[-1]
    return Finding("Prompts without a reward", f"{scorers(view.knobs)} scored no completion of {share(value)} of "
                   f"the prompts at step {step:,}, so these prompts teach nothing", "Return a number instead of None.")


def _compares_groups(view: RunView) -> bool:
    """True if a group of equal rewards gives no gradient: not where the baseline is not the group's, and not in the
    metrics of a tool whose share is that of a whole batch, 0 or 1."""
    of_batch = not view.knobs and set(view["frac_reward_zero_std"].last(RECENT)) <= {0.0, 1.0}
    return view.by_group and not of_batch


def reward_fell(view: RunView) -> Finding | None:
    """The reward is far below its best value. The finding names the knob that was changed just before. Not for runs
    that learn pairs, where the reward is only measured and `answers_worse` looks at it, nor while a curriculum moves to
    harder prompts, where the reward is meant to fall."""
    reward = view["reward"]
    if view.supervised or "rewards/accuracies" in view or by_difficulty(view.knobs):
        return None
    (_, best), now = reward.peak(), reward.mean(FELL_BY)
    # Rewards may have any scale: without a spread, compare with the total change.
    scale = max(1.0, 2 * view["reward_std"].mean(RECENT) if "reward_std" in view else best - reward.low)
    if not view.above(best - now, max(FELL * scale, FELL_NOISE * reward.jitter)):
        return None
    middle = (best + now) / 2
    began, about = reward.below_since(middle), reward.block_above(middle)
    fell = f"{number(best)} → {number(now)}, from " + (f"step {began:,} on" if began else f"about step {about:,} on")
    change = view.change_before(began, CHANGE_WITHIN) if began else None
    if change is None:
        began = began or about
        return Finding("The reward fell", fell, f"Fork from before step {began:,} with a lower learning rate.",
                       began=began, **view.scaled("learning_rate", 1 / 3))
    knob = view.declared[change.knob]
    return Finding("The reward fell", f"{fell}, after {knob.name} {shown(change.before)} → {shown(change.after)} at "
                   f"step {change.step:,}", f"Fork from before step {change.step:,}, without this change.",
                   began=change.step, **view.fix(change.knob, change.before))


def no_signal(view: RunView) -> Finding | None:
    """Every completion scores the same: all wrong, or all right."""
    if view.supervised:
        return None
    groups = ("frac_reward_zero_std" in view and _compares_groups(view)
              and view["frac_reward_zero_std"].mean() >= NO_GROUPS)
    if not groups and view["reward_std"].mean() > FLAT_STD:
        return None
    level, when = view["reward"].mean(), view.when("reward")
    if view.solved and ("exact_match" in view or view.knobs):  # another tool's reward of 1 may be any
        return Finding("Nothing is left to learn", f"all completions of a prompt score the same, {number(level)} on "
                       f"average in {when}", "Use harder prompts, or stop the run.", severity="note")
    evidence = f"all completions of a prompt score the same, {number(level)} on average in {when}"
    if view.by_group and level > 0:  # some answers are right: a larger group may have both kinds
        return Finding("No learning signal", evidence, "Train the base longer by SFT, or use easier prompts or larger "
                       "groups.",
                       **view.scaled("group_size", 2))
    return Finding("No learning signal", evidence, "Train the base longer by SFT, or use easier prompts.")


def entropy_collapse(view: RunView) -> Finding | None:
    """Hardly any entropy is left, and the reward has stopped rising before the task is solved."""
    series, success = view["entropy"], view.success
    if view.solved or not view.below(series.mean(), ENTROPY_LEFT * series.start):
        return None
    if success is not None and success.mean() - success.mean(before=10) > STILL_GAINS:
        return None
    return Finding("The entropy collapsed", f"{number(series.start)} → {number(series.mean())} nats/token by step "
                   f"{view.memory.step:,}, and the reward no longer rises", "Use an entropy bonus, a higher upper "
                   "clip or a higher temperature.",
                   **(view.scaled("entropy_coef", 2) or view.fix("entropy_coef", 0.01)))


def reward_hacking(view: RunView) -> Finding | None:
    """The reward that is optimised rises while the reward that it stands for falls."""
    pair = next((pair for pair in PROXIES if pair[0] in view and pair[1] in view), None)
    if pair is None or not view[pair[1]].blocks:
        return None
    proxy, gold = (view[key] for key in pair)
    step, best = gold.peak()
    fell, rose = best - gold.mean(), proxy.mean() - proxy.at(step)
    scale = max(1.0, 2 * view["reward_std"].mean()) if "reward_std" in view else 1.0
    if not (view.above(fell, max(GOLD_FELL * scale, GOLD_NOISE * gold.noise)) and view.above(rose, PROXY_ROSE * scale)):
        return None
    return Finding("Reward hacking", f"since step {step:,} the reward rose {number(proxy.at(step))} → "
                   f"{number(proxy.mean())}, {_name(pair[1])} fell {number(best)} → {number(gold.mean())}",
                   "Stay closer to the reference, stop at the best step, or fix the reward.", **stronger_kl(view))


def answers_worse(view: RunView) -> Finding | None:
    """The model separates pairs better and better, and its own answers get worse."""
    pairs, exact = view["rewards/accuracies"], view["exact_match"]
    first, last = exact.start if exact.blocks else exact.last(40)[0], exact.mean(2)
    rose = pairs.mean() - pairs.start
    if not (view.above(first - last, ANSWERS_FELL) and view.above(rose, PAIRS_ROSE)):
        return None
    return Finding("The margin grows, but the answers get worse", f"pair accuracy {number(pairs.start)} → "
                   f"{number(pairs.mean())}, the share of accepted completions {number(first)} → {number(last)} by "
                   f"step {view.memory.step:,}", **closer(view))


def closer(view: RunView) -> dict[str, Any]:
    """The fix and its knob where preference pairs lead too far from the reference. β holds the policy at the reference
    only in losses that have one."""
    acting = [loss.reference for loss in map(PREFERENCE_LOSS.__getitem__, losses_of(view.knobs))
              if "beta" in loss.needs]
    if all(acting):
        return {"fix": "Stay closer to the reference, or add an SFT term.", **view.scaled("beta", 3)}
    return {"fix": "Use a lower learning rate, fewer steps, or an SFT term.", **view.scaled("learning_rate", 1 / 3)}


def stronger_kl(view: RunView) -> dict[str, Any]:
    """The knob that holds the policy closer to the reference: where the KL is applied, or its coefficient; empty if the
    run can have neither."""
    if view.knobs.get("kl_placement") == "off":
        return view.fix("kl_placement", "loss") if view.knobs.get("beta") else {}
    return view.fix("beta", FIRST_BETA) if view.knobs.get("beta") == 0 else view.scaled("beta", 3)


def _name(key: str) -> str:
    return {"exact_match": "the share of accepted completions",
            "reward/verifier": "the verifier's reward"}.get(key, "the gold reward")
