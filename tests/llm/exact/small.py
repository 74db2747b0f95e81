"""Online and preference rows on a problem of seven completions, with a policy that has left its reference."""

from dataclasses import fields
from typing import ClassVar

import torch

from labcore.llm.exact.session import ExactSession
from labcore.llm.exact.teacher import optimum_of
from labcore.llm.networks import REFERENCE, TEACHER
from labcore.llm.session import LlmSession
from labcore.runs.spec.run_spec import knobs_of, make
from labcore.tasks.enumerable import Enumerable
from tests.llm.tools import shake

TINY = {"vocabulary": 2, "prompt_count": 1, "max_new_tokens": 2}


class Mixed(Enumerable):
    """Rewards that differ, tie, and go with no length: groups without a spread occur, and so do long wrong answers."""

    REWARDS: ClassVar = {"": 0.0, "a": 1.0, "b": 0.25, "aa": 0.0, "ab": 1.0, "ba": 0.5, "bb": 0.0}

    def answer(self, prompt):
        return "ab"

    def reward(self, prompt, completion):
        return self.REWARDS[completion]


def session(algorithm: str, away: float = 0.08, **knobs) -> LlmSession:
    """A session of two completions a batch, of one prompt; `away` is how far its policy was moved."""
    alone = make(kind="exact", algorithm_key=algorithm, task_key="sorted").knobs.get("group_size") == 1
    size = {"prompts_per_step": 2, "group_size": 1} if alone else {"prompts_per_step": 1, "group_size": 2}
    given = {**TINY, **size, "updates_per_batch": 1, "mini_batches": 1, **knobs}
    whole = make(kind="exact", algorithm_key=algorithm, task_key="sorted", model="table", device="cpu")
    known = {knob.key for knob in knobs_of(whole.row, whole.task_row)}
    started = ExactSession.start(make(kind="exact", algorithm_key=algorithm, task_key="sorted", model="table",
                                      device="cpu", knobs={key: value for key, value in given.items() if key in known}))
    found = LlmSession(**{each.name: getattr(started, each.name) for each in fields(LlmSession)})
    found.task = Mixed(found.knobs)
    for seed, network in enumerate((found.models.get(REFERENCE), found.policy)):  # whatever a table begins with
        if network is not None:
            for weight in network.parameters():
                weight.data.zero_()
            shake(network, seed, away)
    if TEACHER in found.models:
        found.models[TEACHER] = optimum_of(found)  # of that reference and these rewards
    return found


def off(mean: torch.Tensor, truth: torch.Tensor) -> tuple[float, float, float]:
    """|E g − t|/|t|, the scale s = E g·t/|t|², and what is left after scaling, |E g/s − t|/|t|."""
    scale = float(mean @ truth / (truth @ truth))
    length = float(truth.norm())
    return float((mean - truth).norm()) / length, scale, float((mean / scale - truth).norm()) / length
