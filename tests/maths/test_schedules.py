"""Schedules are those of transformers, at every update of a run, and fall to 0 exactly at its end. β and the entropy
bonus that move by themselves, by hand.
"""

from itertools import product

import pytest
import torch
from transformers import get_scheduler

from labcore.catalog.llm.optimizer import SCHEDULE
from labcore.maths.schedules import SCHEDULES, adaptive_entropy, adaptive_kl
from tests.every import every

THEIRS = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def theirs(name: str, warmup: int, updates: int) -> list[float]:
    """The factor of each update, as a Trainer takes it."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, found = get_scheduler(THEIRS[name], optimizer, warmup, updates), []
    for _ in range(updates):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


def test_every_choice_has_its_function():
    assert tuple(SCHEDULES) == SCHEDULE.choices and SCHEDULE.default == "constant"


@every("name, warmup, updates_per_step", [*product(SCHEDULES, (0, 1, 3, 10, 20), (1, 4))])
def test_the_factors_are_those_of_get_scheduler(name, warmup, updates_per_step):
    steps = 10
    ours = [SCHEDULES[name](update / updates_per_step, warmup, steps) for update in range(steps * updates_per_step)]
    assert ours == pytest.approx(theirs(name, warmup * updates_per_step, steps * updates_per_step), abs=1e-12)


@pytest.mark.parametrize("name, end", [("constant", 1.0), ("linear", 0.0), ("cosine", 0.0)])
def test_beyond_the_last_step_nothing_rises_again(name, end):
    assert [SCHEDULES[name](at, 2, 10) for at in (10, 11, 25.5)] == pytest.approx([end] * 3)


def test_half_way_by_hand():
    """10 steps, 2 of warm-up: in the middle of the other 8, at step 6, both falling ones are at a half."""
    assert [SCHEDULES[name](6, 2, 10) for name in SCHEDULES] == pytest.approx([1.0, 0.5, 0.5])
    assert SCHEDULES["cosine"](4, 2, 10) == pytest.approx(0.853553390593)  # (1 + cos π/4) / 2


@pytest.mark.parametrize("kl, error", [(0.1, 0.0), (0.11, 0.1), (0.12, 0.2), (3.0, 0.2), (0.09, -0.1), (0.0, -0.2)])
def test_a_step_by_hand(kl, error):
    assert adaptive_kl(2.0, kl, 0.1, 10_000, 256) == pytest.approx(2 * (1 + error * 256 / 10_000), rel=1e-12)


@pytest.mark.parametrize("kl, factor", [(0.0, 0.8), (3.0, 1.2)])
def test_a_step_beyond_the_horizon_moves_as_far_as_one_of_it(kl, factor):
    assert adaptive_kl(1.0, kl, 0.1, 1, 4096) == adaptive_kl(1.0, kl, 0.1, 256, 256) == pytest.approx(factor)


@pytest.mark.parametrize("coefficient, entropy, found", [
    (0.01, 0.1, 0.03), (0.05, 0.3, 0.03), (0.01, 0.2, 0.0), (0.0, 0.9, 0.0), (0.99, 0.0, 1.0)])
def test_the_entropy_bonus_rises_below_its_target_and_falls_at_and_above_it(coefficient, entropy, found):
    assert adaptive_entropy(coefficient, entropy, 0.2, 0.02) == pytest.approx(found)
