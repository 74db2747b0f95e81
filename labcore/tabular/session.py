"""A run in a maze: its tables, its random numbers and counters. A step is a sweep, an episode, or a policy update.

Everything that a run's future depends on lives here, so saving a session at a record and loading it again continues
the run bit for bit. Left out: the clock, the disk layout and the controls, which belong to the worker. No torch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from labcore.envs.maze import ACTIONS, Maze
from labcore.envs.maze_env import MazeEnv
from labcore.envs.maze_presets import build
from labcore.envs.mdp import Array
from labcore.errors import Diverged, LabError
from labcore.spec.record import Record
from labcore.spec.run_spec import RunSpec
from labcore.tabular import (
    dynamic_programming,
    temporal_difference,
)
from labcore.tabular import (
    fork as tabular_fork,
)
from labcore.tabular import (
    policy_gradient as tabular_policy_gradient,
)
from labcore.tabular import (
    view as tabular_view,
)
from labcore.tabular.dynamic_programming import Sweep
from labcore.tabular.policy_gradient import PolicyUpdate
from labcore.tabular.temporal_difference import Update
from labcore.tabular.view import Move
from labcore.tabular.walks import Episode, walk

WAIT_SECONDS = 0.05  # the longest sleep at a stretch: a knob that is moved meanwhile is heard

Learner = temporal_difference.TDLearner | tabular_policy_gradient.PolicyLearner


@dataclass
class Session:
    """See the module. `knobs` is changed in place while the run goes on; the counters count up.

    `sweep` is where planning stands; `learner` is what walks, None where the maze is known. `visits` (S,) counts the
    moves made from each state.
    """

    spec: RunSpec
    maze: Maze
    knobs: dict[str, Any]
    rng: np.random.Generator
    sweep: Sweep
    learner: Learner | None
    visits: np.ndarray
    step: int = 0
    updates: int = 0
    env_steps: int = 0
    finished_because: str = ""
    _begun: float = -inf  # when the step before was begun, on this process's clock
    _best: dict[float, tuple[Array, Array] | None] = field(default_factory=dict)

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> Session:
        """Build what `spec` needs; where `resume` is given, from that checkpoint. There is no base to start from.

        Raises:
            LabError: the maze cannot be built, or the checkpoint cannot be read.
        """
        maze = build(spec.task_row, spec.knobs)
        make = LEARNERS.get(spec.row.loop)
        learner = make(spec.algorithm, maze.states, len(ACTIONS)) if make else None
        session = Session(spec, maze, dict(spec.knobs), np.random.default_rng(spec.seed),
                          dynamic_programming.nothing_known(maze.mdp), learner, np.zeros(maze.states, np.int64))
        if resume:
            session._load(resume)
        return session

    def fork(self, spec: RunSpec) -> Session:
        """A session of the fork `spec` of this run, where this one is; see `tabular_fork.fork`."""
        return tabular_fork.fork(self, Session.start(spec))

    def run(self) -> Iterator[Record | None]:
        """Go on until `spec.steps`, or until the sweeps change nothing any more. See `Record`."""
        rows = self._sweeps() if self.learner is None else self._walks()
        for _ in range(self.step, self.spec.steps):
            yield from self._wait()
            record = next(rows, None)
            if record is None:
                self.finished_because = f"settled after {self.sweep.number} sweeps"
                return
            yield record
        self.finished_because = self.finished_because or f"all {self.spec.steps} steps done"

    def best(self) -> tuple[Array, Array] | None:
        """V* (S,) and Q* (S, A) at the present γ; None where with γ = 1 it is best to walk for ever."""
        gamma = float(self.knobs["gamma"])
        if gamma not in self._best:
            try:
                self._best[gamma] = dynamic_programming.optimal_values(self.maze.mdp, gamma)
            except LabError:
                self._best[gamma] = None
        return self._best[gamma]

    @property
    def evaluates(self) -> bool:
        """Whether the sweeps judge one policy and improve nothing."""
        return dynamic_programming.METHODS.get(self.spec.algorithm) is dynamic_programming.policy_evaluation

    @property
    def maximises(self) -> bool:
        """Whether the sweeps take the best action's value rather than a policy's."""
        return dynamic_programming.METHODS.get(self.spec.algorithm) is dynamic_programming.value_iteration

    @cached_property
    def within_reach(self) -> np.ndarray:
        """The states that an agent may act in: within reach of the start, no walls, no ends. -> bool (S,)"""
        return self.maze.reachable() & ~self.maze.mdp.terminal

    def save(self, folder: Path) -> None:
        """Write a complete checkpoint into `folder`: safetensors and JSON only."""
        arrays = {"visits": self.visits, "values": self.sweep.values, "action_values": self.sweep.action_values,
                  "policy": self.sweep.policy, "change": np.array(self.sweep.change)}
        arrays |= {f"learner/{name}": value for name, value in (self.learner.state() if self.learner else {}).items()}
        save_file({name: np.asarray(value, order="C") for name, value in arrays.items()}, folder / "tables.safetensors")
        state = {"step": self.step, "updates": self.updates, "env_steps": self.env_steps, "knobs": self.knobs,
                 "sweep": self.sweep.number, "improved": self.sweep.improved, "rng": self.rng.bit_generator.state,
                 "finished_because": self.finished_because,
                 "last": list(self.learner.tables.last.values()) if self.learner else []}
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
        tabular_view.save_policy(self, folder / "policy")

    def _load(self, folder: Path) -> None:
        try:
            arrays = load_file(folder / "tables.safetensors")
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            self.visits[:] = arrays["visits"]
            self.sweep = Sweep(state["sweep"], arrays["values"], arrays["action_values"], arrays["policy"],
                               float(arrays["change"]), state["improved"])
            if self.learner:
                self.learner.load({name.removeprefix("learner/"): value for name, value in arrays.items()
                                   if name.startswith("learner/")})
                kept = Update if isinstance(self.learner, temporal_difference.TDLearner) else PolicyUpdate
                self.learner.tables.last = {row[0]: kept(*row) for row in state["last"]}
            self.rng.bit_generator.state = state["rng"]
            self.knobs.update(state["knobs"])
            self.step, self.updates, self.env_steps = state["step"], state["updates"], state["env_steps"]
            self.finished_because = state["finished_because"]
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
            raise LabError(f"The checkpoint {folder.name} cannot be read ({reason}): resume from an earlier one, or "
                           "start the run again.") from error

    def _wait(self) -> Iterator[None]:
        """Let `pace` steps pass a second; yields now and then, so that the worker can look up."""
        while self.knobs["pace"] and (left := self._begun + 1 / self.knobs["pace"] - time.perf_counter()) > 0:
            time.sleep(min(left, WAIT_SECONDS))
            yield None
        self._begun = time.perf_counter()

    def _sweeps(self) -> Iterator[Record]:
        for sweep in dynamic_programming.METHODS[self.spec.algorithm](self.maze.mdp, self.knobs, self.sweep):
            values, self.sweep = self.sweep.values, sweep
            change = {"value_change": sweep.change} if isfinite(sweep.change) else {}
            yield self._record(change, partial(tabular_view.of_sweep, self, values))

    def _walks(self) -> Iterator[Record]:
        env = MazeEnv(self.maze, int(self.knobs["step_limit"]), bool(self.knobs["random_start"]))
        episode, ended, steps, updates = Episode(), [], [], []
        for step in walk(env, self.learner, self.knobs, self.rng):
            env.max_steps = int(self.knobs["step_limit"])
            self.env_steps += 1
            self.visits[step.state] += 1
            episode.steps.append(step)
            steps.append(step)
            updates += self._sound(self.learner.tables.made)
            if not step.ended:
                continue
            ended.append(episode)
            episode = Episode()
            if self.learner.waiting:
                continue
            moves = [Move(*pair) for pair in zip(steps, updates, strict=True)]
            yield self._record(self._walked(ended, moves), partial(tabular_view.of_walk, self, ended, moves))
            ended, steps, updates = [], [], []

    def _sound(self, updates: Sequence[Update | PolicyUpdate]) -> Sequence[Update | PolicyUpdate]:
        """The updates themselves.

        Raises:
            Diverged: a value is not finite any more.
        """
        if all(isfinite(update.delta) and isfinite(update.after) for update in updates):
            return updates
        raise Diverged(self.step + 1, "value table", "a smaller step size")

    def _walked(self, ended: list[Episode], moves: list[Move]) -> dict[str, float]:
        """What the episodes of this step were like."""
        surprise = float(np.mean([abs(move.update.delta) for move in moves]))
        found = {"episode_return": float(np.mean([episode.total for episode in ended])), "episodes": len(ended),
                 "episode_length": float(np.mean([len(episode.steps) for episode in ended]))}
        goals = self.maze.where("goal")
        there = [len(episode.steps) for episode in ended if goals[episode.steps[-1].next_state]]
        if there:
            found["moves_to_goal"] = float(np.mean(there))
        return {**found, "td_error": surprise}

    def _record(self, metrics: dict[str, float], picture: Callable[[], dict[str, Any]]) -> Record:
        """Close a step: count it, measure it against the truth, and draw it where somebody may be looking."""
        self.step += 1
        self.updates += 1
        metrics = {**metrics, **tabular_view.measures(self)}
        kept = {key: float(value) for key, value in metrics.items() if isfinite(value)}
        return Record(self.step, 0, kept, self.env_steps, picture() if tabular_view.due(self) else None)


LEARNERS: dict[str, Callable[[str, int, int], Learner]] = {
    "temporal_difference": lambda key, states, actions: temporal_difference.TDLearner(
        temporal_difference.METHODS[key], states, actions),
    "tabular_policy_gradient": lambda key, states, actions: tabular_policy_gradient.PolicyLearner(
        tabular_policy_gradient.METHODS[key], states, actions),
}
