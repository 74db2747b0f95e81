"""Send a run of Stable-Baselines3 to the lab while it trains:

    from labcore.watch.sb3 import LabCallback

    model.learn(100_000, callback=LabCallback("ppo cartpole"))

The callback sends all metrics that the model logs, at the number of environment steps. Other outputs of the logger do
not matter. Stable-Baselines3 is imported when a callback is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from labcore.watch import Watch

SETTINGS = ("learning_rate", "gamma", "gae_lambda", "n_steps", "batch_size", "n_epochs", "clip_range", "ent_coef",
            "vf_coef", "max_grad_norm", "target_kl", "buffer_size", "learning_starts", "tau", "train_freq",
            "gradient_steps", "target_update_interval", "exploration_fraction", "exploration_final_eps", "n_envs",
            "seed")


def LabCallback(name: str = "", *, home: str | None = None, url: str | None = None, token: str | None = None) -> Any:
    """Return a callback for `learn`. `name` is the run's name in the lab; `home` is the folder of a lab on this
    machine, `url` and `token` belong to a lab on another one."""
    callback, writer = (resolve_name(f"stable_baselines3.common.{each}") for each in (
        "callbacks:BaseCallback", "logger:KVWriter"))

    class Callback(callback):  # type: ignore[misc,valid-type]  # imported only here: the lab does not need SB3
        def _on_training_start(self) -> None:
            found = settings(self.model)
            named = name or f"{found['algorithm']} {found.get('environment', '')}".strip()
            self.run = Watch(named, home=home, url=url, token=token, tool="Stable-Baselines3",
                             config={**found, "max_steps": steps_of(self.model, self.locals["total_timesteps"])})
            self.output = Output()
            self.output.run = self.run
            self.logger.output_formats.append(self.output)

        def _on_step(self) -> bool:
            return True

        def _on_training_end(self) -> None:
            self.logger.output_formats.remove(self.output)
            self.run.finish()

    class Output(writer):  # type: ignore[misc,valid-type]  # as above
        run: Watch

        def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, Any], step: int = 0) -> None:
            self.run.log(step, {"time/total_timesteps": step, **numbers(key_values)})

        def close(self) -> None:
            pass  # the run ends with the training
    return Callback()


def numbers(logged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a dump, without texts, figures and videos."""
    return {key: value for key, value in logged.items() if isinstance(value, (int, float)) or hasattr(value, "item")}


def settings(model: Any) -> dict[str, Any]:
    """Return the hyperparameters of a model (a schedule by its initial value), its class and its environment's id."""
    found: dict[str, Any] = {"algorithm": type(model).__name__}
    for key in SETTINGS:
        value = getattr(model, key, None)
        value = value(1.0) if callable(value) else value
        if isinstance(value, (bool, int, float, str)):
            found[key] = value
    if hasattr(model, "rollout_buffer"):  # in the lab n_steps means an n-step return, as in DQN
        found["rollout_steps"] = found.pop("n_steps")
    first = next(iter(getattr(model.get_env(), "envs", ())), None)
    spec = getattr(first, "spec", None)
    return {**found, "environment": spec.id} if spec else found


def steps_of(model: Any, total: int) -> int:
    """Return the environment step at which `learn(total)` ends, because it completes its last rollout."""
    each = model.n_steps * model.n_envs if hasattr(model, "rollout_buffer") else 1
    return -(-total // each) * each
