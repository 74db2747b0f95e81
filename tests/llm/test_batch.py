"""Token ids become padded tensors whose masks come from lengths, whatever the tokenizer pads with."""

import pytest
import torch

from labcore.llm.batch import Completions, decode, is_end, padded_completions, padded_prompts
from labcore.llm.nets.tokenizer import character_tokenizer

CPU = torch.device("cpu")
PLAIN = character_tokenizer()
END = PLAIN.eos_token_id


@pytest.mark.parametrize("fill", [0, END])
def test_prompts_are_padded_on_the_left(fill):
    got = padded_prompts([[5, 6], [5, 6, 7, 8], [7]], fill, CPU)
    assert got.mask.tolist() == [[False, False, True, True], [True] * 4, [False] * 3 + [True]]
    assert got.ids[got.mask].tolist() == [5, 6, 5, 6, 7, 8, 7]
    assert (got.ids[~got.mask] == fill).all()
    assert len(got) == 3 and got[1:].mask.tolist() == got.mask[1:].tolist()
    assert got[torch.tensor([2, 0])].ids.tolist() == got.ids[[2, 0]].tolist()


def test_completions_are_padded_on_the_right():
    got = padded_completions([[5, END], [5, 6, 7, END], [5]], [False, False, True], END, CPU)
    assert got.mask.tolist() == [[True] * 2 + [False] * 2, [True] * 4, [True] + [False] * 3]
    assert got.lengths.tolist() == [2, 4, 1] and got.truncated.tolist() == [False, False, True]
    assert (got.ids[~got.mask] == END).all() and got.logprobs is None


def test_decode_leaves_out_every_end_and_what_does_not_count():
    letters = PLAIN("abcx", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*letters[:2], END, letters[3]], letters])
    mask = torch.tensor([[True, True, True, False], [True] * 4])
    completions = Completions(ids, mask, torch.tensor([False, True]))
    assert decode(PLAIN, completions, END) == ["ab", "abcx"]
    assert decode(PLAIN, completions, (END, letters[3])) == ["ab", "abc"]


def test_any_of_several_ends_is_one():
    tokens = torch.tensor([[3, 4], [5, 6]])
    assert is_end(tokens, 4).tolist() == [[False, True], [False, False]]
    assert is_end(tokens, (4, 5)).tolist() == [[False, True], [True, False]]
