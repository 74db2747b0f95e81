"""Rules about the learning signal: is there any, and does it still mean what it should."""

from __future__ import annotations

from typing import Any

from labcore.analysis.doctor.finding import Finding
from labcore.analysis.doctor.run_view import BLOCK, RECENT, Patient, number, share
from labcore.catalog.choices import PREFERENCE_LOSS, losses_of
from labcore.catalog.knob import shown
from labcore.catalog.reward_terms import scorers

MOST_GROUPS = 0.5  # half of the batch gives no gradient: a starting guess
# Where four of five answers are right, groups of eight agree because they are right: that is success.
MOSTLY_RIGHT = 0.8
# All groups but one in 32 (the default batch) agree: what is left is chance.
NO_GROUPS = 0.97
# Ten times the standard error of a mean over 3 × 256 completions, for rewards between 0 and 1: a starting guess.
FELL = 0.2
FELL_NOISE = 4.0  # standard deviations of one step's reward: the best of many blocks is luck in part
FELL_BY = 3  # rows of which the newest mean is made
TURN_WITHIN = 10  # steps after which a knob is no longer taken for what made the reward fall
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


def zero_variance(patient: Patient) -> Finding | None:
    """Groups whose answers all have one reward, while many answers are still wrong."""
    if not _compares_groups(patient):
        return None
    found = patient["frac_reward_zero_std"].mean()
    mostly_right = patient.success is not None and MOSTLY_RIGHT <= patient.success.mean() <= 1
    if mostly_right or not patient.above(found, MOST_GROUPS):
        return None
    if found >= NO_GROUPS and "reward_std" in patient:
        return None  # `no_signal` says more
    return Finding("Most groups give no gradient", f"{share(found)} of the groups have one reward for all their "
                   f"completions in {patient.when('frac_reward_zero_std')}",
                   "Larger groups, prompts of medium difficulty, or a higher temperature.",
                   **patient.scaled("group_size", 2))


def unscored(patient: Patient) -> Finding | None:
    """Prompts none of whose completions was scored by the user's functions or the judge, in the newest rows."""
    seen = [(step, value) for step, value in [*patient["frac_reward_unscored"].recent][-BLOCK:] if value]
    if not seen:
        return None
    step, value = seen[-1]
    return Finding("Prompts without a reward", f"{scorers(patient.knobs)} scored no completion of {share(value)} of "
                   f"the prompts at step {step:,}, so they teach nothing", "Have it return a number instead of None.")


def _compares_groups(patient: Patient) -> bool:
    """Whether a group of equal rewards gives no gradient: not where the baseline is not the group's, and not in the
    metrics of a tool whose share is that of a whole batch, 0 or 1."""
    of_batch = not patient.knobs and set(patient["frac_reward_zero_std"].last(RECENT)) <= {0.0, 1.0}
    return patient.by_group and not of_batch


def reward_fell(patient: Patient) -> Finding | None:
    """The reward is far below its best, and which knob was turned right before it fell. Where pairs are learnt the
    reward is only measured, and `answers_worse` looks at it."""
    reward = patient["reward"]
    if patient.supervised or "rewards/accuracies" in patient:
        return None
    (_, best), now = reward.peak(), reward.mean(FELL_BY)
    scale = max(1.0, 2 * patient["reward_std"].mean(RECENT)) if "reward_std" in patient else 1.0
    if not patient.above(best - now, max(FELL * scale, FELL_NOISE * reward.jitter)):
        return None
    middle = (best + now) / 2
    began, about = reward.below_since(middle), reward.block_above(middle)
    fell = f"{number(best)} → {number(now)}, from " + (f"step {began:,} on" if began else f"about step {about:,} on")
    turn = patient.turned_before(began, TURN_WITHIN) if began else None
    if turn is None:
        began = began or about
        return Finding("The reward fell", fell, f"Go back to before step {began:,}, with a lower learning rate.",
                       began=began, **patient.scaled("learning_rate", 1 / 3))
    knob = patient.declared[turn.knob]
    return Finding("The reward fell", f"{fell}, after {knob.name} {shown(turn.before)} → {shown(turn.after)} at step "
                   f"{turn.step:,}", f"Fork from before step {turn.step:,}, without this change.", began=turn.step,
                   **patient.fix(turn.knob, turn.before))


