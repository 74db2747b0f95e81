"""What each token adds to a text: characters of several tokens, spaces of SentencePiece, bytes of no character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.token_texts import alternative, bytes_of, token_texts
from tests.llm.tokenizers import byte_level, sentencepiece

BYTES, WORDS, LETTERS = byte_level(), sentencepiece(), character_tokenizer()


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("text, found", [
    ("a🎉b", ["a", "🎉", "", "", "", "b"]), ("日本", ["日", "", "", "本", "", ""]),
    ("é<|im_end|>", ["é", "", "<|im_end|>"]), ("", [])])
def test_a_character_of_several_tokens_stands_at_its_first(text, found):
    assert token_texts(BYTES, ids_of(BYTES, text)) == found


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=12))
def test_the_pieces_are_the_text(text):
    ids = ids_of(BYTES, text)
    found = token_texts(BYTES, ids)
    assert len(found) == len(ids) and "".join(found) == BYTES.decode(ids)
    assert sum(map(bool, found)) == len(BYTES.decode(ids)), "one piece a character"


@given(st.lists(st.integers(0, 262), max_size=12))
def test_bytes_that_are_no_character_are_named_and_none_is_lost(ids):
    found = token_texts(BYTES, ids)
    assert len(found) == len(ids) and "\ufffd" not in "".join(found)
    whole = [piece for piece in found if piece and not piece.startswith("‹")]
    assert "".join(whole) == BYTES.decode(ids).replace("\ufffd", "")


def test_an_unfinished_character_is_shown_by_its_bytes():
    cut = ids_of(BYTES, "a🎉")[:-1]
    assert token_texts(BYTES, cut) == ["a", "‹F0›", "‹9F›", "‹8E›"]
    assert token_texts(BYTES, [*cut, *ids_of(BYTES, "b")]) == ["a", "‹F0›", "‹9F›", "‹8E›", "b"]


def test_words_keep_the_space_before_them():
    ids = ids_of(WORDS, "Hello the sum")
    assert token_texts(WORDS, ids) == ["Hello", " the", " sum"]
    assert [WORDS.decode([each]) for each in ids] == ["Hello", "the", "sum"], "each alone has lost it"
    assert alternative(WORDS, ids[:1], ids[2]) == " sum"


def test_one_character_a_token_as_ever():
    assert token_texts(LETTERS, ids_of(LETTERS, "ab 1")) == ["a", "b", " ", "1"]


def test_an_alternative_is_what_it_would_make_of_the_text():
    *begun, last = ids_of(BYTES, "a🎉")
    assert alternative(BYTES, begun, last) == "🎉"
    assert alternative(BYTES, begun[:1], begun[1]) == "‹F0›" and alternative(BYTES, begun, begun[1]) == "‹F0›"
    assert alternative(BYTES, begun[:1], ids_of(BYTES, "b")[0]) == "b"


def test_bytes_of_a_fallback_token():
    class Fallback:
        def convert_ids_to_tokens(self, token):
            return "<0xE3>"
    assert bytes_of(Fallback(), 3) == "‹E3›"
