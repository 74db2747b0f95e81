"""Environments in the user's own modules: imported where the owner of the lab says so, and nowhere else."""

from __future__ import annotations

import json
import sys

import gymnasium as gym
import pytest

from labcore.classic.envs import own_modules
from labcore.classic.envs.gym_world import describe
from labcore.errors import LabError

SOURCE = """
import gymnasium as gym

class Own(gym.Wrapper):
    def __init__(self, **given):
        super().__init__(gym.make("CartPole-v1", **given))

gym.register("Own-v0", entry_point=Own, max_episode_steps=7)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the working directory, and a lab of its own."""
    (tmp_path / "mine_of_test.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "home"))
    yield "mine_of_test"
    sys.modules.pop("mine_of_test", None)
    gym.registry.pop("Own-v0", None)
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]


def test_a_module_is_imported_once_the_owner_has_allowed_it(module, tmp_path):
    with pytest.raises(LabError, match=f"does not import the module '{module}': start a run with --env"):
        describe(f"{module}:Own-v0")
    assert module not in sys.modules
    own_modules.allow(f"{module}:Own-v0")
    assert json.loads((tmp_path / "home" / "environments.json").read_text()) == {module: str(tmp_path)}
    sys.modules.pop(module)
    gym.registry.pop("Own-v0")  # another process
    assert describe(f"{module}:Own-v0").max_steps == 7


@pytest.mark.parametrize(("env_id", "words"), [
    ("no_such_module:Own-v0", "cannot be imported .ModuleNotFoundError"),
    ("../evil:Own-v0", "is not the name of a Python module"),
    ("mine_of_test:Other-v0", "registers no environment 'Other-v0'")])
def test_what_is_no_module_or_registers_nothing_is_not_allowed(module, tmp_path, env_id, words):
    with pytest.raises(LabError, match=words):
        own_modules.allow(env_id)
    assert not (tmp_path / "home" / "environments.json").exists()


def test_a_broken_list_is_said(module, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "environments.json").write_text("[1]")
    with pytest.raises(LabError, match="does not name modules with their folders"):
        describe(f"{module}:Own-v0")
