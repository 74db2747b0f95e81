"""Completions that begin alike share these tokens in their row, and outputs and gradients stay those of whole rows."""

from __future__ import annotations

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


def test_places_without_a_token_are_left_out():
    """The completions of the prompts take 7, 3 and 9."""
    row = packed.pack(prompts(), IDS, whole=False)
    counts = [length + taken for length, taken in zip(LENGTHS, (7, 3, 9), strict=True)]
    assert torch.bincount(row.where // row.ids.shape[1]).tolist() == counts
    assert row.tokens(row.ids)[row.ahead].tolist() == [
        *prompts().ids[0, -1:], 2, 3, 4, 6, 7, 3, 4, *prompts().ids[1, -1:], 8, 8, 8,
        *prompts().ids[2, -1:], 2, 3, 4, 3, 3, 4, 4, 3, 4]
    assert row.reads.tolist() == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 5, 6, 7], *[[8, 9, 10, 11]] * 3,
                                  [12, 13, 14, 15], [12, 16, 17, 18], [12, 19, 20, 21]]
    assert torch.equal(row.spread(row.tokens(row.ids)).flatten()[row.where], row.ids.flatten()[row.where])
    assert row.spread(torch.ones(sum(counts))).sum() == sum(counts)


def test_where_few_places_are_without_a_token_none_is_left_out(monkeypatch):
    monkeypatch.setattr(packed, "FULL", 0.5)
    row = packed.pack(prompts(), IDS, whole=False)
    assert row.where is None and row.tokens(row.ids).shape == (row.ids.numel(),)


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