def no_signal(patient: Patient) -> Finding | None:
    """Every completion scores the same: all wrong, or all right."""
    if patient.supervised:
        return None
    groups = ("frac_reward_zero_std" in patient and _compares_groups(patient)
              and patient["frac_reward_zero_std"].mean() >= NO_GROUPS)
    if not groups and patient["reward_std"].mean() > FLAT_STD:
        return None
    level, when = patient["reward"].mean(), patient.when("reward")
    if patient.solved and ("exact_match" in patient or patient.knobs):  # another tool's reward of 1 may be any
        return Finding("Nothing is left to learn", f"all completions of a prompt score the same, {number(level)} on "
                       f"average in {when}", "Harder prompts, or stop here.", severity="note")
    evidence = f"all completions of a prompt score the same, {number(level)} on average in {when}"
    if patient.by_group and level > 0:  # some answers are right: a larger group may have both kinds
        return Finding("No learning signal", evidence, "A longer SFT of the base, easier prompts, or larger groups.",
                       **patient.scaled("group_size", 2))
    return Finding("No learning signal", evidence, "A longer SFT of the base, or easier prompts.")


def entropy_collapse(patient: Patient) -> Finding | None:
    """Hardly any entropy is left, and the reward has stopped rising before the task is solved."""
    series, success = patient["entropy"], patient.success
    if patient.solved or not patient.below(series.mean(), ENTROPY_LEFT * series.start):
        return None
    if success is not None and success.mean() - success.mean(before=10) > STILL_GAINS:
        return None
    return Finding("The entropy collapsed", f"{number(series.start)} → {number(series.mean())} nats/token by step "
                   f"{patient.memory.step:,}, and the reward no longer rises", "An entropy bonus, a higher upper clip "
                   "or a higher temperature.",
                   **(patient.scaled("entropy_coef", 2) or patient.fix("entropy_coef", 0.01)))


def reward_hacking(patient: Patient) -> Finding | None:
    """The reward that is trained on rises while the one that it stands for falls."""
    pair = next((pair for pair in PROXIES if pair[0] in patient and pair[1] in patient), None)
    if pair is None or not patient[pair[1]].blocks:
        return None
    proxy, gold = (patient[key] for key in pair)
    step, best = gold.peak()
    fell, rose = best - gold.mean(), proxy.mean() - proxy.at(step)
    scale = max(1.0, 2 * patient["reward_std"].mean()) if "reward_std" in patient else 1.0
    if not (patient.above(fell, max(GOLD_FELL * scale, GOLD_NOISE * gold.noise))
            and patient.above(rose, PROXY_ROSE * scale)):
        return None
    return Finding("Reward hacking", f"since step {step:,} the reward rose {number(proxy.at(step))} → "
                   f"{number(proxy.mean())}, {_name(pair[1])} fell {number(best)} → {number(gold.mean())}",
                   "Stay closer to the reference, stop at the best step, or fix the reward.", **stronger_kl(patient))


def answers_worse(patient: Patient) -> Finding | None:
    """Pairs that are separated better and better by a model that answers worse and worse."""
    pairs, exact = patient["rewards/accuracies"], patient["exact_match"]
    first, last = exact.start if exact.blocks else exact.last(40)[0], exact.mean(2)
    rose = pairs.mean() - pairs.start
    if not (patient.above(first - last, ANSWERS_FELL) and patient.above(rose, PAIRS_ROSE)):
        return None
    return Finding("The pairs are separated better, the answers are worse", f"pair accuracy {number(pairs.start)} → "
                   f"{number(pairs.mean())}, the share of accepted completions {number(first)} → {number(last)} by "
                   f"step {patient.memory.step:,}", **closer(patient))


def closer(patient: Patient) -> dict[str, Any]:
    """What to do, and the knob, where preference pairs lead too far. β holds the policy at the reference only in losses
    that have one."""
    acting = [loss.reference for loss in map(PREFERENCE_LOSS.__getitem__, losses_of(patient.knobs))
              if "beta" in loss.needs]
    if all(acting):
        return {"fix": "Stay closer to the reference, or add an SFT term.", **patient.scaled("beta", 3)}
    return {"fix": "A lower learning rate, fewer steps, or an SFT term.", **patient.scaled("learning_rate", 1 / 3)}


def stronger_kl(patient: Patient) -> dict[str, Any]:
    """The knob that holds the policy closer to the reference: where the KL enters, or its coefficient; empty where both
    are off."""
    if patient.knobs.get("kl_placement") == "off":
        return patient.fix("kl_placement", "loss") if patient.knobs.get("beta") else {}
    if patient.knobs.get("beta") == 0:
        return patient.fix("beta", FIRST_BETA)
    return patient.scaled("beta", 3)


def _name(key: str) -> str:
    return {"exact_match": "the share of accepted completions",
            "reward/verifier": "the verifier's reward"}.get(key, "the gold reward")
