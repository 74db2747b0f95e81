"""Texts become padded tensors whose masks come from lengths, whatever the tokenizer pads with."""

from __future__ import annotations

import pytest
import torch

from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts, decode, encode_completions, encode_prompts
from labcore.llm.nets.tokenizer import character_tokenizer

CPU = torch.device("cpu")
PLAIN = character_tokenizer()
END = PLAIN.eos_token_id


@pytest.fixture(params=["pad", "pad is the end"])
def tokenizer(request):
    made = character_tokenizer()
    if request.param == "pad is the end":
        made.pad_token = made.eos_token
        assert made.pad_token_id == made.eos_token_id == END
    return made


def test_prompts_are_padded_on_the_left(tokenizer):
    got = encode_prompts(tokenizer, ["ab", "abcd", "c"], 4, CPU)
    assert got.mask.tolist() == [[False, False, True, True], [True] * 4, [False] * 3 + [True]]
    assert PLAIN.decode(got.ids[got.mask]) == "ababcdc"
    assert (got.ids[~got.mask] == tokenizer.pad_token_id).all()
    assert len(got) == 3 and got[1:].mask.tolist() == got.mask[1:].tolist()
    assert got[torch.tensor([2, 0])].ids.tolist() == got.ids[[2, 0]].tolist()


def test_completions_end_and_are_padded_on_the_right(tokenizer):
    got = encode_completions(tokenizer, ["ab", "abcd", ""], 9, CPU)
    assert got.mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5, [True] + [False] * 4]
    assert got.lengths.tolist() == [3, 5, 1]
    assert [int(row[length - 1]) for row, length in zip(got.ids, got.lengths, strict=True)] == [END] * 3
    assert not got.truncated.any() and got.logprobs is None
    assert decode(tokenizer, got) == ["ab", "abcd", ""]


def test_completions_are_cut_at_the_limit(tokenizer):
    got = encode_completions(tokenizer, ["abc", "abcd", "abcdef"], 4, CPU)
    assert got.truncated.tolist() == [False, True, True]
    assert got.lengths.tolist() == [4, 4, 4] and int(got.ids[0, 3]) == END
    assert decode(tokenizer, got) == ["abc", "abcd", "abcd"]


def test_what_was_cut_when_it_was_sampled_gets_no_end(tokenizer):
    got = encode_completions(tokenizer, ["abc", "abc"], 9, CPU, [False, True])
    assert got.lengths.tolist() == [4, 3] and got.truncated.tolist() == [False, True]
    assert END not in got.ids[1][got.mask[1]].tolist()
    assert decode(tokenizer, got) == ["abc", "abc"]


def test_decode_leaves_out_the_end_and_what_does_not_count(tokenizer):
    letters = tokenizer("abcx", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*letters[:2], END, letters[3]], letters])
    mask = torch.tensor([[True, True, True, False], [True] * 4])
    assert decode(tokenizer, Completions(ids, mask, torch.tensor([False, True]))) == ["ab", "abcx"]


@pytest.mark.parametrize("texts, where, words", [
    (["abc", "abcdef"], ["line 3", "line 9"], ["(line 9)", "6 tokens", "room for 5"]),
    (["abc", ""], ["line 3", "line 9"], ["(line 9)", "empty"]),
    (["abcdef"], [""], ["A prompt has 6 tokens"]),
    (["abcdef"], [], ["A prompt has 6 tokens"])])
def test_prompts_that_cannot_be_used(tokenizer, texts, where, words):
    with pytest.raises(LabError) as error:
        encode_prompts(tokenizer, texts, 5, CPU, where)
    assert all(word in str(error.value) for word in words) and str(error.value).count(". ") == 0


def test_a_prompt_that_just_fits(tokenizer):
    assert isinstance(encode_prompts(tokenizer, ["abcde"], 5, CPU), Prompts)


def test_the_end_token_spelt_out_is_text(tokenizer):
    got = encode_completions(tokenizer, ["<eos>"], 9, CPU)
    assert got.lengths.tolist() == [6] and decode(tokenizer, got) == ["<eos>"]
