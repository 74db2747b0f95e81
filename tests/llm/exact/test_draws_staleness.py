"""The bias of stale data, with no noise at all: a mean over every batch that an older policy can write.

All cases are unbiased on policy: leave-one-out advantages, sums over tokens, no KL. docs/estimators.md has the table.
"""

import copy

import pytest

from labcore.llm.exact.bench import prepared
from labcore.llm.exact.draws import expectation
from labcore.llm.exact.reasons import reasons
from labcore.llm.exact.world import World
from tests.every import now
from tests.llm.exact.small import off, session
from tests.llm.tools import shake

PLAIN = {"advantage": "leave_one_out", "aggregation": "sequence_mean_token_sum", "beta": 0.0}
WHOLE = {"aggregation": "sequence_mean_token_mean"}  # a product has the whole gradient at each token
FREE = {"clip_low": 1.0, "clip_high": 100.0}
ICEPOP = {"importance_cap": 2.0, "importance_floor": 0.5}
SEQUENCE = {"importance_mode": "sequence_truncate"}
# |bias|/|∇|, the scale, and the bias after scaling; the older policy is 0.31 nats of a completion away.
BIAS = {
    "no ratio": ("reinforce", {}, (0.547, 0.774, 0.643)),
    "recomputed log-probs": ("grpo", FREE | {"recompute_logprobs": True}, (0.547, 0.774, 0.643)),
    "ratio of the completion, no clip": ("rloo", FREE | WHOLE, (0, 1, 0)),
    "ratio of the completion, clip": ("rloo", WHOLE, (0.761, 0.289, 0.937)),
    "ratios of tokens, no clip": ("grpo", FREE, (0.363, 0.715, 0.314)),
    "ratios of tokens, clip": ("grpo", {}, (0.557, 0.540, 0.582)),
    "geometric mean, no clip": ("gspo", FREE, (0.256, 0.834, 0.233)),
    "geometric mean, clip": ("gspo", {}, (0.817, 0.228, 1.174)),
    "tokens, truncated": ("reinforce", {"importance_cap": 2.0}, (0.363, 0.715, 0.314)),
    "tokens, masked": ("reinforce", ICEPOP | {"importance_mode": "token_mask"}, (0.389, 0.625, 0.163)),
    "completions, truncated at 2": ("reinforce", {"importance_cap": 2.0} | SEQUENCE, (0.033, 0.976, 0.023)),
    "completions, truncated at 100": ("reinforce", {"importance_cap": 100.0} | SEQUENCE, (0, 1, 0)),
    "completions, masked": ("reinforce", ICEPOP | {"importance_mode": "sequence_mask"}, (0.387, 0.699, 0.348)),
}


@pytest.mark.parametrize("name", now(
    BIAS, "ratio of the completion, no clip", "ratios of tokens, clip", "tokens, masked",
    "completions, truncated at 2", "completions, masked"))
def test_the_bias_of_each_correction(name):
    algorithm, knobs, expected = BIAS[name]
    found = session(algorithm, **{**PLAIN, **knobs, "staleness": 1})
    older = copy.deepcopy(found.policy)
    shake(found.policy, 5, 0.05)
    world, newer = World.of(found, older), World.of(found)
    prepared(found, world)
    bias = off(expectation(found, world)[0], newer.gradient(found))
    assert bias == pytest.approx(expected, abs=6e-4)
    distance = (world.probabilities * (world.logps - newer.logps).sum(-1)).sum()
    assert float(distance) == pytest.approx(0.314, abs=1e-3)
    assert reasons(found.in_force) or bias[0] < 1e-5


def test_a_sampler_with_rounded_weights_is_another_policy():
    """int8: what is sampled has the probabilities of the rounded weights, and the ratio of completions corrects it."""
    found = session("rloo", **{**PLAIN, **WHOLE, **FREE, "sampler_dtype": "int8"})
    plain = session("reinforce", **{**PLAIN, "sampler_dtype": "int8"})
    biases = []
    for each in (found, plain):
        world = World.of(each)
        prepared(each, world)
        biases.append(off(expectation(each, world)[0], world.gradient(each))[0])
    assert biases[0] < 1e-5 < 1e-4 < biases[1]
