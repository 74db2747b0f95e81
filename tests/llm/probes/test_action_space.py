"""The mass of the likeliest tokens: of distributions made by hand, its mean and interval, and of a model's own."""

from unittest.mock import patch

import numpy as np
import pytest
import torch

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.probes.action_space import LEAST, TOP, by_position, sampled_mass, top_mass
from labcore.llm.probes.answer import reader
from labcore.runs import jobs
from tests.llm.runs_on_disk import saved
from tests.llm.tools import TINIER


@pytest.fixture(autouse=True)
def tiny():
    with patch.dict(MODELS, {"tiny": TINIER}):
        yield


@pytest.mark.parametrize("shift", [0.0, 40.0])
def test_the_mass_of_a_geometric_distribution(shift):
    """p_i ∝ r^i over V tokens: the first k hold (1 − r^k) / (1 − r^V), in whatever order they stand."""
    size, r = 24, 0.7
    order = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    logits = (torch.arange(size) * np.log(r) + shift)[order].repeat(2, 3, 1)
    expected = [(1 - r**k) / (1 - r**size) for k in TOP]
    assert top_mass(logits).shape == (2, 3, len(TOP))
    assert top_mass(logits)[1, 2].tolist() == pytest.approx(expected, abs=1e-6)


def test_limits():
    flat, sure = torch.zeros(10), torch.tensor([0.0] * 9 + [1e4])
    assert top_mass(flat).tolist() == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0]), "k / V, and all that there is"
    assert top_mass(sure).tolist() == [1.0] * len(TOP)


def test_only_completions_that_still_run_count():
    """Half are one token longer: their mean is their own, and a position with too few is left out."""
    mass, mask = np.zeros((2 * LEAST, 3, 2)), np.ones((2 * LEAST, 3), bool)
    mass[:, :, 1], mass[LEAST:, 0, 0], mass[:LEAST, 1, 0] = 1.0, 0.5, 0.9  # those behind the mask stay 0
    mask[LEAST:, 1], mask[1:, 2] = False, False
    first, second = by_position(mass, mask)
    assert (first["samples"], second["samples"]) == (2 * LEAST, LEAST)
    assert first["mass"] == [0.25, 1.0] and second["mass"] == [0.9, 1.0] == second["low"] == second["high"]
    assert first["low"][0] < 0.25 < first["high"][0] and first["low"][1] == 1.0


def test_the_interval_is_that_of_a_mean():
    """Of 400 normal numbers: ±1.96 σ / √n."""
    values = np.random.default_rng(1).normal(0.5, 0.1, (400, 1, 1))
    row, = by_position(values, np.ones((400, 1), bool))
    half = 1.96 * values.std() / 20
    assert row["low"][0] == pytest.approx(row["mass"][0] - half, abs=0.15 * half)
    assert row["high"][0] == pytest.approx(row["mass"][0] + half, abs=0.15 * half)


def test_a_run_and_its_base():
    """Of the distribution that is sampled, at the run's own temperature; the same spec gives the same numbers."""
    run = saved("grpo-sort-aaaa", temperature=0.5)
    asked = {"job": "action_space", "models": [f"base:{run}", run], "count": 16, "seed": 3}
    found = jobs.do(asked)
    base, own = found["columns"]
    assert (base["model"], own["model"], own["samples"], own["temperature"]) == (f"base:{run}", f"{run}@2", 16, 0.5)
    assert own["positions"][0]["mass"][0] > base["positions"][0]["mass"][0], "shaken weights are sharper"
    assert all(row["mass"] == sorted(row["mass"]) and row["low"][0] <= row["mass"][0] <= row["high"][0]
               for row in own["positions"])
    assert jobs.do(asked) == found

    session = reader(run, {}, 3)
    mass, mask = sampled_mass(session, 16, 3)
    again = reader(run, {}, 3)
    with patch("labcore.llm.probes.action_space.top_mass", lambda logits: logits.log_softmax(-1)):
        tables, _ = sampled_mass(again, 16, 3)
    assert mass[..., 0][mask] == pytest.approx(tables.exp().max(-1).values[mask], abs=1e-6)
    for change, words in ({"models": []}, "0 models were asked: choose one to 3"), (
            {"count": 7}, "count must be a whole number from 8"), ({"models": ["nobody"]}, "run nobody has no model"):
        with pytest.raises(LabError, match=words):
            jobs.do({**asked, **change})
