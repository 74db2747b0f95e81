"""A session without a model: cheap, exact, and as sensitive to knobs and random numbers as a real one."""

import json
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import ClassVar

from labcore.runs.spec import run_spec as specs
from labcore.runs.spec.session import Record


class FakeSession:
    """A number `weight` drifts by random amounts times the knobs. FAKE_SLEEP is the seconds of an update."""

    break_at: ClassVar[dict[int, BaseException]] = {}  # step -> what is raised there
    save_error: ClassVar[Exception | None] = None

    def __init__(self, spec, base):
        self.spec, self.base = spec, base
        self.knobs = dict(spec.knobs)
        self.random = random.Random(spec.seed)
        self.step = self.updates = self.tokens = 0
        self.weight = float(json.loads((base / "state.json").read_text())["weight"]) if base else 0.0
        self.finished_because = ""

    @classmethod
    def start(cls, spec, base_folder=None, resume=None):
        session = cls(spec, base_folder)
        if resume:
            state = json.loads((resume / "state.json").read_text())
            session.knobs.update(state["knobs"])
            session.step, session.updates, session.tokens = state["step"], state["updates"], state["tokens"]
            session.weight = state["weight"]
            version, numbers, gauss = state["random"]
            session.random.setstate((version, tuple(numbers), gauss))
        return session

    def fork(self, spec):
        self.spec, self.knobs = spec, dict(spec.knobs)
        if not spec.twin:
            self.random = random.Random(spec.seed)
        return self

    def run(self):
        while self.step < self.spec.steps:
            group = int(self.knobs.get("group_size", 1))
            for update in range(int(self.knobs.get("updates_per_batch", 1))):
                if update:
                    yield None
                time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
                drift = self.random.gauss() * float(self.knobs["learning_rate"]) * group
                self.weight += drift - float(self.knobs.get("beta", 0.0)) * self.weight
                self.updates += 1
            self.step += 1
            self.tokens += group
            if self.step in self.break_at:
                raise self.break_at[self.step]
            metrics = {"reward": self.weight, "kl": self.weight**2, "updates": self.updates}
            samples, line = {"step": self.step, "groups": []}, {"step": self.step}
            yield Record(self.step, self.tokens, metrics, samples=samples if self.step % 5 == 0 else None,
                         line=line if self.step % 20 == 0 else None, look=partial(self._look, self.step))
        self.finished_because = f"all {self.spec.steps} steps done"

    def _look(self, step: int):
        assert step == self.step, "asked after the next step was begun"
        return {"step": step, "groups": []}, {"step": step}

    def save(self, folder: Path):
        (folder / "policy").mkdir()
        version, numbers, gauss = self.random.getstate()
        state = {"step": self.step, "updates": self.updates, "tokens": self.tokens, "weight": self.weight,
                 "knobs": self.knobs, "random": [version, list(numbers), gauss]}
        text = json.dumps(state)
        (folder / "policy" / "state.json").write_text(text)
        if self.save_error and self.step:
            raise self.save_error
        (folder / "state.json").write_text(text)


def start(spec, base, resume):
    return FakeSession.start(spec, base, resume)


PLAIN = {"sft_steps": 0, "learning_rate": 1e-3, "beta": 0.04, "group_size": 8, "updates_per_batch": 1}


def grpo(steps: int = 30, **knobs) -> specs.RunSpec:
    """A small run that needs no SFT."""
    return specs.make(algorithm_key="grpo", task_key="sort", steps=steps, knobs=PLAIN | knobs)


def trained(store, run_id: str) -> list[tuple]:
    """What the run learnt, step by step; speed and memory left out."""
    return [(s.step, s.tokens, *(s.metrics[key] for key in ("reward", "kl", "updates")))
            for s in store.steps_after(run_id)]
