"""Environments in the user's own modules: imported where the owner of the lab says so, and nowhere else."""

import json
import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from labcore.classic.envs import own_modules
from labcore.classic.envs.gym_env import make_environments
from labcore.classic.envs.gym_world import describe
from labcore.errors import LabError

DOCS = Path(__file__).parents[3] / "docs" / "environments.md"
[SOURCE] = re.findall(r"```python own_environment\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the working directory, and a lab of its own."""
    (tmp_path / "mine_of_test.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "home"))
    yield "mine_of_test"
    sys.modules.pop("mine_of_test", None)
    gym.registry.pop("Reach-v0", None)
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]


def test_a_module_is_imported_once_the_owner_has_allowed_it(module, tmp_path):
    with pytest.raises(LabError, match=f"does not import the module '{module}': start a run with --env"):
        describe(f"{module}:Reach-v0")
    assert module not in sys.modules
    own_modules.allow(f"{module}:Reach-v0")
    assert json.loads((tmp_path / "home" / "environments.json").read_text()) == {module: str(tmp_path)}
    sys.modules.pop(module)
    gym.registry.pop("Reach-v0")  # another process
    assert describe(f"{module}:Reach-v0").max_steps == 100
    worlds = make_environments(f"{module}:Reach-v0", 2, 0, "speed=0.5")
    ends = [worlds.step(np.ones((2, 1), np.float32)).terminated for _ in range(6)]
    assert np.any(ends, axis=0).all()  # half a step at a time, it is there after four


@pytest.mark.parametrize(("env_id", "words"), [
    ("no_such_module:Reach-v0", "cannot be imported .ModuleNotFoundError"),
    ("../evil:Reach-v0", "is not the name of a Python module"),
    ("mine_of_test:Other-v0", "registers no environment 'Other-v0'")])
def test_what_is_no_module_or_registers_nothing_is_not_allowed(module, tmp_path, env_id, words):
    with pytest.raises(LabError, match=words):
        own_modules.allow(env_id)
    assert not (tmp_path / "home" / "environments.json").exists()


def test_a_broken_list_is_said(module, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "environments.json").write_text("[1]")
    with pytest.raises(LabError, match="does not name modules with their folders"):
        describe(f"{module}:Reach-v0")
