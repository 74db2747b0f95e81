"""Completions that begin alike share these tokens in their row, and outputs and gradients stay those of whole rows."""

import pytest
import torch

from labcore.llm.nets import packed
from labcore.llm.nets.forward import completion_outputs, plain
from tests.llm.tools import LENGTHS, model, prompts

# Of each of three prompts three completions: two alike, all alike, none alike.
IDS = torch.tensor([[2, 3, 4, 5], [2, 3, 6, 5], [7, 3, 4, 5],
                    [8, 8, 8, 8], [8, 8, 8, 8], [8, 8, 8, 8],
                    [2, 3, 4, 5], [3, 3, 4, 5], [4, 3, 4, 5]])


def test_a_beginning_has_one_place():
    row = packed.pack(prompts(), IDS)
    assert row.places.tolist() == [[[0, 1, 2], [0, 1, 3], [4, 5, 6]],
                                   [[0, 1, 2]] * 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]]
    assert row.ids[0, max(LENGTHS):].tolist() == [2, 3, 4, 6, 7, 3, 4, 0, 0]
    assert row.positions[0, max(LENGTHS):].tolist()[:7] == [3, 4, 5, 5, 3, 4, 5]
    assert row.sees[0, max(LENGTHS) + 3, max(LENGTHS):].nonzero().flatten().tolist() == [0, 1, 3]


def test_rows_are_as_long_as_what_differs():
    assert packed.pack(prompts(), IDS[3:4].repeat(9, 1)).ids.shape == (3, max(LENGTHS) + 3)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_outputs_and_gradients_are_those_of_whole_rows(kind):
    network, found = model(kind, dtype=torch.float64), []
    for path in (plain, completion_outputs):
        network.zero_grad(set_to_none=True)
        outputs = path(network, prompts(), IDS)
        (outputs * torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
        found.append([outputs.detach(), *(weight.grad for weight in network.parameters())])
    for ours, theirs in zip(*reversed(found), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()  # rotary angles are float32's


EXTENTS = torch.tensor([4, 3, 1, 2, 4, 1, 0, 1, 3])


def test_padding_has_no_place():
    row = packed.pack(prompts(), IDS, EXTENTS)
    assert row.places.tolist() == [[[0, 1, 2], [0, 1, -1], [-1] * 3], [[0, -1, -1], [0, 1, 2], [-1] * 3],
                                   [[-1] * 3, [-1] * 3, [0, 1, -1]]]
    assert row.ids[:, max(LENGTHS):].tolist() == [[2, 3, 4], [8, 8, 8], [4, 3, 0]]


def test_a_token_is_not_shared_with_padding_that_looks_like_it():
    """The first completion is padded with the token that the second one has at this place."""
    ids = torch.tensor([[2, 5, 5, 5], [2, 5, 5, 7]])
    row = packed.pack(prompts((3,)), ids, torch.tensor([2, 4]))
    assert row.places.tolist() == [[[0, -1, -1], [0, 1, 2]]]
    assert row.ids[0, 3:].tolist() == [2, 5, 5] and row.sees[0, 5, 3:].all()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_what_counts_and_its_gradients_do_not_depend_on_padding(kind):
    network, found = model(kind, dtype=torch.float64), []
    counts = torch.arange(IDS.shape[1]) < EXTENTS[:, None]
    for path in (plain, lambda *given: completion_outputs(*given, extents=EXTENTS)):
        network.zero_grad(set_to_none=True)
        outputs = path(network, prompts(), IDS) * counts[..., None]
        (outputs * torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
        found.append([outputs.detach(), *(weight.grad for weight in network.parameters())])
    for ours, theirs in zip(*reversed(found), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_last_outputs_and_their_gradients_are_those_of_whole_rows(kind):
    network, found, ends = model(kind, dtype=torch.float64), [], EXTENTS.clamp(min=1)

    def of_plain(*given):
        return plain(*given)[torch.arange(len(IDS)), ends - 1][:, None]
    for path in (of_plain, lambda *given: completion_outputs(*given, extents=ends, at_end=True)):
        network.zero_grad(set_to_none=True)
        outputs = path(network, prompts(), IDS)
        (outputs * torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
        found.append([outputs.detach(), *(weight.grad for weight in network.parameters())])
    for ours, theirs in zip(*reversed(found), strict=True):
        assert ours.shape == theirs.shape and (ours - theirs).norm() <= 1e-5 * theirs.norm()
