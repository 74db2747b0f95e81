"""Rules about what is written: its length, its end, and what becomes of chosen answers."""

from __future__ import annotations

from typing import Any

from labcore.catalog.choices import RATIO, SURROGATE, chosen
from labcore.doctor.finding import Finding
from labcore.doctor.patient import Patient, number, share
from labcore.doctor.signal import closer

LONGER = 1.5  # times the length at the start
BETTER = 0.05  # more right answers than that pay for the length
CUT = 0.2  # one in five completions without an end: a starting guess
# Nats per sequence: the chosen answer is less than a third as likely as before. Razin et al. 2024 (arXiv:2410.08847).
DISPLACED = 1.0
DISPLACED_SHARE = 0.1  # of the log-probability at the start: one nat is noise for answers of hundreds of tokens


def length_bias(patient: Patient) -> Finding | None:
    """Completions grow longer and not better."""
    series, success = patient["completions/mean_length"], patient.success
    if not patient.above(series.mean(), LONGER * series.start):
        return None
    if success is not None and success.mean() - success.start > BETTER:
        return None
    said = f", {number(success.start)} → {number(success.mean())} right" if success is not None else ""
    return Finding("Longer, not better", f"{number(series.start)} → {number(series.mean())} tokens per completion by "
                   f"step {patient.memory.step:,}{said}", "An aggregation in which length does not count, or a cost "
                   "of each token.", **_by_length(patient))


def _by_length(patient: Patient) -> dict[str, Any]:
    """The knob that takes the length out; none where ratio or surrogate are one number for all of a completion."""
    whole = any(each.whole for each in chosen(SURROGATE, patient.knobs))
    by_token = not whole and any(each.level == "token" for each in chosen(RATIO, patient.knobs))
    return patient.fix("aggregation", "constant_length") if by_token else {}


def truncation(patient: Patient) -> Finding | None:
    """Many completions are cut at the length limit."""
    found = patient["completions/truncated_frac"].mean()
    limit = patient.declared.get("max_new_tokens")
    part_of_problem = limit is not None and limit.effect == "restart"
    if patient.supervised or part_of_problem or not patient.above(found, CUT):
        return None
    return Finding("Completions are cut off", f"{share(found)} of them reach the length limit in "
                   f"{patient.when('completions/truncated_frac')}", "A higher length limit.",
                   **patient.scaled("max_new_tokens", 2))


def displacement(patient: Patient) -> Finding | None:
    """The chosen answers become less likely, together with the rejected ones, and answers do not improve."""
    chosen, rejected = patient["logps/chosen"], patient["logps/rejected"]
    fell, success = chosen.start - chosen.mean(), patient.success
    limit = max(DISPLACED, DISPLACED_SHARE * abs(chosen.start))
    if not patient.above(fell, limit) or rejected.mean() >= rejected.start:
        return None
    if success is not None and success.mean(2) - success.last(40)[0] > BETTER:
        return None
    return Finding("The chosen answers become less likely too", f"log-probability of the chosen {number(chosen.start)} "
                   f"→ {number(chosen.mean())}, of the rejected {number(rejected.start)} → {number(rejected.mean())} "
                   f"nats/sequence by step {patient.memory.step:,}", **closer(patient))
