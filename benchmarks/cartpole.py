"""CartPole-v1 beside Stable-Baselines3, in one process and on one thread: `python -m benchmarks.cartpole`.

Solved: three greedy evaluations in a row of 20 episodes each with a mean of 475 or more, one every 1,024 environment
steps. Seconds of training alone: imports and evaluations are left out. Both sides are evaluated by the same code in
the same worlds. Stable-Baselines3 runs with the hyperparameters of its zoo, the lab with its own defaults.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from labcore.classic.evaluation import play
from labcore.classic.session import Session
from labcore.runs.spec import make

EVALUATE_EVERY, GOOD, IN_A_ROW, EPISODES = 1024, 475.0, 3, 20
STEPS = {"ppo": 60, "a2c": 150, "trpo": 100, "reinforce": 40, "dqn": 250}
PEER_STEPS = {"ppo": 100_000, "a2c": 100_000, "dqn": 50_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
            "learning_rate": lambda remaining: 1e-3 * remaining, "clip_range": lambda remaining: 0.2 * remaining},
    "a2c": {"ent_coef": 0.0},
    "dqn": {"learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "gamma": 0.99,
            "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [256, 256]}},
}


@dataclass
class Watch:
    """Evaluates as training goes by, with the clock stopped. `seconds` is None until it is solved."""

    seed: int
    trained: float = 0.0
    steps: int = 0
    seconds: float | None = None
    _row: int = 0
    _next: int = EVALUATE_EVERY

    def __post_init__(self):
        self._since = time.perf_counter()

    def look(self, steps: int, network: Callable[[], nn.Module]) -> bool:
        """Tell of the environment steps made so far. Returns whether it is solved."""
        if steps < self._next:
            return False
        self.trained += time.perf_counter() - self._since
        self._next = steps - steps % EVALUATE_EVERY + EVALUATE_EVERY
        good = play(network(), "CartPole-v1", EPISODES, seed=1000 * self.seed + steps).mean >= GOOD
        self._row = self._row + 1 if good else 0
        self.steps = steps
        if self._row == IN_A_ROW:
            self.seconds = self.trained
        self._since = time.perf_counter()
        return self.seconds is not None


def lab(method: str, seed: int) -> Watch:
    """The lab's method with its own knobs, its own evaluations off."""
    session = Session.start(make(kind="cartpole", algorithm_key=method, task_key="CartPole-v1", seed=seed,
                                 steps=STEPS[method], knobs={"eval_every": 10**9, "eval_episodes": 1}))
    watch = Watch(seed)
    for record in session.run():
        if watch.look(record.env_steps, lambda: session.acting):
            break
    return watch


class Logits(nn.Module):
    """What a peer's network says of observations: logits, or Q values."""

    def __init__(self, policy: Any):
        super().__init__()
        self.policy = policy

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if hasattr(self.policy, "q_net"):
            return self.policy.q_net(observations)
        return self.policy.get_distribution(observations).distribution.logits


def peer(method: str, seed: int) -> Watch:
    """Stable-Baselines3 with its zoo's hyperparameters."""
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return not watch.look(self.num_timesteps, lambda: Logits(self.model.policy))

    environments = make_vec_env("CartPole-v1", n_envs=1 if method == "dqn" else 8, seed=seed)
    model = getattr(stable_baselines3, method.upper())("MlpPolicy", environments, seed=seed, device="cpu",
                                                       **SETTINGS[method])
    watch = Watch(seed)
    model.learn(PEER_STEPS[method], callback=Look())
    return watch


def table(rows: list[tuple[str, list[Watch]]]) -> str:
    """One line per contender: seeds solved, and over these the median and range of seconds and environment steps."""
    lines = ["| method | solved | seconds: median [range] | environment steps: median [range] |", "|---|---|---|---|"]
    for name, watches in rows:
        solved = [watch for watch in watches if watch.seconds is not None]
        cells = ["-", "-"]
        if solved:
            columns = [[watch.seconds for watch in solved], [watch.steps for watch in solved]]
            cells = [f"{statistics.median(column):,.{digits}f} [{min(column):,.{digits}f}..{max(column):,.{digits}f}]"
                     for column, digits in zip(columns, (2, 0), strict=True)]
        lines.append(f"| {name} | {len(solved)} of {len(watches)} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["ppo"], choices=list(STEPS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true", help="leave Stable-Baselines3 out")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lab("ppo", 0)  # torch loads parts of itself at first use: not the method's time
    rows: dict[str, list[Watch]] = {}
    for seed in range(1, given.seeds + 1):
        for method in given.methods:
            contenders = {f"lab {method}": lab}
            if method in SETTINGS and not given.no_peers:
                contenders[f"Stable-Baselines3 {method}"] = peer
            for name, contender in contenders.items():
                rows.setdefault(name, []).append(contender(method, seed))
    print(table(list(rows.items())))


if __name__ == "__main__":
    main()
