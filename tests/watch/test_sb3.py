"""The callback for Stable-Baselines3, with stand-ins of the two classes it derives from, and with the real ones where
they are installed."""

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from labcore.watch import sb3
from labcore.watch.sb3 import LabCallback, numbers, settings


class KVWriter:
    """stable_baselines3.common.logger.KVWriter: the logger writes only to outputs of this class."""


class BaseCallback:
    """stable_baselines3.common.callbacks.BaseCallback, as far as `learn` and a subclass use it."""

    def __init__(self, verbose: int = 0):
        self.model: Any = None
        self.locals: dict[str, Any] = {}

    @property
    def logger(self) -> Any:
        return self.model.logger

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals = locals_
        self._on_training_start()

    def on_training_end(self) -> None:
        self._on_training_end()


class PPO:
    """A model whose logger dumps as `stable_baselines3.common.logger.Logger` does."""

    learning_rate, gamma, n_steps, n_envs, rollout_buffer, buffer_size = 3e-4, 0.99, 512, 1, object(), None

    def __init__(self) -> None:
        self.clip_range = lambda left: 0.2 * left
        self.logger = SimpleNamespace(output_formats=[])

    def get_env(self) -> Any:
        return SimpleNamespace(envs=[SimpleNamespace(spec=SimpleNamespace(id="CartPole-v1"))])

    def learn(self, total_timesteps: int, callback: Any) -> None:
        callback.model = self
        callback.on_training_start({"total_timesteps": total_timesteps}, {})
        for step in (512, 1024):
            for each in self.logger.output_formats:
                if isinstance(each, KVWriter):
                    each.write({"rollout/ep_rew_mean": np.float64(step / 8), "time/iterations": step // 512,
                                "video": object(), "note": "text"}, {}, step)
        callback.on_training_end()


@pytest.fixture
def stand_ins(monkeypatch):
    for name, kind in (("callbacks", BaseCallback), ("logger", KVWriter)):
        module = ModuleType(f"stable_baselines3.common.{name}")
        setattr(module, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("stable_baselines3", "stable_baselines3.common"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def lines(home: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(home.glob("watched/*/spool/*")) for line in
            path.read_text().splitlines()]


@pytest.mark.parametrize("name, shown", [("", "PPO CartPole-v1"), ("mine", "mine")])
def test_each_dump_is_a_row_at_its_step_of_the_environment(name, shown, stand_ins, tmp_path):
    model = PPO()
    model.learn(1000, LabCallback(name, home=str(tmp_path)))
    begin, *rows, end = lines(tmp_path)
    assert begin["name"] == shown and begin["tool"] == "Stable-Baselines3"
    assert begin["config"] == {"algorithm": "PPO", "learning_rate": 3e-4, "gamma": 0.99, "n_envs": 1,
                               "clip_range": 0.2, "environment": "CartPole-v1", "rollout_steps": 512,
                               "max_steps": 1024}, "the last rollout is completed"
    assert [(row["step"], row["numbers"]) for row in rows] == [
        (step, {"time/total_timesteps": step, "rollout/ep_rew_mean": step / 8, "time/iterations": step // 512})
        for step in (512, 1024)]
    assert end["kind"] == "end" and end["state"] == "finished"
    assert model.logger.output_formats == [], "the logger is left as it was"


def test_numbers_of_arrays_are_sent_and_other_things_are_not():
    assert numbers({"a": 1, "b": np.float32(0.5), "c": "text", "d": object(), "e": None}) == {"a": 1, "b": 0.5}


def test_the_steps_of_an_n_step_return_are_no_rollout():
    model = PPO()
    model.n_steps = 3
    assert sb3.steps_of(model, 10) == 12 and settings(model)["rollout_steps"] == 3
    dqn = SimpleNamespace(n_steps=3, n_envs=1, get_env=lambda: None)
    assert sb3.steps_of(dqn, 10) == 10 and settings(dqn)["n_steps"] == 3


def test_an_environment_without_an_id_has_none():
    model = PPO()
    model.get_env = lambda: SimpleNamespace(envs=[])
    assert "environment" not in settings(model) and settings(model)["algorithm"] == "PPO"


def test_a_real_ppo(tmp_path):
    real = pytest.importorskip("stable_baselines3")
    model = real.PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=1, device="cpu")
    model.learn(128, callback=LabCallback(home=str(tmp_path)))
    begin, *rows, end = lines(tmp_path)
    assert begin["name"] == "PPO CartPole-v1" and begin["config"].keys() <= {
        *sb3.SETTINGS, "algorithm", "environment", "max_steps", "rollout_steps"}
    assert [row["step"] for row in rows] == [64, 128] and rows[1]["numbers"]["train/n_updates"] == 10
    assert end["state"] == "finished"
