"""Names for the check that a right completion passes, by the task's verifier, and for the metrics named after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.goal import reward_words
from labcore.catalog.knob import Value
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.task import Task

_CHECKS = {"exact": "Exact match", "numeric": "Correct number", "math": "Equal as mathematics",
           "choice": "Correct choice", "regex": "Matches the pattern", "contains": "Contains the answer",
           "length": "Length in range", "format": "Matches the template", "json": "Correct JSON"}
RENAMED = ("reward", "exact_match")  # the metrics that runs of some settings call otherwise


def right(task: Task, knobs: Mapping[str, Value]) -> str:
    """The check that a right completion has passed, as a label.

    >>> right(Task("mine", "", "", "", ()), {"verifier": "numeric"})
    'Correct number'
    """
    if knobs.get("verifier") == "contains" and knobs.get("pattern"):
        return "Contains the pattern"
    return _CHECKS.get(str(knobs.get("verifier")), task.right)


def check(task: Task, knobs: Mapping[str, Value]) -> str:
    """The name of the check within a sentence: "exact match", "contains the answer"."""
    return named("exact_match", right(task, knobs)).inline


def named(key: str, check: str) -> Metric:
    """A metric of right completions under the name of their `check`; any other metric as it is."""
    return _right_completions(check) if key == "exact_match" and check else METRICS[key]


@cache  # lists ask for thousands of runs
def _right_completions(check: str) -> Metric:
    return replace(METRICS["exact_match"], label=check)


@cache
def share_of(exact: Metric, metric: Metric) -> Metric:
    """The reward or its spread under the name of the check, for runs whose reward is the share of right completions."""
    label = f"{metric.label} ({exact.inline})" if metric.key == "reward" else metric.label
    return replace(metric, label=label, unit=exact.unit, scale="rate")


def in_run(key: str, row: Algorithm, task: Task, knobs: Mapping[str, Value]) -> Metric:
    """A metric under the name that it has in a run with these settings. If all rewards are 0 or 1 from the task's
    verifier, the mean reward is the share of right completions and is named so."""
    if key not in RENAMED:
        return METRICS[key]
    exact = named("exact_match", right(task, knobs))
    verified = "reward_source" in knobs and not reward_words(knobs) and task.all_or_nothing(knobs)
    if key == "reward" and verified and exact.key in row.charts(task):
        return share_of(exact, METRICS[key])
    return exact if key == exact.key else METRICS[key]
