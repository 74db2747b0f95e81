"""One tolerance per dtype, and the tools that every maths test uses."""

import pytest
import torch

from tests import references

# Relative and absolute. Reference numbers in float32 carry a rounding of their own at every step.
TOLERANCE = {torch.float64: (1e-9, 1e-11), torch.float32: (1e-5, 2e-6)}


@pytest.fixture(scope="session")
def close():
    """close(actual, expected): equal shapes and numbers, to the tolerance of `actual`'s dtype (or of `dtype`)."""
    def check(actual, expected, dtype=None):
        actual = torch.as_tensor(actual)
        expected = torch.as_tensor(expected, dtype=torch.float64)
        assert actual.shape == expected.shape, f"{tuple(actual.shape)} is not {tuple(expected.shape)}"
        rtol, atol = TOLERANCE[dtype or actual.dtype]
        torch.testing.assert_close(actual.detach().double(), expected, rtol=rtol, atol=atol, equal_nan=True)
    return check


@pytest.fixture(scope="session")
def golden():
    """golden(name): the reference file, with "NaN" made a number."""
    def numbers(node):
        if isinstance(node, list):
            return [numbers(item) for item in node]
        if isinstance(node, dict):
            return {key: numbers(item) for key, item in node.items()}
        return float("nan") if node == "NaN" else node

    return lambda name: numbers(references.golden(name))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def batch(generator):
    """Six ragged completions, one of them with nothing that counts: what the loops hand to a loss, in float64."""
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([7, 5, 3, 0, 1, 6])
    return {"logprobs": -normal(6, 7).abs(), "old_logprobs": -normal(6, 7).abs(), "ref_logprobs": -normal(6, 7).abs(),
            "advantages": normal(6, 1).expand(6, 7), "completion_mask": torch.arange(7) < lengths[:, None],
            "clip_low": 0.2, "clip_high": 0.28, "beta": 0.1, "max_new_tokens": 8,
            "total_rows": 6, "total_tokens": int(lengths.sum())}


@pytest.fixture
def policy(generator):
    """A policy over sequences of up to two of three tokens (token 0 ends), small enough to enumerate.

    Returns (logits (4, 3) for the prefixes "", 0, 1, 2; tokens (7, 2); completion_mask (7, 2); prefixes (7, 2)).
    """
    logits = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    tokens = torch.tensor([[0, 0]] + [[first, second] for first in (1, 2) for second in range(3)])
    completion_mask = torch.tensor([[True, False]] + [[True, True]] * 6)
    prefixes = torch.stack([torch.zeros(7, dtype=torch.int64), tokens[:, 0] + 1], 1)
    return logits, tokens, completion_mask, prefixes
