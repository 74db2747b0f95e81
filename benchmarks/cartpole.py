"""CartPole-v1 beside Stable-Baselines3, in one process and on one thread: `python -m benchmarks.cartpole`.

Solved: three greedy evaluations in a row of 20 episodes each with a mean of 475 or more, one every 1,024 environment
steps. Seconds of training alone: imports and evaluations are left out. Both sides are evaluated by the same code in
the same worlds. The lab runs with its own defaults; Stable-Baselines3 with the hyperparameters of its zoo, and once
more with those of CleanRL's `ppo.py` and `dqn.py`, as far as it has them (its DQN keeps Huber's loss and the clipped
gradient). CleanRL's schedules span 500,000 steps; what is not solved when `limit` of them are over counts as unsolved.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from labcore.catalog.cartpole import ALGORITHMS
from labcore.deep.evaluation import play
from labcore.deep.session import DeepSession
from labcore.spec.run_spec import make

EVALUATE_EVERY, GOOD, IN_A_ROW, EPISODES = 1024, 475.0, 3, 20
METHODS = ("ppo", "a2c", "trpo", "reinforce", "dqn")


@dataclass(frozen=True)
class Peer:
    """Arguments of Stable-Baselines3's class. Schedules span `steps` environment steps; it is stopped at `limit`."""

    settings: dict[str, Any]
    steps: int
    environments: int = 1
    limit: int = 10**9


ZOO = {
    "ppo": Peer({"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
                 "learning_rate": lambda remaining: 1e-3 * remaining, "clip_range": lambda remaining: 0.2 * remaining},
                100_000, 8),
    "a2c": Peer({"ent_coef": 0.0}, 100_000, 8),
    "dqn": Peer({"learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
                 "gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
                 "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
                 "policy_kwargs": {"net_arch": [256, 256]}}, 50_000),
}
CLEANRL = {
    "ppo": Peer({"n_steps": 128, "batch_size": 128, "gae_lambda": 0.95, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.01,
                 "vf_coef": 0.5, "clip_range": 0.2, "clip_range_vf": 0.2,
                 "learning_rate": lambda remaining: 2.5e-4 * remaining}, 500_000, 4, 150_000),
    "dqn": Peer({"learning_rate": 2.5e-4, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 10_000,
                 "gamma": 0.99, "target_update_interval": 500, "train_freq": 10, "gradient_steps": 1,
                 "exploration_fraction": 0.5, "exploration_final_eps": 0.05,
                 "policy_kwargs": {"net_arch": [120, 84]}}, 500_000, limit=300_000),
}
PEERS = {"Stable-Baselines3": ZOO, "Stable-Baselines3 (CleanRL's settings)": CLEANRL}


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
    """The lab's method with its own knobs and number of steps, its own evaluations off."""
    session = DeepSession.start(make(kind="cartpole", algorithm_key=method, task_key="CartPole-v1", seed=seed,
                                     steps=ALGORITHMS[method].steps, knobs={"eval_every": 10**9, "eval_episodes": 1}))
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


def peer(method: str, seed: int, row: Peer) -> Watch:
    """Stable-Baselines3 with the settings of `row`."""
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            solved = watch.look(self.num_timesteps, lambda: Logits(self.model.policy))
            return not solved and self.num_timesteps < row.limit

    environments = make_vec_env("CartPole-v1", n_envs=row.environments, seed=seed)
    model = getattr(stable_baselines3, method.upper())("MlpPolicy", environments, seed=seed, device="cpu",
                                                       **row.settings)
    watch = Watch(seed)
    model.learn(row.steps, callback=Look())
    return watch


def table(rows: Mapping[tuple[str, str], list[Watch]]) -> str:
    """One line per method and contender: seeds solved, and over these the median and range of seconds and steps.

    The last column is the contender's median time over that of the zoo's settings, where both solved any.
    """
    lines = ["| method | contender | solved | seconds: median [range] | environment steps: median [range] | of zoo |",
             "|---|---|---|---|---|---|"]
    seconds = {key: [watch.seconds for watch in watches if watch.seconds is not None] for key, watches in rows.items()}
    for (method, name), watches in rows.items():
        mine, zoo = seconds[method, name], seconds.get((method, "Stable-Baselines3"))
        steps = [watch.steps for watch in watches if watch.seconds is not None]
        cells = ["-", "-"]
        if mine:
            cells = [f"{statistics.median(column):,.{digits}f} [{min(column):,.{digits}f}..{max(column):,.{digits}f}]"
                     for column, digits in ((mine, 2), (steps, 0))]
        ratio = f"{statistics.median(mine) / statistics.median(zoo):.2f}" if mine and zoo else "-"
        lines.append(f"| {method} | {name} | {len(mine)} of {len(watches)} | {cells[0]} | {cells[1]} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--no-peers", action="store_true", help="leave Stable-Baselines3 out")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lab("ppo", 0)  # torch loads parts of itself at first use: not the method's time
    rows: dict[tuple[str, str], list[Watch]] = {}
    # Seed by seed, all contenders in turn: a machine that is slow for a while is slow for all of them.
    for method in given.methods:
        for seed in given.seeds:
            rows.setdefault((method, "lab"), []).append(lab(method, seed))
            for name, settings in PEERS.items():
                if method in settings and not given.no_peers:
                    rows.setdefault((method, name), []).append(peer(method, seed, settings[method]))
    print(table(rows))


if __name__ == "__main__":
    main()
