"""Charts and the metrics that they draw."""

from __future__ import annotations

from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from tests.every import every


@every("panel", PANELS.values())
def test_every_metric_of_a_chart_has_the_unit_of_its_axis(panel):
    """The axis has the unit of the first metric. The loss has none: each algorithm's loss has another."""
    first = METRICS[panel.metrics[0]]
    for key in (*panel.lines({f"{panel.prefix}mine"}), *panel.held_out):
        metric = METRICS[key]
        assert metric.share == first.share and (metric.unit == first.unit or first.key == "loss"), key
