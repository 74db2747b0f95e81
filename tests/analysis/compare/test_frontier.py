"""The reward–KL plane: a front by hand, against its slow twin, and the way that a run took."""

import numpy as np
import pytest

from labcore.analysis.compare import frontier
from labcore.analysis.compare.groups import groups
from tests.analysis.compare import tools


def slow_front(costs, rewards):
    """Every point against every other."""
    def beaten(i):
        return any(costs[j] <= costs[i] and rewards[j] >= rewards[i] and
                   (costs[j] < costs[i] or rewards[j] > rewards[i]) for j in range(len(costs)))
    return {i for i in range(len(costs)) if not beaten(i)}


def test_a_front_by_hand():
    costs, rewards = [0.1, 0.2, 0.3, 0.3, 0.05], [0.5, 0.4, 0.9, 0.8, 0.1]
    assert frontier.pareto(costs, rewards) == [4, 0, 2]
    assert frontier.pareto([], []) == [] and frontier.pareto([1.0], [1.0]) == [0]
    assert frontier.pareto([1, 1, 2], [3, 3, 3]) == [0, 1]  # equal points together; as much for more is beaten


def test_a_front_like_its_slow_twin():
    rng = np.random.default_rng(0)
    for _ in range(50):
        costs, rewards = rng.integers(0, 6, (2, rng.integers(1, 15))).tolist()
        front = frontier.pareto(costs, rewards)
        assert set(front) == slow_front(costs, rewards) and len(front) == len(set(front))
        assert [costs[index] for index in front] == sorted(costs[index] for index in front)


def test_points_of_groups():
    near = [tools.trace([0.2] * 6, run=f"n{seed}", label="near", kl=[9, 0.01 + seed, *[0.01 + seed] * 4])
            for seed in (0, 2)]
    far = tools.trace([0.9] * 6, run="f", label="far", kl=[3.0] * 6)
    beaten = tools.trace([0.8] * 6, run="b", label="beaten", kl=[4.0] * 6)
    without = tools.trace([0.8] * 6, run="w", label="without")
    got = frontier.points(groups([*near, far, beaten, without]))
    assert [point.label for point in got] == ["near (imported)", "far (imported)", "beaten (imported)"]
    assert got[0].cost == pytest.approx(1.01) and got[0].reward == pytest.approx(0.2)
    assert got[0].runs[0] == ("n0", pytest.approx(0.01), pytest.approx(0.2))  # the last five rows
    assert [point.on_front for point in got] == [True, True, False]
    got = frontier.points(groups([*near, far, beaten]), beside={"far (imported)"})
    assert [point.on_front for point in got] == [True, False, True]  # it beats nobody either


def test_the_way_of_a_run():
    run = tools.trace([1, np.nan, 3, 4], kl=[0.1, 0.2, 0.3, np.nan])
    costs, rewards = frontier.path(run, smoothing=0.0)
    assert costs.tolist() == [0.1, 0.3] and rewards.tolist() == [1, 3]
    long = tools.trace(np.arange(5000.0), kl=np.sin(np.arange(5000.0)))
    costs, rewards = frontier.path(long, smoothing=0.0, most=300)
    assert costs.size == rewards.size <= 300 and rewards[-1] == 4999 and costs.max() > 0.999
    assert np.sin(rewards) == pytest.approx(costs)  # still pairs of one row
