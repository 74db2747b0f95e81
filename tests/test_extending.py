"""docs/extending.md does what it says: its code blocks, run as they stand, add an algorithm, a choice, a task, a maze
and a method for it, and a deep method.
"""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace
from math import isfinite
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import torch

from labcore.catalog import cartpole, choices, maze
from labcore.catalog.families import credit
from labcore.catalog.llm import algorithms, online, tasks
from labcore.deep.session import DeepSession
from labcore.envs import maze_presets
from labcore.llm.session import LlmSession
from labcore.maths import advantages
from labcore.maths.call import call, member
from labcore.spec.run_spec import make
from labcore.tabular import temporal_difference
from labcore.tabular.session import TabularSession
from labcore.tabular.td_learner import Tables
from labcore.tabular.walks import Step

DOC = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```python (\w+)\n(.*?)```", DOC, flags=re.DOTALL))
FEW = {"prompts_per_step": 2, "group_size": 4, "sft_steps": 0}


def evaluated(block: str, module: types.ModuleType) -> object:
    """The value of an expression of the page, in the file that it is to be written into."""
    return eval(BLOCKS[block], dict(vars(module)))


@pytest.fixture
def reverse(monkeypatch: pytest.MonkeyPatch) -> str:
    module = types.ModuleType("labcore.tasks.reverse")
    exec(BLOCKS["task"], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = evaluated("row", tasks)
    monkeypatch.setitem(tasks.TASKS, row.key, row)
    return row.key


def test_an_algorithm_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = evaluated("algorithm", online)
    monkeypatch.setitem(algorithms.ALGORITHMS, row.key, row)
    records = list(LlmSession.start(make(algorithm_key=row.key, task_key="sort", knobs=FEW, steps=2)).run())
    assert [record.step for record in records] == [1, 2]
    assert all(isfinite(value) for record in records for value in record.metrics.values())


def test_a_choice_is_one_function_and_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = evaluated("member", credit)
    monkeypatch.setattr(advantages, chosen.key, None, raising=False)  # taken away again at the end
    exec(BLOCKS["choice"], vars(advantages))
    family = replace(choices.ADVANTAGE, members=(*choices.ADVANTAGE.members, chosen))
    rewards = torch.tensor([[0.0, 1.0, 0.0, 9.0, torch.nan], [3.0, 1.0, 2.0, torch.nan, torch.nan]])
    got = call(member(family, chosen.key), {}, {"rewards": rewards})
    assert got.tolist() == [[0, 1, 0, 9, 0], [1, -1, 0, 0, 0]]
    assert call(member(family, "group_mean"), {}, {"rewards": rewards})[0].tolist() == [-2.5, -1.5, -2.5, 6.5, 0]


def test_a_task_is_one_class_and_its_row(reverse: str) -> None:
    session = LlmSession.start(make(algorithm_key="grpo", task_key=reverse, knobs=FEW, steps=1))
    record = next(record for record in session.run() if record is not None)
    first = record.samples["groups"][0]
    assert first["answer"] == first["prompt"][:-1][::-1]


def test_a_maze_is_one_function_and_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    _walk("q_learning", _maze(monkeypatch))


def test_a_method_is_one_function_and_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = evaluated("method_row", maze)
    monkeypatch.setitem(maze.ALGORITHMS, row.key, row)
    monkeypatch.setattr(temporal_difference, row.key, None, raising=False)  # taken away again at the end
    exec(BLOCKS["method"], vars(temporal_difference))
    _walk(row.key, _maze(monkeypatch), blame=0.5)
    tables = Tables(np.array([[0.0], [0.0]]))
    knobs = {"alpha": 1.0, "alpha_decay": 0.0, "gamma": 1.0, "blame": 0.25}
    for reward, expected in ((8.0, 8.0), (4.0, 7.0)):  # 8; then 8 + ¼ (4 − 8)
        resolve_name(row.method)(tables, Step(0, 0, 0, reward, 1, True, False), knobs, np.random.default_rng(0))
        assert tables.q[0, 0] == expected


def test_a_deep_method_is_one_loop_and_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("labcore.deep.weighted")
    exec(BLOCKS["deep_method"], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = evaluated("deep_row", cartpole)
    monkeypatch.setitem(cartpole.ALGORITHMS, row.key, row)
    session = DeepSession.start(make(kind="cartpole", algorithm_key=row.key, task_key="CartPole-v1", steps=30))
    records = list(session.run())
    assert max(record.metrics.get("eval_return", 0) for record in records) > 3 * records[0].metrics["eval_return"]


def _maze(monkeypatch: pytest.MonkeyPatch) -> str:
    row = evaluated("maze_row", maze)
    monkeypatch.setattr(maze_presets, row.key, None, raising=False)
    exec(BLOCKS["maze"], vars(maze_presets))
    monkeypatch.setitem(maze.TASKS, row.key, row)
    return row.key


def _walk(method: str, task: str, **knobs: float) -> None:
    """The method finds the way through the maze."""
    spec = make(kind="maze", algorithm_key=method, task_key=task, steps=100, knobs={"pace": 0, **knobs})
    *_, last = TabularSession.start(spec).run()
    assert last.metrics["start_value/greedy"] == pytest.approx(last.metrics["start_value/best"])
    assert last.metrics["moves_to_goal"] >= 8
