"""Files that hold the completions of one step each: TRL's Parquet, verl's and prime-rl's JSON lines.

A file is read when it stops changing, and again if it is rewritten. Completions are grouped by prompt, because verl
reorders its batches to balance them.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labcore.errors import LabError
from labcore.runs.files.jsonl import read_bytes
from labcore.runs.files.rows import read_rows
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.watch.following.calls import Call, Completions, Pictures
from labcore.watch.following.growing import stamp
from labcore.watch.following.reader import Reader

STEP = "step"
Found = dict[str, Any]  # prompt, completion, rewards, advantage, and `group`, which those of a prompt have in common


class StepFile(Reader):
    """The completions of one step."""

    _waits: list[int] | None = None  # found but not sent yet

    def look(self, settled: bool) -> Iterator[Call]:
        """Yield the step of the file when it stops changing."""
        found = stamp(self.path)
        now = [found.size, found.changed] if found else None
        if not settled or now is None or now in (self.memory.get("read"), self._waits):
            return
        self._waits = now
        yield Pictures(self.step(), self._read, lambda: self.memory.update(read=now))

    @abstractmethod
    def step(self) -> int:
        """Return the step from the file name."""

    @abstractmethod
    def rows(self) -> list[Found]:
        """Return its completions. Raises LabError if it cannot be read."""

    def _read(self) -> Completions:
        groups: dict[Any, list[Found]] = {}
        for row in self.rows():
            groups.setdefault(row["group"], []).append(row)
        rows = [row for group in groups.values() for row in group]
        if not rows:
            raise LabError(f"{self.path.name} has no completions.")
        names = dict.fromkeys(name for row in rows for name in row["rewards"])
        advantages = [row.get("advantage") for row in rows]
        return Completions(
            self.step(), [row["prompt"] for row in rows], [row["completion"] for row in rows],
            {name: [number(row["rewards"].get(name)) for row in rows] for name in names},
            {"advantages": [*map(number, advantages)]} if any(each is not None for each in advantages) else {},
            math.gcd(*map(len, groups.values())))

    def _step_of(self, path: Path) -> int:
        digits = "".join(letter if letter.isdecimal() else " " for letter in path.name).split()
        return int(digits[-1])


class TrlCompletions(StepFile):
    """`completions_00001.parquet` of GRPOTrainer with log_completions: step, prompt, completion, a column per reward
    function, further columns logged by reward functions, advantage (trl 1.16, trl/trainer/grpo_trainer.py)."""

    def step(self) -> int:
        return self._step_of(Path(self.path.stem))

    def rows(self) -> list[Found]:
        return read_rows(self.path, lambda row, _: self._found(row))

    def _found(self, row: Mapping[str, Any]) -> Found:
        prompt = row.get("prompt")
        rewards = {name: value for name, value in row.items()
                   if name not in (STEP, "prompt", "completion", "advantage") and number(value) is not None}
        return {"prompt": prompt, "completion": row.get("completion"), "rewards": rewards,
                "advantage": row.get("advantage"), "group": key_of(prompt)}


class VerlGenerations(StepFile):
    """`5.jsonl` in rollout_data_dir or validation_data_dir: input, output, gts, score, step, and the results of
    the reward function (verl 0.9, RayPPOTrainer._write_generations)."""

    def step(self) -> int:
        return int(self.path.stem)

    def rows(self) -> list[Found]:
        return [{"prompt": row.get("input"), "completion": row.get("output"),
                 "rewards": {"score": row.get("score")}, "group": key_of(row.get("input"))}
                for row in json_rows(self.path)]


class PrimeRollouts(StepFile):
    """`rollouts/step_5/train_rollouts.jsonl` of prime-rl up to June 2026: prompt, completion, reward, advantage."""

    def step(self) -> int:
        return self._step_of(self.path.parent)

    def rows(self) -> list[Found]:
        return [self._found(row) for row in json_rows(self.path)]

    def _found(self, row: Mapping[str, Any]) -> Found:
        prompt = row.get("prompt")
        return {"prompt": prompt, "completion": row.get("completion"), "advantage": row.get("advantage"),
                "rewards": {"reward": row.get("reward")},
                "group": str(row.get("group_id", row.get("example_id", key_of(prompt))))}


class PrimeEpisodes(PrimeRollouts):
    """`rollouts/step_5/train/effective/traces.jsonl` of prime-rl: one episode per line, with the traces of its
    agents (verifiers.v1.Episode). If a step has only the file `all`, which grows during collection, it is read when the
    next step has begun."""

    def step(self) -> int:
        return self._step_of(self.path.parents[2])

    def look(self, settled: bool) -> Iterator[Call]:
        kind = self.path.parent
        if kind.name == "all" and ((kind.parent / "effective" / self.path.name).exists() or not self._next_began()):
            return
        yield from super().look(settled)

    def _next_began(self) -> bool:
        return (self.path.parents[3] / f"step_{self.step() + 1}").exists()

    def rows(self) -> list[Found]:
        traces = [(episode, trace) for episode in json_rows(self.path) for trace in _list(episode.get("traces"))
                  if isinstance(trace, dict) and _list(trace.get("nodes"))]
        found = [_trace(episode, trace) for episode, trace in traces]
        trained = [row for row in found if row["advantage"] is not None]  # a judge has no advantage
        return trained or found


def _trace(episode: Mapping[str, Any], trace: Mapping[str, Any]) -> Found:
    """Return the newest branch of a trace; the messages before the first sampled one are the prompt."""
    nodes = [node for node in trace["nodes"] if isinstance(node, dict)]
    path, at = list[dict[str, Any]](), len(nodes) - 1
    while 0 <= at < len(nodes) and len(path) < len(nodes):
        path.append(nodes[at])
        at = parent if isinstance(parent := nodes[at].get("parent"), int) else -1
    path.reverse()
    first = next((place for place, node in enumerate(path) if node.get("sampled")), len(path))
    credit = [value for node in path if node.get("sampled") for value in _list(node.get("advantages"))
              if number(value) is not None]
    group = _mapping(episode.get("group")).get("id")
    prompt = [node.get("message") for node in path[:first]]
    return {"prompt": prompt, "completion": [node.get("message") for node in path[first:]],
            "rewards": {name: _weighed(reward) for name, reward in _mapping(trace.get("rewards")).items()},
            "advantage": sum(credit) / len(credit) if credit else None,
            "group": key_of(prompt) if group is None else str(group)}


def _weighed(reward: Any) -> float | None:
    """Reward {score, weight}"""
    score, weight = number(_mapping(reward).get("score")), number(_mapping(reward).get("weight"))
    return None if score is None else score * (1.0 if weight is None else weight)


def json_rows(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines, which may contain NaN. Raises LabError if a line is not an object."""
    found = []
    for index, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if line.strip():
            try:
                value = json_of(line, constants=True)
            except NotJSON as error:
                raise LabError(f"Line {index} of {path.name} is not JSON ({error}).") from error
            if not isinstance(value, dict):
                raise LabError(f"Line {index} of {path.name} is not a JSON object.")
            found.append(value)
    return found


def key_of(said: object) -> str:
    """Return a text that equal prompts share, which may be lists of messages."""
    return said if isinstance(said, str) else json.dumps(said, sort_keys=True, default=str)


def number(value: Any) -> float | None:
    """Return a number, including NaN; None if it is not a number."""
    return float(value) if isinstance(value, int | float) else None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
