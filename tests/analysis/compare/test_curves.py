"""Curves: numbers by hand, slow twins, and nothing where there are no rows."""

import time

import numpy as np
import pytest

from labcore.analysis.compare import curves
from labcore.catalog.kinds import KINDS
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.errors import LabError
from labcore.runs.store.rows import Event, Step
from labcore.runs.store.store import Store
from labcore.runs.traces import metric_of, trace
from tests.analysis.compare import tools
from tests.every import every

NAN = float("nan")


def slow_ema(values, smoothing, starts):
    """The sum of the definition, row by row."""
    found = []
    for t, value in enumerate(values):
        begin = max([start for start in starts if start <= t], default=0)
        ages = [(smoothing ** sum(np.isfinite(values[j + 1:t + 1])), values[j])
                for j in range(begin, t + 1) if np.isfinite(values[j])]
        found.append(sum(w * y for w, y in ages) / sum(w for w, _ in ages) if np.isfinite(value) else NAN)
    return found


def test_ema_by_hand():
    # 4; then (½·4 + 8) / (½ + 1); then (¼·4 + ½·8 + 1) / (¼ + ½ + 1)
    assert curves.ema([4, 8, 1], 0.5) == pytest.approx([4, 10 / 1.5, 6 / 1.75], abs=1e-12)
    assert curves.ema([4, 8, 1], 0.0).tolist() == [4, 8, 1]
    assert curves.ema([4, 8, 1], 0.5, [2]) == pytest.approx([4, 10 / 1.5, 1], abs=1e-12)
    assert curves.ema([4, NAN, 8], 0.5) == pytest.approx([4, NAN, 10 / 1.5], abs=1e-12, nan_ok=True)
    assert curves.ema([3.0] * 50, 0.99) == pytest.approx([3.0] * 50, abs=1e-12)  # no bias to 0


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 0.8, 0.999])
@pytest.mark.parametrize("starts", [[], [20], [0, 8, 31, 59], [200]])
def test_ema_like_its_slow_twin(smoothing, starts):
    values = 1e3 + np.random.default_rng(0).normal(size=60)
    values[[0, 7, 8, 30, 31, 59]] = NAN, NAN, NAN, np.inf, -np.inf, NAN
    assert curves.ema(values, smoothing, starts) == pytest.approx(
        slow_ema(values.tolist(), smoothing, starts), rel=1e-13, nan_ok=True)
    assert curves.ema([], smoothing, starts).size == 0


@pytest.mark.parametrize("smoothing", [1.0, -0.1, 2.0, NAN])
def test_a_smoothing_that_cannot_be(smoothing):
    with pytest.raises(LabError, match="use a number from 0 up to"):
        curves.ema([1.0], smoothing)


def test_smoothing_starts_anew_after_a_change_of_a_knob():
    run = tools.trace([0, 0, 0, 10, 10], breaks=(3,))  # changed after step 3: rows 4 and 5 are of the new setting
    assert curves.smoothed(run, "reward", smoothing=0.9)[2].tolist() == [0, 0, 0, 10, 10]
    sparse = tools.trace([0, NAN, NAN, NAN, 10], breaks=(3,))
    assert curves.smoothed(sparse, "reward", smoothing=0.9)[2].tolist() == [0, 10]
    assert curves.smoothed(tools.trace([0, 0, 0, 10, 10]), "reward", smoothing=0.9)[2][3] < 5


def test_aligned_by_hand_and_never_beyond_a_run():
    short, long = tools.trace([0, 1, 2], [10, 20, 30]), tools.trace([5, 9], [20, 60])
    places, values = curves.aligned([short, long], "reward", "tokens")
    assert places.tolist() == [10, 20, 30, 60]
    assert values[0] == pytest.approx([0, 1, 2, NAN], nan_ok=True)
    assert values[1] == pytest.approx([NAN, 5, 6, 9], nan_ok=True)
    assert [part.shape for part in curves.aligned([short], "reward", "seconds")] == [(0,), (1, 0)]


def test_rows_without_the_metric_are_bridged_and_equal_places_count_once():
    run = tools.trace([1, NAN, 3, 7], [10, 20, 30, 30])
    x, y, steps = run.column("reward", "tokens")
    assert x.tolist() == [10, 30] and y.tolist() == [1, 7] and steps.tolist() == [1, 4]
    assert [part.size for part in run.column("kl", "tokens")] == [0, 0, 0]
    assert [part.size for part in run.column("reward", "seconds")] == [0, 0, 0]


