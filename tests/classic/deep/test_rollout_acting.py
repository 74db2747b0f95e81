"""Acting, and what it leaves behind: which random numbers choose, where episodes begin and end, what they return."""

from functools import partial

import numpy as np
import torch

from labcore.classic.deep.distributions import Categorical
from labcore.classic.deep.evaluation import evaluate, play
from labcore.classic.deep.experience import Episodes
from labcore.classic.deep.rollout import collect


def test_every_step_has_random_numbers_of_its_own(start):
    """Also beyond the first block of 64 steps."""
    session = start("ppo", {"environments": 3})
    generator = torch.Generator()
    generator.set_state(session.generator.get_state())
    batch = collect(session, 70)
    uniforms = torch.cat([torch.rand(64, 3, generator=generator), torch.rand(6, 3, generator=generator)])
    with torch.no_grad():
        expected = Categorical.sample(session.policy(batch.observations), uniforms)
    assert torch.equal(batch.actions, expected) and batch.actions.float().std() > 0


def test_whole_episodes_begin_anew(start):
    """CartPole begins within ±0.05; after a few steps of one action it is far from there."""
    session = start("reinforce")
    for _ in range(6):
        session.environments.step(np.ones(session.environments.count, np.int64))
    assert np.abs(session.environments.observations).max() > 0.5
    batch = collect(session, 300, whole_episodes=True)
    assert batch.observations[0].abs().max() <= 0.05
    assert [int(episode["length"]) for episode in session.episodes.take()] == sorted(batch.mask.sum(0).tolist())


def test_episodes_by_hand():
    """Two environments, four steps; the second one's last two steps come after its end and do not count."""
    episodes = Episodes.none(2)
    rewards = np.array([[1.0, 10], [2, 20], [4, 40], [8, 80]])
    ends = {"terminated": [[0, 0], [0, 1], [0, 1], [0, 0]], "truncated": [[0, 0], [1, 0], [0, 0], [0, 0]]}
    mask = np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool)
    episodes.count(rewards, *(np.array(end, bool) for end in ends.values()), mask, env_steps=100)
    assert episodes.take() == [{"env_step": 104, "return": 3.0, "length": 2, "truncated": True},
                               {"env_step": 104, "return": 30.0, "length": 2, "truncated": False}]
    assert episodes.take() == [] and episodes.returns.tolist() == [12.0, 0.0] and episodes.lengths.tolist() == [2, 0]


def test_an_evaluation_counts_up_to_the_end_and_plays_other_episodes_at_another_step(start):
    session = start("ppo", {"eval_episodes": 8})
    first = evaluate(session)
    assert first.returns == [float(length) for length in first.lengths]  # CartPole rewards each step by 1
    assert len(set(first.lengths)) > 1, "all ended at once: nothing comes after an end"
    assert evaluate(session) == first
    play_again = partial(play, session.acting, session.spec.task, 8, 5)
    assert play_again() == play_again(choose=session.acting.family.mode) != play_again(
        choose=session.acting.family.sample), "an evaluation does not draw"
    session.step = 3
    assert evaluate(session).path[0] != first.path[0]
