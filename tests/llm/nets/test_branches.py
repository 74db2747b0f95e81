"""Completions that are alike share a row of a decoding pass, and those that have ended have none."""

import pytest
import torch

from labcore.llm.nets import llama
from labcore.llm.nets.branches import Branches
from labcore.llm.sampler import sample
from tests.llm.nets.test_llama import network
from tests.llm.tools import LENGTHS, prompts

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", range(8))
def test_each_row_is_what_its_completions_have_in_common(seed):
    """A cache of the tokens themselves: its columns are the texts of the rows."""
    generator = torch.Generator().manual_seed(seed)
    count, group = 3, 5
    rows, texts = Branches(count, group, CPU), [(number // group,) for number in range(count * group)]
    cache, going = torch.full((1, 9, count * group), -1), torch.ones(count * group, dtype=torch.bool)
    cache[0, 0, :count] = torch.arange(count)
    for place in range(1, 9):
        token = torch.randint(0, 3, (count * group,), generator=generator)
        last = rows.extended(token, going)
        cache[:, :place].index_copy_(2, rows.copies, cache[:, :place].index_select(2, rows.copied))
        cache[0, place, :len(last)] = last
        texts = [(*text, one) for text, one in zip(texts, token.tolist(), strict=True)]
        there = {text for text, on in zip(texts, going.tolist(), strict=True) if on}
        assert len(last) == len(rows.prompts) == len(there)
        for number in going.nonzero()[:, 0].tolist():
            row = int(rows.of[number])
            assert row < len(last) and tuple(cache[0, :place + 1, row].tolist()) == texts[number]
            assert rows.prompts[row] == number // group
        going &= torch.rand(count * group, generator=generator) > 0.15
        if not going.any():
            break


def test_a_pass_has_as_few_rows_as_there_are_beginnings(monkeypatch):
    sizes, real = [], llama._run

    def run(model, matrices, words, ids, *others):
        sizes.append(len(ids))
        return real(model, matrices, words, ids, *others)
    monkeypatch.setattr(llama, "_run", run)
    model, asked = network(), prompts()
    drawn = sample(model, asked, 8, max_new_tokens=6, eos=1, generator=torch.Generator().manual_seed(0), top_k=3)
    for place, size in enumerate(sizes[1:], 1):
        begun = {(row // 8, *ids[:place]) for row, (ids, on) in enumerate(zip(
            drawn.ids.tolist(), drawn.mask[:, place].tolist(), strict=True)) if on}
        assert size == len(begun)
    assert len(asked) == sizes[0] < sizes[-1] < len(drawn.ids)
    sizes.clear()
    sample(model, asked, 8, max_new_tokens=6, eos=1, generator=torch.Generator().manual_seed(0), greedy=True)
    assert set(sizes) == {len(asked)}


@pytest.mark.parametrize("given", [{}, {"top_p": 0.7}, {"min_p": 0.2, "temperature": 0.7}, {"repetition_penalty": 1.4}])
@pytest.mark.parametrize("lengths, group_size, length", [(LENGTHS, 8, 9), ((5,), 1, 6), ((4, 4), 3, 1)])
def test_draws_do_not_depend_on_whether_rows_are_shared(lengths, group_size, length, given, monkeypatch):
    """Completions end with one of two tokens. Without sharing, as on a GPU, each keeps its row until sampling ends."""
    found, model = [], network()
    for extended in (Branches.extended, lambda rows, token, _: rows._apart(token)):
        monkeypatch.setattr(Branches, "extended", extended)
        generator = torch.Generator().manual_seed(0)
        drawn = sample(model, prompts(lengths), group_size, max_new_tokens=length, eos=(1, 4), generator=generator,
                       **given)
        found.append((drawn, generator.get_state()))
    (shared, after), (apart, then) = found
    assert torch.equal(shared.ids, apart.ids) and torch.equal(shared.mask, apart.mask) and torch.equal(after, then)
    torch.testing.assert_close(shared.logprobs, apart.logprobs, rtol=1e-5, atol=1e-5)


def test_elsewhere_than_on_a_processor_each_completion_has_a_row():
    """The rows are counted without a look at what was drawn."""
    meta = torch.device("meta")
    rows = Branches(2, 3, meta)
    token, going = torch.empty(6, dtype=torch.long, device=meta), torch.empty(6, dtype=torch.bool, device=meta)
    assert rows.extended(token, going) is token and len(rows.copied) == len(rows.prompts) == 6
    assert rows.extended(token, going) is token and len(rows.copied) == 0
