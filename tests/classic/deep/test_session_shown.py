"""What a session keeps for pictures: the evaluation's first episode, values against returns, ratios."""

import json

import pytest

from labcore.classic.deep.evaluation import evaluate
from labcore.classic.deep.session import DeepSession
from labcore.runs.spec.run_spec import make


def session(algorithm: str, task: str = "CartPole-v1", **knobs) -> DeepSession:
    return DeepSession.start(make(kind="cartpole", algorithm_key=algorithm, task_key=task, steps=2,
                                  knobs={"eval_episodes": 2, **knobs}))


@pytest.mark.parametrize("task, width", [("CartPole-v1", 4), ("FrozenLake-v1", 1)])
def test_the_path_of_an_evaluation_is_its_first_episode_to_the_end(task, width):
    found = evaluate(session("ppo", task))
    assert len(found.path) == len(found.rewards) + 1 == found.lengths[0] + 1
    assert sum(found.rewards) == found.returns[0] and {len(row) for row in found.path} == {width}
    if width == 4:  # it ended where CartPole ends
        position, _, angle, _ = found.path[-1]
        assert not found.truncated and (abs(position) > 2.4 or abs(angle) > 0.2094)
        assert all(abs(row[2]) <= 0.2095 for row in found.path[:-1])


def test_the_ratios_come_with_the_clip_range_that_their_updates_had():
    run = session("ppo", clip_low=0.1, clip_high=0.3, anneal=True, eval_every=1).run()
    assert next(run).samples["clip"] == [0.1, 0.3] and next(run).samples["clip"] == [0.05, 0.15]
    assert "clip" not in next(session("a2c").run()).samples


def test_of_very_many_episodes_some_are_kept(monkeypatch):
    record = next(session("reinforce", environments=12, critic_epochs=1).run())
    assert record.samples["ended"] == len(record.samples["episodes"]) == record.metrics["episodes"] == 12
    monkeypatch.setattr("labcore.classic.deep.record.SHOWN", 7)
    capped = next(session("reinforce", environments=12, critic_epochs=1).run())
    assert capped.samples["ended"] == 12 and len(capped.samples["episodes"]) == 7 and capped.metrics == record.metrics
    every = record.samples["episodes"]
    assert capped.samples["episodes"][0] == every[0] and capped.samples["episodes"][-1] == every[-1]


def test_a_time_limit_is_no_end():
    assert evaluate(session("ppo", "Acrobot-v1")).truncated


@pytest.mark.parametrize("algorithm", ["ppo", "trpo", "a2c", "reinforce", "dqn"])
def test_each_evaluation_says_what_the_critic_and_the_update_did(algorithm):
    small = {"dqn": {"learning_starts": 0, "gradient_steps": 2}}.get(algorithm, {})
    samples = next(session(algorithm, **small).run()).samples
    json.dumps(samples, allow_nan=False)
    assert samples["best"]["step"] == 1 and samples["evaluation"]["path"]
    assert ("scatter" in samples) == ("ratios" in samples) == (algorithm != "dqn")
    if algorithm != "dqn":
        ratio, advantage = samples["ratios"]["ratio"], samples["ratios"]["advantage"]
        assert len(ratio) == len(advantage) == len(samples["scatter"]["values"])
        assert all(each > 0 for each in ratio) and any(abs(each - 1) > 1e-3 for each in ratio)
    assert ("surrogate" in samples) == (algorithm == "ppo")


def test_the_clip_is_drawn_and_what_it_cuts_off_is_marked():
    samples = next(session("ppo", clip_low=0.002, clip_high=0.003, learning_rate=0.02).run()).samples
    low, high = samples["surrogate"]["bounds"]
    assert (low, high) == (1 - samples["clip"][0], 1 + samples["clip"][1])
    found = samples["ratios"]
    assert found["cut"] == ["high" if ratio > high and advantage > 0 else "low" if ratio < low and advantage < 0 else ""
                            for ratio, advantage in zip(found["ratio"], found["advantage"], strict=True)]
    assert {*found["cut"]} == {"", "low", "high"}
