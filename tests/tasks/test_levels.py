"""Levels of prompts: drawn alike, read from files, and refused in words."""

from collections import Counter

import numpy as np
import pytest

from labcore.catalog.kinds import task
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from labcore.tasks.levels import level_of
from labcore.tasks.task import make_task


@pytest.mark.parametrize("key, size, highest, count", [
    ("sort", "letters", 5, lambda prompt: len(prompt) - 1),
    ("add", "digits", 4, lambda prompt: len(prompt.split("+")[0])),
    ("countdown", "numbers", 4, lambda prompt: prompt.count(",") + 1)])
def test_every_level_comes_as_often_and_is_the_size_of_its_prompt(key, size, highest, count):
    knobs = make(algorithm_key="grpo", task_key=key, knobs={"easiest": 2, size: highest}).knobs
    found = make_task(task(key), knobs).problems(300, np.random.default_rng(0))
    assert all(problem.level == count(problem.prompt) for problem in found)
    levels = Counter(problem.level for problem in found)
    assert set(levels) == set(range(2, highest + 1)) and min(levels.values()) > 200 / len(levels)


def test_without_levels_prompts_and_random_numbers_are_as_before():
    for key in ("sort", "add", "countdown"):
        knobs = dict(make(algorithm_key="grpo", task_key=key).knobs)
        rng, old = np.random.default_rng(3), np.random.default_rng(3)
        found = make_task(task(key), knobs).problems(20, rng)
        knobs.pop("easiest")
        assert make_task(task(key), knobs).problems(20, old) == found and rng.random() == old.random()
        assert {problem.level for problem in found} == {None}


@pytest.mark.parametrize("easiest", [1, 7])
def test_a_level_that_the_task_has_not_is_refused(easiest):
    knobs = make(algorithm_key="grpo", task_key="sort", knobs={"easiest": easiest}).knobs
    with pytest.raises(LabError, match=f"`easiest` is {easiest}.*2 … 6"):
        make_task(task("sort"), knobs)


@pytest.mark.parametrize("row, level", [({"level": "Level 5"}, 5), ({"difficulty": "3"}, 3), ({"level": 2.5}, None),
                                        ({"level": 21}, None), ({"level": True}, None), ({"level": None}, None)])
def test_the_level_of_a_row_of_a_file(row, level):
    assert level_of(row) == level
