"""Environments with several turns that no preset shows: SFT and then GRPO with the defaults learn them."""

from __future__ import annotations

from statistics import fmean

import pytest

from labcore.llm.session import LlmSession
from labcore.runs.presets import unwatched
from labcore.runs.spec.run_spec import base_spec, make

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize(("task", "steps", "gain"), [("word_maze", 40, 0.15), ("twenty_questions", 20, 0.1)])
def test_the_tiny_model_solves_more_episodes_than_after_sft(task, steps, gain, tmp_path):
    spec = unwatched(make(algorithm_key="grpo", task_key=task, steps=steps, device="cpu"))
    sft = base_spec(spec)
    assert sft is not None
    base = LlmSession.start(sft)
    list(base.run())
    assert base.finished_because.startswith("reached the SFT target")
    base.export(tmp_path / "model")
    solved = [record.metrics["exact_match"] for record in LlmSession.start(spec, tmp_path / "model").run() if record]
    assert fmean(solved[-5:]) > fmean(solved[:3]) + gain
