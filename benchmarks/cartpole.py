"""CartPole-v1, Acrobot-v1 or Pendulum-v1 beside Stable-Baselines3, one process, one thread:
`python -m benchmarks.cartpole`.

Solved: three greedy evaluations in a row of 20 episodes each with a mean of 475 or more (Acrobot: −100, Pendulum:
−200), one every 1,024 environment steps. Seconds of training alone, on the clock and in processor time: imports and
evaluations are left out. Ratios are made from processor time, which other work on the machine lengthens least. Both
sides are evaluated by the same code in the same worlds. The lab runs with its own defaults, the same on CartPole and
Acrobot, for the default number of steps, on Acrobot for twice as many. Stable-Baselines3 runs with the hyperparameters
of its zoo (rl-baselines3-zoo 22e3ff2), which normalises the observations and rewards of Acrobot for PPO and A2C by
running statistics, so that its policy is evaluated on observations normalised likewise; on Pendulum it explores by
gSDE. On CartPole it runs once more with the settings of CleanRL's `ppo.py` and `dqn.py` (`--cleanrl`), as far as it has
them (its DQN keeps Huber's loss and the clipped gradient). CleanRL's schedules span 500,000 steps; what is not solved
when `limit` of them are over counts as unsolved.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from labcore.catalog.cartpole import ALGORITHMS
from labcore.classic.deep.distributions import Acts, Categorical, DiagGaussian, Distribution
from labcore.classic.deep.evaluation import play
from labcore.classic.deep.session import DeepSession
from labcore.runs.spec.run_spec import make

EVALUATE_EVERY, IN_A_ROW, EPISODES = 1024, 3, 20
GOOD = {"CartPole-v1": 475.0, "Acrobot-v1": -100.0, "Pendulum-v1": -200.0}
BUDGET = {"CartPole-v1": 1, "Acrobot-v1": 2, "Pendulum-v1": 1}  # of the lab's default number of steps
METHODS = ("ppo", "a2c", "trpo", "reinforce", "dqn")
SB3, CLEANRL_SETTINGS = "Stable-Baselines3", "Stable-Baselines3 (CleanRL's settings)"


@dataclass(frozen=True)
class Peer:
    """Arguments of Stable-Baselines3's class. Schedules span `steps` environment steps; it is stopped at `limit`.

    `normalised`: observations and rewards are divided by running statistics, as the zoo's `normalize: true` does.
    """

    settings: dict[str, Any]
    steps: int
    environments: int = 1
    limit: int = 10**9
    normalised: bool = False


ZOO = {
    "CartPole-v1": {
        "ppo": Peer({"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
                     "ent_coef": 0.0, "learning_rate": lambda remaining: 1e-3 * remaining,
                     "clip_range": lambda remaining: 0.2 * remaining}, 100_000, 8),
        "a2c": Peer({"ent_coef": 0.0}, 500_000, 8),
        "dqn": Peer({"learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
                     "gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
                     "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
                     "policy_kwargs": {"net_arch": [256, 256]}}, 50_000)},
    "Acrobot-v1": {
        "ppo": Peer({"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0}, 1_000_000, 16,
                    normalised=True),
        "a2c": Peer({"ent_coef": 0.0}, 500_000, 16, normalised=True),
        "dqn": Peer({"learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0,
                     "gamma": 0.99, "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1,
                     "exploration_fraction": 0.12, "exploration_final_eps": 0.1,
                     "policy_kwargs": {"net_arch": [256, 256]}}, 100_000)},
    "Pendulum-v1": {
        "ppo": Peer({"n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0,
                     "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4}, 100_000, 4)},
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


def peers(environment: str, cleanrl: bool) -> dict[str, dict[str, Peer]]:
    """The contenders beside the lab, each with its settings by method."""
    return {SB3: ZOO[environment], **({CLEANRL_SETTINGS: CLEANRL} if cleanrl else {})}


def _now() -> np.ndarray:
    """Seconds on the clock, and of processor time. (2,)"""
    return np.array([time.perf_counter(), time.process_time()])


@dataclass
class Watch:
    """Evaluates as training goes by, with the clocks stopped. `steps` and `trained` are those of the last look."""

    environment: str
    seed: int
    steps: int = 0
    solved: bool = False
    trained: np.ndarray = field(default_factory=lambda: np.zeros(2))  # seconds on the clock, and of processor time
    _row: int = 0
    _next: int = EVALUATE_EVERY

    def __post_init__(self):
        self._since = _now()

    def look(self, steps: int, network: Callable[[], Acts]) -> bool:
        """Tell of the environment steps made so far. Returns whether it is solved."""
        if steps < self._next:
            return False
        self.trained = self.trained + _now() - self._since
        self._next = steps - steps % EVALUATE_EVERY + EVALUATE_EVERY
        mean = play(network(), self.environment, EPISODES, seed=1000 * self.seed + steps).mean
        self._row = self._row + 1 if mean >= GOOD[self.environment] else 0
        self.steps, self.solved = steps, self._row == IN_A_ROW
        self._since = _now()
        return self.solved


def lab(method: str, environment: str, seed: int) -> Watch:
    """The lab's method with its own knobs, its own evaluations off."""
    session = DeepSession.start(make(kind="cartpole", algorithm_key=method, task_key=environment, seed=seed,
                                     steps=BUDGET[environment] * ALGORITHMS[method].steps,
                                     knobs={"eval_every": 10**9, "eval_episodes": 1}))
    watch = Watch(environment, seed)
    for record in session.run():
        if watch.look(record.env_steps, lambda: session.acting):
            break
    return watch


