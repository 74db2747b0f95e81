"""What is logged of an update, by hand: three steps of two actions."""

from math import log

import pytest
import torch

from labcore.classic.deep import measures
from labcore.classic.deep.credit import TrainingBatch
from labcore.classic.deep.distributions import Categorical

OLD = torch.tensor([[0.5, 0.5], [0.8, 0.2], [0.4, 0.6]])
NEW = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.4, 0.6]])  # ratios of the actions taken: 1.6, 0.5, 1
BOUNDS = {"clip_low": 0.2, "clip_high": 0.7, "beta": 2.0}


@pytest.fixture
def data() -> TrainingBatch:
    return TrainingBatch(torch.zeros(3, 1), torch.tensor([0, 0, 1]), Categorical(OLD.log()),
                         torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -1.0, 5.0]), torch.tensor([2.0, 0.0, 3.0]))


def test_surrogates_and_the_kl_of_the_step(data):
    got = measures.surrogates(Categorical(NEW.log()), data, BOUNDS)
    kl = (0.5 * log(0.5 / 0.8) + 0.5 * log(0.5 / 0.2) + 0.8 * log(0.8 / 0.4) + 0.2 * log(0.2 / 0.6)) / 3
    assert got == {key: pytest.approx(value, abs=1e-6) for key, value in {
        "kl/step": kl, "surrogate/cpi": (1.6 - 0.5 + 5) / 3, "surrogate/clip": (1.6 - 0.8 + 5) / 3,
        "surrogate/kl_penalised": (1.6 - 0.5 + 5) / 3 - 2 * kl, "ratio/max": 1.6}.items()}


def test_what_the_clip_cuts_off(data):
    """1.6 is inside 1 + 0.7; 0.5 is below 1 − 0.2 with a negative advantage."""
    assert measures.cut_off(Categorical(NEW.log()), data, BOUNDS) == {
        "clip_frac/low": pytest.approx(1 / 3), "clip_frac/high": 0.0, "clip_frac/region": pytest.approx(1 / 3)}


def test_what_the_critic_explains(data):
    """Errors 1, −2, 0: variance 14/6; returns 2, 0, 3: variance 14/6 too, about another mean."""
    got = measures.explained(data)
    errors, returns = torch.tensor([1.0, -2.0, 0.0]), data.returns
    assert got["explained_variance"] == pytest.approx(float(1 - errors.var() / returns.var()), abs=1e-6)
    assert got["td_error"] == pytest.approx(1.0)
