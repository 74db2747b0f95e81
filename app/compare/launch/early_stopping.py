"""The form's controls for the early stopping of a sweep."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from app import number_boxes
from app.plan import Plan
from app.widget_state import widget_state
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.runs import halving
from labcore.runs.halving import FACTORS, Halving
from labcore.runs.spec.run_spec import WHOLE

WAYS = {False: "None", True: "Successive halving"}


def choose(plan: Plan) -> None:
    """None, or successive halving with its metric, its first step and the share that continues."""
    shown = widget_state(f"{plan.scope}:early", plan.fields["early"] is not None)

    def changed() -> None:
        plan.fields["early"] = vars(_usual(plan)) if shown.taken() else None

    st.segmented_control("Early stopping", list(WAYS), format_func=WAYS.__getitem__, default=shown.value, required=True,
                         key=shown.key, on_change=changed,
                         help="Stop worse runs early, so that the better ones finish sooner. Optuna decides. A stopped "
                              "run keeps a checkpoint.")
    if plan.fields["early"] is not None:
        _details(plan, plan.fields["early"])


def chosen(plan: Plan) -> Halving | None:
    """What is chosen; None where the runs are not stopped early."""
    return plan.fields["early"] and Halving(**plan.fields["early"])


def _usual(plan: Plan) -> Halving:
    try:
        return halving.usual(plan.of(plan.key))
    except LabError:  # a setting is wrong, as the form says
        return Halving("reward", -(-plan.steps // 9))


def _details(plan: Plan, fields: dict[str, Any]) -> None:
    try:
        offered = halving.metrics_of(plan.of(plan.key))
    except LabError:
        offered = []
    offered = offered if fields["metric"] in offered else [*offered, fields["metric"]]
    metric, first, share = st.columns([1.6, 1, 1], gap="small")
    by = widget_state(f"{plan.scope}:early_metric", fields["metric"], of=tuple(offered))
    metric.selectbox("Metric", offered, offered.index(by.value), format_func=lambda key: METRICS[key].label,
                     key=by.key, on_change=lambda: fields.update(metric=by.taken()))
    for column, field, title, bounds, help in (
            (first, "min_steps", "Earliest step", WHOLE["steps"],
             "A run is first judged after this many steps, then at this many times the reduction factor, and so on."),
            (share, "factor", "Reduction factor", FACTORS,
             "3: at each judgement a run continues only if it is among the best third of the runs that have reached "
             "that step.")):
        number_boxes.number(plan.scope, field, title, fields[field], bounds, partial(fields.__setitem__, field), column,
                            help)