class Acting(nn.Module):
    """What a peer's network says of observations: logits, Q values, or the mean of continuous actions."""

    def __init__(self, model: Any):
        super().__init__()
        self.family: type[Distribution] = DiagGaussian if hasattr(model.policy, "log_std") else Categorical
        self.policy, self.normaliser = model.policy, model.get_vec_normalize_env()

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if self.normaliser is not None:
            observations = torch.as_tensor(self.normaliser.normalize_obs(observations.numpy()))
        if hasattr(self.policy, "q_net"):
            return self.policy.q_net(observations)
        said = self.policy.get_distribution(observations)
        if self.family is DiagGaussian:
            return torch.cat([said.mode(), torch.zeros_like(said.mode())], -1)
        return said.distribution.logits


def peer(method: str, environment: str, seed: int, row: Peer) -> Watch:
    """Stable-Baselines3 with the settings of `row`."""
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            solved = watch.look(self.num_timesteps, lambda: Acting(self.model))
            return not solved and self.num_timesteps < row.limit

    worlds = make_vec_env(environment, n_envs=row.environments, seed=seed)
    if row.normalised:
        worlds = VecNormalize(worlds, gamma=row.settings.get("gamma", 0.99))
    model = getattr(stable_baselines3, method.upper())("MlpPolicy", worlds, seed=seed, device="cpu", **row.settings)
    watch = Watch(environment, seed)
    model.learn(row.steps, callback=Look())
    return watch


def table(rows: Mapping[tuple[str, str], list[Watch]]) -> str:
    """One line per method and contender: seeds solved, and over these the median and range of times and steps.

    The last column is the contender's median processor time over that of the zoo's settings, on the seeds that both
    ran and solved.
    """
    lines = ["| method | contender | solved | processor seconds: median [range] | seconds on the clock | "
             "environment steps: median [range] | processor time, of zoo |", "|---|---|---|---|---|---|---|"]
    done = {key: {watch.seed: watch for watch in watches if watch.solved} for key, watches in rows.items()}
    for (method, name), watches in rows.items():
        mine, zoo = done[method, name], done.get((method, SB3), {})
        times = np.array([[*watch.trained[::-1], watch.steps] for watch in mine.values()])
        cells = [_cell(column, digits) for column, digits in zip(times.T, (2, 2, 0), strict=True)] if mine else "---"
        both = sorted(mine.keys() & zoo.keys())
        ratio = _median(mine, both) / _median(zoo, both) if both else None
        lines.append(f"| {method} | {name} | {len(mine)} of {len(watches)} | {' | '.join(cells)} | "
                     + (f"{ratio:.3f} ({len(both)} seeds) |" if ratio else "- |"))
    return "\n".join(lines)


def _median(found: Mapping[int, Watch], seeds: list[int]) -> float:
    return statistics.median(float(found[seed].trained[1]) for seed in seeds)


def _cell(column: np.ndarray, digits: int) -> str:
    return f"{np.median(column):,.{digits}f} [{column.min():,.{digits}f}..{column.max():,.{digits}f}]"


def seeds_of(text: str) -> list[int]:
    """
    >>> seeds_of("7"), seeds_of("101-104")
    ([7], [101, 102, 103, 104])
    """
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--environment", default="CartPole-v1", choices=GOOD)
    parser.add_argument("--seeds", nargs="+", type=seeds_of, default=[[1, 2, 3, 4, 5]], help="such as 7 or 101-120")
    parser.add_argument("--peer-seeds", type=int, default=10**9, help="let the peers run the first so many alone")
    parser.add_argument("--no-peers", action="store_true", help="leave Stable-Baselines3 out")
    parser.add_argument("--cleanrl", action="store_true", help="CleanRL's settings as well, on CartPole")
    given = parser.parse_args()
    if given.cleanrl and given.environment != "CartPole-v1":
        parser.error("CleanRL's settings are those of CartPole-v1: leave --cleanrl out.")
    torch.set_num_threads(1)
    lab("ppo", given.environment, 0)  # torch loads parts of itself at first use: not the method's time
    rows: dict[tuple[str, str], list[Watch]] = {}
    # Seed by seed, all contenders in turn: a machine that is slow for a while is slow for all of them.
    for method in given.methods:
        for place, seed in enumerate(seed for found in given.seeds for seed in found):
            rows.setdefault((method, "lab"), []).append(lab(method, given.environment, seed))
            for name, settings in peers(given.environment, given.cleanrl).items():
                if method in settings and not given.no_peers and place < given.peer_seeds:
                    rows.setdefault((method, name), []).append(peer(method, given.environment, seed, settings[method]))
            for (of, name), watches in rows.items():
                if of == method and watches[-1].seed == seed:
                    last = watches[-1]
                    print(f"{method} {name} seed {seed}: {'solved' if last.solved else 'not solved'} after "
                          f"{last.steps:,} environment steps, {last.trained[1]:.2f} processor seconds, "
                          f"{last.trained[0]:.2f} on the clock", flush=True)
    print(f"\n{given.environment}, one thread. Ratios are made from processor time.\n\n{table(rows)}")


if __name__ == "__main__":
    main()
