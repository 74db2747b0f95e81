"""The scores of steps in the samples of a run: at tokens, and as steps of the watched prompts' answers."""

import torch

from labcore.llm.probes.step_scores import as_steps, at_tokens
from labcore.llm.rewards import Rewards
from tests.llm.tools import records, session


def test_scores_stand_at_the_tokens_where_steps_end():
    scores = torch.tensor([[float("nan"), 0.5, 0.25], [0.75, float("nan"), float("nan")]])
    rewards = Rewards(torch.zeros(2), torch.zeros(2, dtype=torch.bool), step_scores=scores)
    assert at_tokens(rewards, 0, 3) == {"step_scores": [None, 0.5, 0.25]}
    assert at_tokens(rewards, 1, 1) == {"step_scores": [0.75]}
    assert at_tokens(Rewards(torch.zeros(2), torch.zeros(2, dtype=torch.bool)), 0, 3) == {}


def test_tokens_are_joined_to_steps():
    assert as_steps(["a", "b", "c"], [None, 0.5, 0.25], [None, 1.0, 0.0]) == [["ab", 0.5, 1.0], ["c", 0.25, 0.0]]


def test_the_samples_of_a_run_have_the_steps():
    first, *_ = records(session("grpo_process", reward_source="step_verifier", steps=1), pictures=True)
    for group in first.samples["groups"]:
        for completion in group["completions"]:
            assert len(completion["step_scores"]) == len(completion["tokens"])
            assert set(completion["step_scores"]) <= {0.0, 1.0}, "every token is a step"
    sampled = [answer for group in first.samples["watched"] for answer in group["answers"] if answer["count"]]
    assert sampled and all("".join(text for text, *_ in answer["steps"]) == answer["text"] for answer in sampled)