def test_a_grid_has_both_ends_and_no_more_places_than_asked():
    places = curves.places_of([np.arange(1000.0) ** 2], most=50)
    assert places.size == 50 and places[0] == 0 and places[-1] == 999**2
    assert np.sqrt(places).tolist() == np.sqrt(places).round().tolist()  # the rows themselves, nothing between


def test_a_thinned_curve_keeps_every_peak():
    values = np.random.default_rng(1).normal(size=10_000)
    values[[0, 3333, 9998]] = [-7.0, 50.0, -60.0]
    run = tools.trace(values, np.cumsum(np.random.default_rng(2).uniform(0, 9, 10_000)))
    drawn = curves.curve(run, "reward", "tokens", smoothing=0.9, most=400)
    assert 200 < drawn.x.size <= 400 and (np.diff(drawn.x) > 0).all()
    assert {50.0, -60.0, -7.0, values[-1]} <= set(drawn.raw)
    x, _, smooth = curves.smoothed(run, "reward", "tokens", 0.9)
    assert drawn.smooth.max() == smooth.max() and drawn.smooth.min() == smooth.min()
    assert dict(zip(x, smooth, strict=True)).items() >= dict(zip(drawn.x, drawn.smooth, strict=True)).items()


def test_a_short_curve_is_drawn_row_by_row():
    drawn = curves.curve(tools.trace([1, 2, NAN, 4], [1, 2, 3, 4]), "reward", "tokens", smoothing=0.0)
    assert drawn.x.tolist() == [1, 2, 4] and drawn.raw.tolist() == drawn.smooth.tolist() == [1, 2, 4]


def test_a_trace_of_the_store(store):
    run_id = tools.stored(store, [0.1, 0.2, 0.3], changes=[(2, "beta", 0.5)])
    got = trace(store.run(run_id), store.steps_after(run_id), store.events_after(run_id))
    assert set(got.axes) == {"step", "tokens", "seconds", "updates"}  # no environment: no such axis
    assert got.breaks == (2,) and got.changes == ((2, "beta", 0.5),) and not got.imported
    assert got.column("reward", "updates")[0].tolist() == [1, 2, 3]
    assert metric_of([got]) == "reward" and metric_of([got], "memory") == "memory"


def test_the_metric_to_compare_by():
    a, b = tools.trace([1], kl=[1], exact_match=[1]), tools.trace([1], metric="exact_match", kl=[1], run="b")
    assert metric_of([a, b]) == "exact_match"  # what both have, and more of it is better
    with pytest.raises(LabError, match="The run b has no reward: compare by exact_match, kl"):
        metric_of([a, b], "reward")
    with pytest.raises(LabError, match="no metric 'rewards'"):
        metric_of([a, b], "rewards")
    with pytest.raises(LabError, match="share no metric"):
        metric_of([a, tools.trace([1], metric="epsilon")])


@every("row", [row for of in KINDS.values() for row in of.algorithms.values()])
def test_every_algorithm_has_a_metric_to_be_judged_by(row):
    logged = {key: [1.0] for panel in row.panels for key in PANELS[panel].metrics}
    chosen = METRICS[metric_of([tools.trace([1], metric="epsilon", **logged)])]
    assert chosen.better in ("higher", "lower") and chosen.about == "training" and chosen.key != "loss"


def test_eight_long_runs_are_ready_at_once():
    """8 runs × 10,000 steps with 20 metrics: from rows to what is drawn."""
    rng = np.random.default_rng(0)
    metrics = ("reward", "exact_match", "kl", "entropy", "loss", "grad_norm", "clip_frac/low", "updates")
    rows = [[Step(step, 100 * step, 0, 0.1 * step, dict(zip(metrics, numbers, strict=True)))
             for step, numbers in enumerate(rng.random((10_000, len(metrics))).tolist(), start=1)]
            for _ in range(2)]
    row = Store().run(tools.stored(Store(), [0.1]))
    begun = time.process_time()
    moved = Event(1, 500, "knob", {"knob": "beta", "to": 1.0, "update": 499, "between": 1}, 0.0)
    traces = [trace(row, rows[index % 2], [moved]) for index in range(8)]
    drawn = [curves.curve(each, "reward", "tokens") for each in traces]
    assert time.process_time() - begun < 1.5  # about 0.4 s here
    assert max(each.x.size for each in drawn) <= curves.MOST
