"""An environment of the user's own: a class in a Python file of theirs, found as reward functions are (`own_reward`).

It is read in the shape of the tool that it was written for, by the methods that it has:

    the lab   reset(row) → text, step(text) → (observation, reward, done)
    TRL       reset(**row) → text or None, tools as public methods, get_reward() → number   (`environment_factory`)
    verl      start_interaction(instance_id, **row), generate_response(instance_id, messages) → (done, text, reward, …)

The class may have `rows`, a list of dicts, of which each episode gets one; it always gets a `seed` of its own too. It
may have `player(rng)`, which returns a function from an observation to a turn: SFT learns the episodes that it solves.
Without a class the task plays the `Example`, which is written as one of the user's would be.

In TRL's shape the model calls a tool by `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, and a turn without a
call ends the episode. Arguments are JSON: nothing that a model writes is run.

Source: TRL 1.16, `GRPOTrainer(environment_factory=…)`; verl before 0.9, `verl/interactions/base.py`.
"""

from __future__ import annotations

import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labcore.catalog.knob import Value
from labcore.errors import LabError, quoted
from labcore.tasks import own_reward
from labcore.tasks.environment import Environment, EnvironmentTask, Player, Row, Step
from labcore.tasks.reward_call import loop
from labcore.tasks.task import Chance

KNOB = "environment"
EXAMPLE = "the example"
SEED = "seed"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def offered() -> list[str]:
    """The environments of the user's files on this machine."""
    return own_reward.own(own_reward.ENVIRONMENT)


class OwnEnvironment(EnvironmentTask):
    """`knobs["environment"]` names the class: "FILE:Class HASH"."""

    characters = "12345-? []yesno"

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        super().__init__(knobs)
        key = str(knobs[KNOB])
        self.name = key.rpartition(" ")[0] or EXAMPLE
        self.made: Callable[..., Any] = own_reward.function(key, own_reward.ENVIRONMENT) if key else Example
        self._rows = self._known_rows()

    def _known_rows(self) -> Sequence[Row]:
        with own_reward.quietly(), own_reward.blamed(*_raised(self.name, "rows")):
            found = getattr(self.made, "rows", None)
            found = [{}] if found is None or callable(found) else list(found)
        if not found or not all(isinstance(row, Mapping) for row in found):
            raise LabError(f"`rows` of the environment {self.name} is not a list of dicts: make it one, or leave it "
                           "out.")
        return found

    @property
    def shape(self) -> type[Shape]:
        """The tool that the class was written for, by its methods. Raises LabError where it lacks some."""
        shape = next((each for each in SHAPES if all(hasattr(self.made, method) for method in each.methods)), None)
        if shape is None:
            raise LabError(f"The environment {self.name} lacks methods that the lab calls: give it reset and step, "
                           "or the methods of TRL's environment_factory or of verl's BaseInteraction.")
        return shape

    def environment(self) -> Environment:
        shape = self.shape
        with own_reward.quietly(), own_reward.blamed(*_raised(self.name, "its constructor")):
            return shape(self.name, self.made({}) if shape is Verl else self.made())

    def draw_rows(self, count: int, rng: Chance) -> list[Row]:
        assert isinstance(rng, np.random.Generator), "it has no file"
        return [{SEED: int(seed), **self._rows[place]} for seed, place in zip(
            rng.integers(2**31, size=count), rng.integers(len(self._rows), size=count), strict=True)]

    def player(self, rng: np.random.Generator) -> Player | None:
        with own_reward.quietly(), own_reward.blamed(*_raised(self.name, "player")):
            found = getattr(self.made, "player", None)
            return found(rng) if found else None


class Example:
    """Find a number from 1 to 5, as a class of the user's: its rows are the hidden numbers."""

    rows = tuple({"number": number} for number in range(1, 6))

    def reset(self, row: Row) -> str:
        self.number = row["number"]
        return "1-5?"

    def step(self, text: str) -> tuple[str, float, bool]:
        if text == str(self.number):
            return "yes", 1.0, True
        return "no", 0.0, False

    @staticmethod
    def player(rng: np.random.Generator) -> Player:
        return lambda observation: str(rng.integers(1, 6))


def _raised(name: str, method: str) -> tuple[str, str]:
    return f"The environment {name} raised ", f" in {method}: correct it, then start a new run with it."


