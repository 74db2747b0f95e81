"""Rules about completions: their length, their end, and the likelihood of chosen answers."""

from __future__ import annotations

import math
from typing import Any

from labcore.analysis.doctor.finding import Finding
from labcore.analysis.doctor.run_view import BLOCK, RunView, Series, number, share
from labcore.analysis.doctor.signal import closer
from labcore.catalog.choices import RATIO, SURROGATE, chosen

LONGER = 1.5  # times the length at the start
BETTER = 0.05  # more right answers than that pay for the length
CUT = 0.2  # one in five completions without an end: a starting guess
# Nats per sequence: the chosen answer is less than a third as likely as before. Razin et al. 2024 (arXiv:2410.08847).
DISPLACED = 1.0
DISPLACED_SHARE = 0.1  # of the log-probability at the start: one nat is noise for answers of hundreds of tokens


def length_bias(view: RunView) -> Finding | None:
    """Completions grow longer without getting better."""
    series, success = view["completions/mean_length"], view.success
    if not view.above(series.mean(), LONGER * series.start):
        return None
    if success is not None and success.mean() - success.start > BETTER:
        return None
    said = f", {number(success.start)} → {number(success.mean())} right" if success is not None else ""
    return Finding("Longer, not better", f"{number(series.start)} → {number(series.mean())} tokens per completion by "
                   f"step {view.memory.step:,}{said}", "Use an aggregation that ignores length, or a length cost.",
                   **_by_length(view))


def _by_length(view: RunView) -> dict[str, Any]:
    """The knob that takes the length out; none where ratio or surrogate are one number for all of a completion."""
    whole = any(each.whole for each in chosen(SURROGATE, view.knobs))
    by_token = not whole and any(each.level == "token" for each in chosen(RATIO, view.knobs))
    return view.fix("aggregation", "constant_length") if by_token else {}


def truncation(view: RunView) -> Finding | None:
    """Many completions are cut at the length limit."""
    found = view["completions/truncated_frac"].mean()
    limit = view.declared.get("max_new_tokens")
    part_of_problem = limit is not None and limit.effect == "restart"
    if view.supervised or part_of_problem or not view.above(found, CUT):
        return None
    return Finding("Completions are cut off", f"{share(found)} of them reach the length limit in "
                   f"{view.when('completions/truncated_frac')}", "Raise the length limit.",
                   **view.scaled("max_new_tokens", 2))


def displacement(view: RunView) -> Finding | None:
    """The chosen answers become less likely, together with the rejected ones, and answers do not improve."""
    chosen, rejected = view["logps/chosen"], view["logps/rejected"]
    fell, success = chosen.start - chosen.mean(), view.success
    limit = max(DISPLACED, DISPLACED_SHARE * abs(chosen.start))
    if not view.above(fell, limit) or rejected.mean() >= rejected.start:
        return None
    if success is not None and success.mean(2) - success.last(40)[0] > BETTER:
        return None
    return Finding("The chosen answers become less likely as well", "log-probability of the chosen "
                   f"{number(chosen.start)} "
                   f"→ {number(chosen.mean())}, of the rejected {number(rejected.start)} → {number(rejected.mean())} "
                   f"nats/sequence by step {view.memory.step:,}", **closer(view))


# ---------------------------------------------------------------- generalisation
# The rule about held-out rows: does what is learnt on the training rows carry over to rows that are never trained on?
#
# Accuracies are compared by the binomial error of the held-out completions: a gap has to be larger than chance makes
# it, and larger than what would be worth a warning. The loss of given answers has no sampling noise.

