"""The settings of a comparison that is being put together. Kept in the session, like the draft of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import streamlit as st

from app import algorithms
from app.draft import Draft, defaults
from labcore.catalog import kinds
from labcore.catalog.knob import Knob, Value
from labcore.runs.spec.run_spec import RunSpec

FIRST = {"llm": ["ppo", "grpo", "rloo", "reinforce", "dpo"], "exact": ["rloo", "grpo", "reinforce", "dpo"],
         "maze": ["q_learning", "sarsa", "expected_sarsa"],
         "cartpole": ["dqn", "reinforce", "a2c", "ppo"]}


class Plan(Draft):
    """The settings of a comparison: those of a run, and those that differ between its runs. Kept in the session."""

    def __init__(self, kind: str) -> None:
        self.kind, self.scope, self.new = kinds.kind(kind), f"launch-{kind}", False
        self.fields = st.session_state.setdefault(f"draft:{self.scope}", self.usual())

    def usual(self) -> dict[str, Any]:
        """The default fields."""
        return {**defaults(self.kind), "steps": {}, "data": {}, "knobs": {}, "seeds": 3, "limit": None, "axes": {},
                "early": None, "algorithms": list(FIRST[self.kind.key])}

    @property
    def steps(self) -> int:
        return self.fields["limit"] or self.usual_steps

    @property
    def seeds(self) -> list[int]:
        return list(range(self.fields["seed"], self.fields["seed"] + self.fields["seeds"]))

    @property
    def values(self) -> dict[str, Value]:
        """The knobs of a draft without a pace, because nobody watches these runs one by one."""
        kept = self.fields["knobs"].setdefault(self.place, {})
        known = {knob.key for knob in kinds.algorithm(self.fields["algorithm"], self.kind.key).knobs}
        for key, value in self.kind.unwatched.items():
            if key in known:
                kept.setdefault(key, value)
        return super().values

    @property
    def usual_values(self) -> dict[str, Value]:
        usual = super().usual_values
        return usual | {key: value for key, value in self.kind.unwatched.items() if key in usual}

    def moved(self, knob: Knob, value: Value) -> None:
        """A knob of the task counts for every algorithm, also where it was moved among the knobs of another one."""
        if knob.key in self.of_task():
            self.values[knob.key] = value

    def shared(self) -> dict[str, Value]:
        """The knobs of the task; each algorithm of a plan has all others for itself."""
        return self.of_task()

    def untouched(self) -> dict[str, dict[str, Value]]:
        """The knobs of every algorithm and task that the plan has touched, as they are where nothing is chosen."""
        found = {}
        for place in self.fields["knobs"]:
            usual = self.fields.get("usual", {}).get(place) or {
                knob.key: knob.default for knob in algorithms.knobs_at(place, self.kind)}
            found[place] = {key: self.kind.unwatched.get(key, default) for key, default in usual.items()}
        return found

    @contextmanager
    def turned_to(self, algorithm: str) -> Iterator[None]:
        """Within this context the plan is about another algorithm or mix."""
        before = {field: self.fields[field] for field in ("algorithm", "mix")}
        self.choose("algorithm", algorithm)
        try:
            yield
        finally:
            self.fields |= before

    def of(self, algorithm: str, swept: Mapping[str, Value] | None = None) -> RunSpec:
        """The run of one algorithm. Raises LabError if its settings contradict each other.

        `swept` are the first values of the knobs that are swept: they replace the plan's own values, which could make
        the settings invalid.
        """
        with self.turned_to(algorithm):
            kept = dict(self.values)
            self.values.update(swept or {})
            try:
                return self.spec()
            finally:
                self.values.update(kept)


def sweep_from(draft: Draft) -> None:
    """Let the form begin as a sweep over a knob of the run that a draft describes."""
    st.session_state["launch"] = {"way": "sweep", "kind": draft.kind.key}
    plan = Plan(draft.kind.key)
    plan.fields |= {field: draft.fields[field] for field in ("algorithm", "mix", "task", "model", "seed")}
    plan.fields["limit"] = None if draft.steps == draft.usual_steps else draft.steps
    plan.fields["data"] |= draft.fields["data"]
    plan.values.update({key: value for key, value in draft.values.items() if key not in draft.kind.unwatched})