class Shape(ABC):
    """The user's object behind the lab's two methods. `methods` are those by which its shape is told."""

    methods: tuple[str, ...]

    def __init__(self, name: str, own: Any) -> None:
        self.name, self.own, self.turn = name, own, 0

    def reset(self, row: Row) -> str:
        self.turn = 0
        return self._begun(row)

    def step(self, text: str) -> Step:
        self.turn += 1
        return self._stepped(text)

    @abstractmethod
    def _begun(self, row: Row) -> str:
        """The first observation of an episode."""

    @abstractmethod
    def _stepped(self, text: str) -> Step:
        """The environment's reply to a turn of the model."""

    def called(self, method: str, *given: Any, **named: Any) -> Any:
        """The result of one of the user's methods, awaited where it is async. Raises LabError where it raises."""
        place = f"{method} in turn {self.turn}" if self.turn else method
        with own_reward.quietly(), own_reward.blamed(*_raised(self.name, place)):
            found = getattr(self.own, method)(*given, **named)
            return loop().run(_awaited(found)) if inspect.isawaitable(found) else found


async def _awaited(found: Any) -> Any: return await found


class Lab(Shape):
    """The lab's own: reset(row) and step(text)."""

    methods = ("reset", "step")

    def _begun(self, row: Row) -> str:
        found: str = self.called("reset", dict(row))  # a play checks it
        return found

    def _stepped(self, text: str) -> Step:
        found = self.called("step", text)
        if not isinstance(found, tuple) or len(found) != 3:
            raise LabError(f"The environment {self.name} returned {quoted(found)} from step in turn {self.turn}: "
                           "return (observation, reward, done).")
        return Step(*found)


class Verl(Shape):
    """verl's BaseInteraction; the first observation is the row's `prompt`."""

    methods = ("start_interaction", "generate_response")

    def _begun(self, row: Row) -> str:
        self.messages = [{"role": "user", "content": str(row.get("prompt", ""))}]
        named = {key: value for key, value in row.items() if key not in (SEED, "prompt")}
        self.instance = self.called("start_interaction", None, **named)
        if not row.get("prompt"):
            raise LabError(f"The environment {self.name} has a row without prompt: give each of its `rows` "
                           "a field prompt.")
        return str(row["prompt"])

    def _stepped(self, text: str) -> Step:
        self.messages.append({"role": "assistant", "content": text})
        found = self.called("generate_response", self.instance, [*self.messages])
        if not isinstance(found, tuple) or len(found) < 3:
            raise LabError(f"The environment {self.name} returned {quoted(found)} from generate_response in turn "
                           f"{self.turn}: return (should_terminate, response, score, metadata).")
        done, observation, reward = found[:3]
        self.messages.append({"role": "user", "content": observation})
        return Step(observation, reward, done)


class Trl(Shape):
    """TRL's `environment_factory`: public methods are tools, get_reward scores the whole episode at its end."""

    methods = ("reset", "get_reward")

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        found = inspect.getmembers(type(self.own), inspect.isfunction)
        return {name: tool for name, tool in found if not name.startswith("_") and name not in self.methods}

    def _begun(self, row: Row) -> str:
        takes = inspect.signature(self.own.reset).parameters.values()
        anything = any(each.kind == each.VAR_KEYWORD for each in takes)
        names = {each.name for each in takes}
        first = self.called("reset", **{key: value for key, value in row.items() if anything or key in names})
        told = "\n".join(f"{name}{inspect.signature(tool)}: {(inspect.getdoc(tool) or '').partition(chr(10))[0]}"
                         for name, tool in self.tools.items()).replace("(self, ", "(").replace("(self)", "()")
        how = '<tool_call>{"name": "NAME", "arguments": {}}</tool_call>'
        return "\n".join(part for part in (str(row.get("prompt", "")), first or "",
                                           f"Tools, each called by {how}:\n{told}" if told else "") if part)

    def _stepped(self, text: str) -> Step:
        call = _CALL.search(text)
        if call is None:
            return Step("", self.called("get_reward"), True)
        try:
            asked = json.loads(call[1])
            name, arguments = asked["name"], dict(asked.get("arguments") or {})
        except (ValueError, KeyError, TypeError, RecursionError):
            return Step("error: write a call as JSON with a name and arguments", 0.0, False)
        if name not in self.tools:
            return Step(f"error: there is no tool {quoted(name)}", 0.0, False)
        try:
            inspect.signature(self.tools[name]).bind(self.own, **arguments)
        except TypeError as error:
            return Step(f"error: {error}", 0.0, False)
        try:  # as in TRL, a fault of a tool is an answer to the model
            return Step(str(self.called(name, **arguments)) or "done", 0.0, False)
        except LabError as error:
            return Step(f"error: {error}", 0.0, False)


SHAPES: tuple[type[Shape], ...] = (Lab, Verl, Trl)