# What is measured on training rows, and the same on held-out rows. The first pair of which both are logged counts.
SHARES = (("exact_match", "held_out/accuracy"), ("rewards/accuracies", "held_out/pair_accuracy"))
LOSS = ("loss", "held_out/loss")
GAP = 0.1  # of an accuracy: a smaller gap is hardly worth stopping for
ERRORS = 3.0  # standard errors of the gap: it is looked at often
BEST_ERRORS = 4.0  # the same after the best of many measurements, which is luck in part
LOSS_ROSE = 0.05  # of the lowest held-out loss
NEWEST = 2  # measurements that say how it stands now
NAMES = {"exact_match": "accepted completions", "rewards/accuracies": "pair accuracy"}


def overfits(view: RunView) -> Finding | None:
    """Training continues to improve on its own rows while held-out rows stall or get worse."""
    if set(LOSS) <= view.memory.keys() and view.supervised:
        return _by_loss(view)
    pair = next((pair for pair in SHARES if set(pair) <= view.memory.keys()), None)
    return _by_share(view, *pair) if pair else None


def _by_share(view: RunView, key: str, held_key: str) -> Finding | None:
    train, held = view[key], view[held_key]
    now, trained = held.mean(NEWEST), _beside(train, held)
    count, batch = _counted(view, key), BLOCK * _batch(view, key)
    if held.count <= NEWEST:
        return None
    first, best = held.recent[0], max(held.recent, key=lambda each: each[1])
    for (step, value), errors in ((first, ERRORS), (best, BEST_ERRORS)):
        before = train.at(step)
        error = math.hypot(_error(value, count), _error(now, NEWEST * count), _error(before, batch),
                           _error(trained, batch))
        gap = (trained - before) - (now - value)
        if trained >= before and view.above(gap, max(GAP, errors * error)):
            return _finding(view, f"{NAMES[key]} {number(before)} → {number(trained)} on training rows and "
                            f"{number(value)} → {number(now)} on held-out rows since step {step:,} (standard error of "
                            f"the gap {number(error)})", best[0])
    return None


def _by_loss(view: RunView) -> Finding | None:
    train, held = (view[key] for key in LOSS)
    step, lowest = min(held.recent, key=lambda each: each[1])
    now = min(held.last(NEWEST))  # the mean of a loss that still falls lies above its lowest value
    before, trained = train.at(step), _beside(train, held)
    if held.count <= NEWEST or trained >= before or not view.above(now - lowest, LOSS_ROSE * lowest):
        return None
    return _finding(view, f"the held-out loss rose {number(lowest)} → {number(now)} nats/token since step {step:,}, "
                    f"while the loss of training rows fell {number(before)} → {number(trained)}", step)


def _beside(train: Series, held: Series) -> float:
    """The training metric at the newest held-out measurements, which lie some steps back."""
    newest = list(held.recent)[-NEWEST:]
    return sum(train.at(step) for step, _ in newest) / len(newest)


def _finding(view: RunView, evidence: str, best: int) -> Finding:
    return Finding("Overfitting to the training rows", evidence, "Use the best checkpoint by held-out rows (step "
                   f"{best:,}), more rows, fewer epochs or a lower learning rate.", began=best,
                   **view.scaled("learning_rate", 1 / 3))


def _counted(view: RunView, key: str) -> int:
    """The number of held-out completions, or pairs, in a measurement."""
    samples = int(view.knobs.get("held_out_samples", 1)) if key == "exact_match" else 1
    return max(1, round(view["held_out/rows"].mean(1)) * samples)


def _batch(view: RunView, key: str) -> int:
    """The number of completions, or pairs, behind a value of training rows; 1 if the knobs are unknown."""
    knobs = view.knobs
    if key == "exact_match" and "prompts_per_step" in knobs:
        return int(knobs["prompts_per_step"]) * int(knobs.get("group_size", 1))
    return int(knobs.get("eval_prompts" if key == "exact_match" else "pairs_per_step", 1))


def _error(share: float, count: int) -> float:
    """The binomial standard error of a share of `count`; of 0 and 1 not 0, by one success and one failure more."""
    smooth = (share * count + 1) / (count + 2)
    return math.sqrt(smooth * (1 - smooth) / count)
