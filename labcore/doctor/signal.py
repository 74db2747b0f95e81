"""Rules about the learning signal: is there any, and does it still mean what it should."""

from __future__ import annotations

from labcore.catalog.choices import ADVANTAGE
from labcore.doctor.finding import Finding
from labcore.doctor.patient import SOLVED, Patient, number, share

# More than half of a batch gives no gradient: the point that TRL's maintainers and DAPO (arXiv:2503.14476, fig. 3)
# name as the one where the effective batch has halved.
MOST_GROUPS = 0.5
# Where four of five answers are right, groups of eight agree because they are right: that is success.
MOSTLY_RIGHT = 0.8
# All groups but one in 32 (the default batch) agree: what is left is chance.
NO_GROUPS = 0.97
FLAT_STD = 1e-3  # reward: below one completion in a million that differs
# Ten per cent of the entropy at the start: the doctor's usual mark of a collapse; Cui et al. 2025 (arXiv:2505.22617)
# find that nearly all reward is gained before.
ENTROPY_LEFT = 0.1
STILL_GAINS = 0.02  # reward or exact match that rose by more over ten steps still learns
# Twice the standard error of a difference of two means over 10 × 256 completions is 0.03.
GOLD_FELL = 0.05
PROXY_ROSE = 0.02
# What is trained on, and what it stands for. The first pair of which both are logged counts.
PROXIES = (("reward", "reward/gold"), ("reward", "reward/verifier"), ("reward", "exact_match"))
# Evaluations of 256 prompts have a standard error of 0.03 each, so their difference one of 0.04.
ANSWERS_FELL = 0.1
PAIRS_ROSE = 0.05


def zero_variance(patient: Patient) -> Finding | None:
    """Groups whose answers all have one reward, while many answers are still wrong."""
    found = patient["frac_reward_zero_std"].mean()
    advantage = patient.knobs.get("advantage")
    if advantage is not None and not ADVANTAGE[str(advantage)].group:
        return None  # its baseline is not the group's
    mostly_right = patient.success is not None and MOSTLY_RIGHT <= patient.success.mean() <= 1
    if mostly_right or not patient.above(found, MOST_GROUPS):
        return None
    if found >= NO_GROUPS and "reward_std" in patient:
        return None  # `no_signal` says more
    return Finding("Most groups give no gradient", f"{share(found)} of the groups have one reward for all their "
                   f"completions in {patient.when('frac_reward_zero_std')}",
                   "Larger groups, prompts of middling difficulty, or a higher temperature.",
                   **patient.scaled("group_size", 2))


def no_signal(patient: Patient) -> Finding | None:
    """Every completion scores the same: all wrong, or all right."""
    if patient.supervised:
        return None
    groups = "frac_reward_zero_std" in patient and patient["frac_reward_zero_std"].mean() >= NO_GROUPS
    if not groups and patient["reward_std"].mean() > FLAT_STD:
        return None
    level, when = patient["reward"].mean(), patient.when("reward")
    if patient.success is not None and patient.success.mean() >= SOLVED:
        return Finding("Nothing is left to learn", f"all completions of a prompt score the same, {number(level)} on "
                       f"average in {when}", "Harder prompts, or stop here.", severity="note")
    return Finding("No learning signal", f"all completions of a prompt score the same, {number(level)} on average in "
                   f"{when}", "Easier prompts, a longer SFT of the base, or larger groups.",
                   **patient.scaled("group_size", 2))


def entropy_collapse(patient: Patient) -> Finding | None:
    """Hardly any entropy is left, and the reward has stopped rising before the task is solved."""
    series, success = patient["entropy"], patient.success
    if patient.solved or not patient.below(series.mean(), ENTROPY_LEFT * series.start):
        return None
    if success is not None and success.mean() - success.mean(before=10) > STILL_GAINS:
        return None
    return Finding("The entropy collapsed", f"{number(series.start)} → {number(series.mean())} nats/token by step "
                   f"{patient.memory.step:,}, and the reward no longer rises", "An entropy bonus, a higher upper clip "
                   "or a higher temperature.", **patient.fix("entropy_coef", 0.01))


def reward_hacking(patient: Patient) -> Finding | None:
    """The reward that is trained on rises while the one that it stands for falls."""
    pair = next((pair for pair in PROXIES if pair[0] in patient and pair[1] in patient), None)
    if pair is None or not patient[pair[1]].blocks:
        return None
    proxy, gold = (patient[key] for key in pair)
    step, best = gold.peak()
    fell, rose = best - gold.mean(), proxy.mean() - proxy.at(step)
    if not (patient.above(fell, GOLD_FELL) and patient.above(rose, PROXY_ROSE)):
        return None
    return Finding("Reward hacking", f"since step {step:,} the reward rose {number(proxy.at(step))} → "
                   f"{number(proxy.mean())}, {_name(pair[1])} fell {number(best)} → {number(gold.mean())}",
                   "Stay closer to the reference, stop at the best step, or mend the reward.", **stronger_kl(patient))


def answers_worse(patient: Patient) -> Finding | None:
    """Pairs that are separated better and better by a model that answers worse and worse."""
    pairs, exact = patient["rewards/accuracies"], patient["exact_match"]
    first, last = exact.start if exact.blocks else exact.last(40)[0], exact.mean(2)
    rose = pairs.mean() - pairs.start
    if not (patient.above(first - last, ANSWERS_FELL) and patient.above(rose, PAIRS_ROSE)):
        return None
    return Finding("The pairs are separated better, the answers are worse", f"pair accuracy {number(pairs.start)} → "
                   f"{number(pairs.mean())}, exact match {number(first)} → {number(last)} by step "
                   f"{patient.memory.step:,}", "Stay closer to the reference.", **patient.scaled("beta", 3))


def stronger_kl(patient: Patient) -> dict:
    """The knob that holds the policy closer to the reference: where the KL enters, or its coefficient."""
    if patient.knobs.get("kl_placement") == "off":
        return patient.fix("kl_placement", "loss")
    if patient.knobs.get("beta") == 0:
        return patient.fix("beta", 0.05)
    return patient.scaled("beta", 3)


def _name(key: str) -> str:
    return {"exact_match": "exact match", "reward/verifier": "the verifier's reward"}.get(key, "the gold reward")
