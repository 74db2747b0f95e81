"""Who is best of many settings, by each criterion, and how sure that is."""

import numpy as np
import pytest

from labcore.analysis.compare.best import criteria, shares, standing
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import load
from labcore.analysis.compare.table import compare
from labcore.errors import LabError
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.words import saying


def settings(rewards: dict[float, list[float]], **more):
    """Groups of β with one run of three rows per number; each run stays at its number."""
    store = Store()
    ids = [tools.stored(store, [value] * 3, seed=seed, beta=beta, **more) for beta, seeds in rewards.items()
           for seed, value in enumerate(seeds)]
    return groups(load(store, ids))


def test_the_best_mean_leads_and_what_seeds_could_have_dealt_is_a_tie():
    found = settings({0.0: [0.1, 0.2, 0.1], 0.1: [0.8, 0.9, 0.85], 0.2: [0.85, 0.8, 0.84], 0.3: [0.9]})
    stand = standing(found, "reward")
    labels = [group.label for group in found]
    assert stand.leader == labels[3] and stand.few == tuple(labels[:3]) and not stand.beats
    stand = standing(found[:3], "reward")
    assert (stand.leader, stand.beats, stand.ties, stand.few) == (labels[1], (labels[0],), (labels[2],), ())
    assert stand.means[labels[1]].mean == pytest.approx(0.85) and stand.means[labels[1]].low >= 0.8
    assert stand.values[labels[2]] == pytest.approx((0.85, 0.8, 0.84))
    assert stand.shares[labels[0]] == 0 and stand.shares[labels[1]] > stand.shares[labels[2]] > 0.05
    assert sum(stand.shares.values()) == pytest.approx(1)


def test_the_least_is_best_where_lower_is_better(store):
    ids = [tools.stored(store, [0.5] * 3, seed=seed, beta=beta, kl=[beta + 0.01 * seed] * 3) for beta in (0.1, 0.2)
           for seed in range(3)]
    found = groups(load(store, ids))
    stand = standing(found, "kl")
    assert stand.leader == found[0].label and stand.shares[found[0].label] == 1


def test_it_says_what_the_table_says():
    found = settings({0.0: [0.4, 0.6, 0.5], 0.1: [0.5, 0.7, 0.9]})
    table = compare([trace for group in found for trace in group.traces], "reward")
    for measure, (leader, beaten) in table.leaders.items():
        stand = standing(found, "reward", measure)
        assert (stand.leader, stand.beats) == (leader, beaten)
        assert [stand.values[row.label] for row in table.rows] == [row.values[measure] for row in table.rows]
    assert criteria(found, "reward") == ["tokens", "updates", "seconds", "final", "best"]
    assert standing(found, "reward").criterion == "tokens" and standing(found, "reward").place == 300
    assert tuple(criteria(found, "reward")[:-1]) == table.verdicts, "the table judges by the same, in the same order"


def test_runs_without_rows_are_left_out_and_nothing_at_all_is_said(store):
    ids = [tools.stored(store, [0.5] * 3), tools.stored(store, [], state="running", seed=1),
           tools.stored(store, [], state="running", beta=0.3)]
    found = groups(load(store, ids))
    stand = standing(found, "reward")
    assert list(stand.means) == [found[0].label] and stand.means[stand.leader].count == 1 and stand.shares is None
    with pytest.raises(LabError, match="nothing to compare yet"):
        standing(found[1:], "reward")
    with pytest.raises(LabError, match=saying("environment steps", "tokens, updates, seconds, final, best")):
        standing(found, "reward", "env_steps")


def test_shares_by_hand():
    assert shares({"a": [1, 1], "b": [0, 0]}) == {"a": 1, "b": 0}
    assert shares({"a": [1, 1], "b": [1, 1], "c": [0.1, 0.2]}) == {"a": 0.5, "b": 0.5, "c": 0}
    assert shares({"a": [1, 1], "b": [0, 0]}, -1) == {"a": 0, "b": 1}
    # a is 0 or 1 with a quarter each, ½ else; b is always ½: a wins in a quarter, and they share a half
    assert shares({"a": [0, 1], "b": [0.5, 0.5]})["a"] == pytest.approx(0.5, abs=0.03)
    assert shares({"a": [1, 1], "b": [1]}) is None and shares({"a": [1, 1]}) is None
    rng = np.random.default_rng(1)
    many = shares({str(place): rng.normal(size=4) for place in range(12)})
    assert sum(many.values()) == pytest.approx(1)
