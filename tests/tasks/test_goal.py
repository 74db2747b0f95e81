"""The sentence of every task with every loop: it has a subject, and an example that the task's own verifier accepts."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from labcore.catalog import kinds
from labcore.catalog.choices import REWARD
from labcore.catalog.goal import Quote
from labcore.catalog.knob import Value
from labcore.catalog.llm.tasks import VERIFIERS
from labcore.classic.envs.maze_presets import build
from labcore.runs.spec.run_spec import RunSpec, knobs_of
from labcore.tasks.environment import Episode
from labcore.tasks.goal import example, wrong
from labcore.tasks.task import Problem, make_task
from tests.every import every
from tests.words import says

SUBJECTS = ("The model ", "The agent ", "The method ")
FILES = {"prompts": [{"prompt": "What is 3 + 4?", "answer": "7", "completions": ["3 + 4", "is 7"],
                      "labels": [True, 1]}],
         "preferences": [{"prompt": "Say hello.", "chosen": "Hello {you}!", "rejected": "No."}],
         "text": ["It was a dark and stormy night. " * 20]}


def specs() -> Iterator[RunSpec]:
    """A run of every task by an algorithm of every loop that learns it."""
    for kind in kinds.KINDS.values():
        for task in kind.tasks.values():
            for row in {row.loop: row for row in [*kind.algorithms.values()][::-1] if row.learns(task)}.values():
                yield spec(kind.key, row.key, task.key)


def spec(kind: str, algorithm: str, task: str, data: str | None = None, **moved: Value) -> RunSpec:
    knobs = knobs_of(kinds.algorithm(algorithm, kind), kinds.task(task, kind))
    values = {knob.key: knob.default for knob in knobs} | moved
    return RunSpec(kind, algorithm, task, kinds.kind(kind).model, values, data=data)


def written(folder: Path, name: str) -> str:
    path = folder / f"{name}.{'txt' if name == 'text' else 'jsonl'}"
    rows = FILES[name]
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


@every("spec", [*specs()])
def test_every_task_says_what_is_learnt_with_a_true_example(spec: RunSpec, tmp_path: Path) -> None:
    task, kind = spec.task_row, spec.kind_row
    if task.data:
        spec = RunSpec(spec.kind, spec.algorithm, spec.task, spec.model, spec.knobs,
                       data=written(tmp_path, task.data))
    goal = spec.goal()
    sentence = str(goal)
    assert sentence.startswith(SUBJECTS) and sentence.endswith(".") and len(sentence) < 240
    assert "{" not in sentence.replace("{you}", "") and "None" not in sentence
    quotes = [part for part in goal.parts if isinstance(part, Quote)]
    if kind.goal != "labcore.tasks.goal:goal":
        return
    row, reward = example(task, spec.knobs, spec.data)
    assert " ".join(row.prompt.split()).startswith(quotes[0].rstrip("…"))
    if isinstance(row, Problem) and spec.row.loop == "online":
        assert make_task(task, spec.knobs, spec.data).score(row, row.answer).reward == reward
        shown = any(row.answer.startswith(quote.rstrip("…")) for quote in quotes[1:])
        assert shown or task.data or "{answer}" not in task.goal[""], "only the user's verifier may need no answer"
        assert reward == 1 or not shown or f"{reward:.2g}" in sentence


def test_the_verifier_decides_what_the_sentence_asks_for(tmp_path: Path) -> None:
    data = written(tmp_path, "prompts")
    (lettered := tmp_path / "letters.jsonl").write_text('{"prompt": "A or B?", "answer": "B"}', encoding="utf-8")
    said = {verifier: str(spec("llm", "grpo", "prompts", str(lettered) if verifier == "choice" else data,
                               verifier=verifier, pattern="[0-9]").goal()) for verifier in VERIFIERS}
    assert says(said["numeric"], "`What is 3 + 4?`", "earns 1", "last number", "7")
    assert "must write `7`, and earns 1 if exact" in said["exact"] and "matches `[0-9]`" in said["regex"]
    assert "1 to 40 characters" in said["length"] and len(set(said.values())) == len(VERIFIERS)


@pytest.mark.parametrize("key", ["guess", "lookup", "word_maze", "twenty_questions"])
def test_an_episode_of_the_example_has_an_answer_that_matters_and_a_lost_one_is_played_too(key: str) -> None:
    task, knobs = kinds.task(key), spec("llm", "grpo", key).knobs
    row, reward = example(task, knobs, None)
    assert reward == 1 and len(row.answer.moves) == 2
    lost = wrong(task, knobs, row)
    assert isinstance(lost, Episode) and lost.score.reward < 1


def test_the_example_has_the_knobs_of_the_run() -> None:
    row, _ = example(kinds.task("sort"), spec("llm", "grpo", "sort", letters=3).knobs, None)
    assert len(row.prompt) == 4 and f"must write `{''.join(sorted(row.prompt[:3]))}`" in str(
        spec("llm", "grpo", "sort", letters=3).goal())
    assert "share of digits" in str(spec("llm", "grpo", "add", reward_shape="shaped").goal())


@pytest.mark.parametrize("source", REWARD.names)
def test_a_reward_that_is_not_the_verifiers_is_named(source: str) -> None:
    sentence = str(spec("llm", "grpo", "sort", reward_source=source, reward_noise=0.1, correct_weight=1.0,
                        format_weight=0.5, uncertainty_weight=2.0, judge_model="m", judge_url="http://x/v1",
                        reward_function="", reward_weights="").goal())
    assert ("earns 1 if exact" in sentence) == (not REWARD[source].words)
    assert sentence.startswith("The model sees `") and "  " not in sentence and ".." not in sentence


def test_rewards_of_a_maze_are_those_of_its_cells() -> None:
    for task in kinds.kind("maze").tasks.values():
        run = spec("maze", "q_learning", task.key)
        maze, sentence = build(task, run.knobs), str(run.goal())
        assert f"{maze.step_reward:g} per move".replace("-", "−") in sentence
        for cell in (cell for row in maze.cells for cell in row if cell.kind in ("goal", "trap")):
            assert cell.reward is not None
            assert f"{cell.reward:g}".replace("-", "−") in sentence


CONTINUOUS = {"Pendulum-v1", "MountainCarContinuous-v0", "LunarLanderContinuous-v3"}


@pytest.mark.parametrize("task", sorted(kinds.kind("cartpole").tasks.keys() - CONTINUOUS))
def test_the_reward_of_a_step_is_that_of_the_world(task: str) -> None:
    env = gym.make(task)
    env.reset(seed=0)
    action = 0 if task != "Taxi-v4" else 1
    reward = float(env.step(action)[1])
    env.close()
    assert f"{reward:g} per ".replace("-", "−") in str(spec("cartpole", "ppo", task).goal())


def test_the_reward_of_a_continuous_step_is_the_formula_that_is_said() -> None:
    env = gym.make("Pendulum-v1")
    (cos, sin, speed), _ = env.reset(seed=0)
    reward = float(env.step(np.array([1.5], dtype=np.float32))[1])
    assert reward == pytest.approx(-(math.atan2(sin, cos)**2 + 0.1 * speed**2 + 0.001 * 1.5**2), rel=1e-5)
    assert "−(θ² + 0.1 ω² + 0.001 u²)" in str(spec("cartpole", "ppo", "Pendulum-v1").goal())
    car = gym.make("MountainCarContinuous-v0")
    car.reset(seed=0)
    assert float(car.step(np.array([0.5], dtype=np.float32))[1]) == pytest.approx(-0.1 * 0.5**2)
    assert "0.1 times the squared force" in str(spec("cartpole", "ppo", "MountainCarContinuous-v0").goal())


def test_a_world_that_the_catalog_does_not_know_is_described_by_its_sizes() -> None:
    sentence = str(spec("cartpole", "ppo", "FrozenLake8x8-v1").goal())
    assert sentence.startswith("The agent sees one of 64 states") and "one of 4 actions" in sentence


def test_a_file_that_is_not_there_yet_is_no_fault() -> None:
    assert "your file" in str(spec("llm", "grpo", "prompts").goal())
