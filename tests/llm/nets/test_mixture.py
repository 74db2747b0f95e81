"""The geometric mixture of two models: its distribution, whatever keeps their caches, and its limits."""

import pytest
import torch

from labcore.llm.nets.forward import completion_outputs
from labcore.llm.nets.mixture import Mixture
from labcore.llm.sampler import sample
from tests.llm.tools import completion_ids, model, prompts

KINDS = ("llama", "gpt2", "mamba")  # the lab's own passes, a cache of keys and values, and no cache


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_is_as_likely_as_in_the_product_of_both_models(kind):
    """Beside a slow twin: probabilities multiplied and normalised."""
    first, second, asked = model(kind), model(kind, seed=1), prompts()
    ids = completion_ids(6, 4)
    tables = [completion_outputs(each, asked, ids).double().softmax(-1) for each in (first, second)]
    product = tables[0] ** 0.75 * tables[1] ** 0.25
    expected = (product / product.sum(-1, keepdim=True)).log().detach()
    found = completion_outputs(Mixture(first, second, 0.25), asked, ids).log_softmax(-1)
    torch.testing.assert_close(found.detach().double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_log_probs_of_the_mixture(kind):
    mixed, asked = Mixture(model(kind), model(kind, seed=1), 0.5), prompts()
    drawn = sample(mixed, asked, 2, max_new_tokens=5, eos=1, generator=torch.Generator().manual_seed(2))
    table = completion_outputs(mixed, asked, drawn.ids).log_softmax(-1)
    expected = table.gather(-1, drawn.ids[..., None])[..., 0].masked_fill(~drawn.mask, 0)
    torch.testing.assert_close(drawn.sampled_logprobs, expected.detach(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("share, alone", [(0.0, 0), (1.0, 1)])
def test_at_its_limits_it_is_one_of_the_two(share, alone):
    both, asked = (model(), model(seed=1)), prompts()
    how = {"max_new_tokens": 6, "eos": 1}
    mixed, plain = (sample(each, asked, 3, **how, generator=torch.Generator().manual_seed(3))
                    for each in (Mixture(*both, share), both[alone]))
    assert torch.equal(mixed.ids, plain.ids) and torch.equal(mixed.mask, plain.mask)
