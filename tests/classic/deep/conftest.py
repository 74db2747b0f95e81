"""Reference numbers, and small sessions of every method."""

import pytest
import torch

from labcore.classic.deep.session import DeepSession
from labcore.runs.spec.run_spec import make
from tests import references


@pytest.fixture(scope="session")
def golden():
    """golden(name): the reference file."""
    return references.golden


@pytest.fixture(scope="session")
def close():
    """close(actual, expected): equal to float32's rounding, or to 1e-9 where `actual` is float64."""
    def check(actual, expected, atol=None):
        actual = torch.as_tensor(actual)
        rtol, least = (1e-9, 1e-11) if actual.dtype == torch.float64 else (1e-5, 2e-6)
        torch.testing.assert_close(actual.detach().double(), torch.as_tensor(expected, dtype=torch.float64), rtol=rtol,
                                   atol=atol or least)
    return check


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


SMALL = {"ppo": {"environments": 4, "rollout_steps": 64, "epochs": 2, "mini_batches": 2},
         "a2c": {"environments": 4, "rollouts_per_step": 2},
         "trpo": {"environments": 4, "rollout_steps": 64, "critic_epochs": 2},
         "reinforce": {"environments": 3, "critic_epochs": 2, "variance_every": 2},
         "dqn": {"gradient_steps": 4, "learning_starts": 0, "rollout_steps": 8, "buffer_size": 100}}


@pytest.fixture(scope="session")
def start():
    """start(method, knobs, task, seed, steps, resume): a session small enough to run in a fraction of a second."""
    def started(method, knobs=None, task="CartPole-v1", seed=1, steps=4, resume=None, **spec):
        given = {**SMALL[method], "eval_episodes": 1, "eval_every": 2, **(knobs or {})}
        return DeepSession.start(make(kind="cartpole", algorithm_key=method, task_key=task, knobs=given, seed=seed,
                                      steps=steps, **spec), resume=resume)
    return started
