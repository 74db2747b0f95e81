"""A run in a maze: its tables, its random numbers and counters. A step is a sweep, an episode, or a policy update.

Everything that a run's future depends on lives here, so saving a session at a record and loading it again continues
the run bit for bit. Left out: the loops, which move a session and are named by the catalog; the clock, the disk layout
and the controls, which belong to the worker. No torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from labcore.catalog.maze import TabularAlgorithm
from labcore.classic.envs.maze import ACTIONS, Maze
from labcore.classic.envs.maze_presets import build
from labcore.classic.envs.mdp import Array
from labcore.classic.tabular.dynamic_programming import Sweep, nothing_known, optimal_values
from labcore.classic.tabular.estimates import Estimates, save_policy
from labcore.classic.tabular.policy_learner import PolicyLearner
from labcore.classic.tabular.td_learner import TDLearner
from labcore.errors import LabError
from labcore.runs.files.untrusted import json_of
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record


@dataclass
class TabularSession:
    """See the module. `knobs` is changed in place during the run; the counters count up.

    `method` is the function that learns. `sweep` is the state of planning; `learner` is the agent that walks, None for
    planning, which knows the maze. `visits` (S,) counts the moves made from each state.
    """

    spec: RunSpec
    maze: Maze
    knobs: dict[str, Any]
    rng: np.random.Generator
    method: Callable[..., Any]
    sweep: Sweep
    learner: TDLearner | PolicyLearner | None
    visits: np.ndarray
    step: int = 0
    updates: int = 0
    env_steps: int = 0
    finished_because: str = ""
    _best: dict[float, tuple[Array, Array] | None] = field(default_factory=dict)

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> TabularSession:
        """Build the session of `spec`, or continue it from the checkpoint `resume`. There is no base to start from.
        Raises LabError if the maze cannot be built, or the checkpoint cannot be read."""
        row, maze = cast(TabularAlgorithm, spec.row), build(spec.task_row, spec.knobs)
        method = resolve_name(row.method)
        learner = resolve_name(row.learner)(method, maze.states, len(ACTIONS)) if row.learner else None
        session = TabularSession(spec, maze, dict(spec.knobs), np.random.default_rng(spec.seed), method,
                                 nothing_known(maze.mdp), learner, np.zeros(maze.states, np.int64))
        if resume:
            session._load(resume)
        return session

    def fork(self, spec: RunSpec) -> TabularSession:
        """A session of the fork `spec` that starts where this session is. Tables that both methods have continue;
        everything else begins anew.

        Between planning and a policy gradient it is V that continues. Random numbers continue where the fork has
        common random numbers (`twin`).
        """
        child, same = TabularSession.start(spec), spec.algorithm == self.spec.algorithm
        if self.learner is None and child.learner is None:
            # Under other knobs, or with another method, nothing is known of how far V is from settled.
            settled = same and child.knobs == self.knobs
            child.sweep = self.sweep if settled else replace(self.sweep, change=inf)
        elif child.learner is None:
            found = self.estimates()
            child.sweep = replace(child.sweep, values=found.values, policy=found.policy)
        elif self.learner is None:
            assert isinstance(child.learner, PolicyLearner), "planning shares V with no other (`fork.check`)"
            child.learner.tables.values[:] = self.sweep.values
        elif isinstance(child.learner, TDLearner):
            assert isinstance(self.learner, TDLearner), "tables of Q continue in tables of Q (`fork.check`)"
            child.learner.continue_from(self.learner, same)
        else:
            assert isinstance(self.learner, PolicyLearner), "a policy continues in a policy (`fork.check`)"
            child.learner.continue_from(self.learner, same)
        child.visits[:] = self.visits
        child.step, child.updates, child.env_steps = self.step, self.updates, self.env_steps
        if spec.twin:
            child.rng = self.rng
        return child

    def run(self) -> Iterator[Record | None]:
        """Continue until `spec.steps`, or until a sweep changes nothing any more. See `Record`."""
        yield from resolve_name(self.spec.kind_row.loops[self.spec.row.loop])(self)
        self.finished_because = self.finished_because or f"all {self.spec.steps} steps done"

    def estimates(self) -> Estimates:
        """The tables as they are."""
        if self.learner is None:
            return Estimates(self.sweep.values, self.sweep.action_values, self.sweep.policy, "V")
        return self.learner.estimates(self.knobs)

    def best(self) -> tuple[Array, Array] | None:
        """V* (S,) and Q* (S, A) at the present γ; None if γ is 1 and a best policy never reaches an end."""
        gamma = float(self.knobs["gamma"])
        if gamma not in self._best:
            try:
                self._best[gamma] = optimal_values(self.maze.mdp, gamma)
            except LabError:
                self._best[gamma] = None
        return self._best[gamma]

    @cached_property
    def within_reach(self) -> np.ndarray:
        """The states in which an agent may act: they can be reached from the start, and are neither walls nor ends. ->
        bool (S,)"""
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
        save_policy(folder / "policy", self.estimates(), self.maze, float(self.knobs["gamma"]),
                    {"kind": self.spec.kind, "algorithm": self.spec.algorithm, "step": self.step})

    def _load(self, folder: Path) -> None:
        try:
            arrays = load_file(folder / "tables.safetensors")
            state = json_of((folder / "state.json").read_bytes(), constants=True)
            self.visits[:] = arrays["visits"]
            self.sweep = Sweep(state["sweep"], arrays["values"], arrays["action_values"], arrays["policy"],
                               float(arrays["change"]), state["improved"])
            if self.learner:
                self.learner.load({name.removeprefix("learner/"): value for name, value in arrays.items()
                                   if name.startswith("learner/")})
                self.learner.recall(state["last"])
            self.rng.bit_generator.state = state["rng"]
            self.knobs.update(state["knobs"])
            self.step, self.updates, self.env_steps = state["step"], state["updates"], state["env_steps"]
            self.finished_because = state["finished_because"]
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
            raise LabError(f"The checkpoint {folder.name} cannot be read ({reason}): resume from an earlier one, or "
                           "start the run again.") from error
