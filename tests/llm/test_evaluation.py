"""A policy measured by sampling: the KL is from the policy to its reference."""

from __future__ import annotations

import pytest

from labcore.llm.evaluation import evaluate
from labcore.llm.generation import token_logprobs
from tests.llm.tools import session, shake


def test_the_kl_is_that_of_the_policy_to_its_reference():
    started = session("dpo", eval_prompts=10)
    shake(started.policy, by=0.3)
    got = evaluate(started)
    completions = got.generated.completions
    ref_logprobs = token_logprobs(started, started.reference, got.generated.prompts, completions)
    k1 = (completions.logprobs - ref_logprobs)[completions.mask].mean().item()
    assert got.metrics["kl/k1"] == pytest.approx(k1, rel=1e-4) and abs(k1) > 0.01
