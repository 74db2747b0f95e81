"""Every completion once, and of each the log-probability that the sampler's own path would give it."""

import itertools

import pytest
import torch

from labcore.errors import LabError
from labcore.llm.exact.problem import completions, logprobs, token_logprobs
from labcore.llm.nets.forward import plain
from labcore.tasks.enumerable import count
from tests.llm.tools import model, prompts
from tests.words import saying

END = 1


def slow_completions(vocabulary, length, end):
    """All words of T tokens, each cut behind its first end."""
    words = itertools.product(vocabulary, repeat=length)
    return {word[:word.index(end) + 1] if end in word else word for word in words}


@pytest.mark.parametrize("vocabulary, length", [((1, 2, 3), 3), ((2, 5, 7, 1), 2), ((1, 4), 5), ((3, 4), 3), ((1,), 2),
                                                ((1, 2, 3), 1)])
def test_every_completion_is_there_once(vocabulary, length):
    space = completions(vocabulary, length, END)
    rows = [tuple(ids[:size]) for ids, size in
            zip(space.completions.ids.tolist(), space.lengths.tolist(), strict=True)]
    assert len(set(rows)) == len(rows) == len(space) and set(rows) == slow_completions(vocabulary, length, END)
    assert len(rows) == count(len(set(vocabulary) - {END}), length, ends=END in vocabulary)
    assert space.completions.truncated.tolist() == [row[-1] != END for row in rows]
    assert sorted(map(len, rows)) == [*map(len, rows)], "the shortest first"


def test_too_many_are_refused_with_their_number():
    with pytest.raises(LabError, match=saying("6 letters", "6 tokens", "55,987 completions", "at most 10,000")):
        completions(range(1, 8), 6, END)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mamba"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_logprobs_are_those_of_every_row_run_whole(kind, temperature):
    policy, asked, space = model(kind), prompts((2, 3)), completions((1, 4, 6), 3, END)
    ids = space.completions.ids.repeat(2, 1)
    with torch.no_grad():
        found = token_logprobs(policy, asked, space, temperature)
        logits = plain(policy, asked, ids).double() / temperature
    counted = space.completions.mask.repeat(2, 1)
    slow = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0].masked_fill(~counted, 0)
    assert found.dtype == torch.float64 and found.shape == (2, len(space), 3)
    torch.testing.assert_close(found.flatten(0, 1), slow, rtol=0, atol=2e-5)


def test_over_its_whole_vocabulary_a_policy_sums_to_one():
    policy, asked = model(vocabulary=4), prompts((2, 1, 3), vocabulary=4)
    total = logprobs(policy, asked, completions(range(4), 4, END)).exp().sum(1)
    torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-12)
