"""Exact: a language model on a problem that can be enumerated, its estimates beside the exact values."""

from app.exact import bench, policy
from app.llm import own_tabs
from app.training.frame import frame

frame("exact", picture=policy.show, own_tabs={
    **{name: own_tabs.TABS[name] for name in ("Microscope", "Surrogate")},
    "Estimator bench": (bench.tab, lambda run: True)})
