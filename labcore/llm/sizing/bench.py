"""The estimator bench for the page and the command: its job, its table and its texts. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labcore.catalog import kinds
from labcore.catalog.knob import Value
from labcore.runs import jobs, versions

USUAL = ("rloo", "reinforce", "grpo", "dr_grpo", "remax", "ppo")
CRITICS = ("untrained", "exact")
PROGRESS = 0.3
COLUMNS = (("bias", "bias²/|∇|²"), ("turned", "after scaling"), ("scale", "scale"), ("noise", "variance/|∇|²"),
           ("cosine", "cos of mean"), ("cosines", "mean cos"), ("signal", "signal/sample"))
INTERVALS = ("bias", "turned", "scale", "variance", "noise", "signal", "cosine", "cosines")


def asked(algorithms: Sequence[str], *, knob: str = "", values: Sequence[Value] = (), batches: int = 200,
          task: str = "", model: str = "", knobs: Mapping[str, Value] | None = None, critic: str = CRITICS[0],
          progress: float = PROGRESS, seed: int = 0) -> jobs.Spec:
    """The job of these settings; another code is another job."""
    table = kinds.kind("exact")
    return {"job": "estimator_bench", "algorithms": list(algorithms), "knob": knob, "values": list(values),
            "batches": batches, "task": task or table.task, "model": model or table.model, "knobs": dict(knobs or {}),
            "critic": critic, "progress": progress, "seed": seed, "made": versions.code()}


def finding(row: Mapping[str, Any]) -> str:
    """The verdict on a row's mean gradient compared with the exact one, in two words."""
    if row.get("fault"):
        return "no gradient"
    if not row["biased"]:
        return "no bias found"
    return "other direction" if row["turns"] else "other length"


def number(interval: Sequence[float | None] | None) -> str:
    """"0.12 ±0.03": the value and half its interval of 95 %."""
    if interval is None or interval[0] is None:
        return "–"
    value, low, high = interval
    return f"{value:.3f}" + ("" if low is None or high is None else f" ±{(high - low) / 2:.3f}")


def frozen(progress: float = PROGRESS) -> str:
    """A sentence that says which policy is frozen; `progress` is its share of the way to the best reward.

    >>> frozen(0.3)
    'The policy is trained by exact gradient ascent 30 % of the way to the best reward, then frozen.'
    """
    return ("The policy is trained by exact gradient ascent "
            f"{100 * progress:.3g} % of the way to the best reward, then frozen.")


def notes(found: Mapping[str, Any]) -> list[str]:
    """Notes on the table: its data, and the meaning of its numbers."""
    return [
        f"Problem {found['task']}, model {found['model']}, {found['completions']:,} completions of each prompt; "
        f"{found['batches']:,} batches a row, seed {found['seed']}.",
        f"{frozen(found['progress'])} Its reward is {found['reward']:.3f}; that of its start, the reference, "
        f"{found['reward_before']:.3f}; the best reward is {found['reward_best']:.3f}.",
        "∇ is the exact gradient of J − β KL; for a row of preferences that of its own loss over all pairs.",
        "± is half an interval of 95 % (jackknife over batches). Bias² is measured on pairs of batches, so without "
        "bias it scatters around 0, below it too, and the cosine of the mean around 1, above it too.",
        "After scaling: the bias² that no learning rate removes. Variance and signal are those of the scaled "
        "gradient.",
        "Signal/sample: |∇|² over the variance times the completions of a batch. A bias is reported where bias² is "
        "more than 3 standard errors above 0.",
    ]


def reasons(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """Why each algorithm is biased, in the order of the table."""
    said: dict[str, list[str]] = {}
    for row in found["rows"]:
        own = said.setdefault(row["label"], [])
        own += [reason for reason in row["reasons"] if reason not in own]
    return said


def records(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table as flat rows for a CSV: every quantity with the ends of its interval."""
    rows = []
    for row in found["rows"]:
        flat = {"algorithm": row["algorithm"], "knob": found["knob"], "value": row["value"],
                "samples_per_batch": row["samples"], "gradient_norm": row["truth"]}
        for name in INTERVALS:
            value, low, high = row.get(name) or (None, None, None)
            flat |= {name: value, f"{name}_low": low, f"{name}_high": high}
        rows.append(flat | {"finding": finding(row), "why": " ".join(row["reasons"])})
    return rows
