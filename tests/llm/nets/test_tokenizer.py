"""The character tokenizer gives back every text exactly, and travels as a Hugging Face folder."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from labcore.errors import LabError
from labcore.llm.nets.tokenizer import BASE_CHARACTERS, character_tokenizer, load_tokenizer, with_padding

TEXTS = ["dbcaef=", "", "a  b   c", " , 'x' isn't . !", "line\nline\n\n", BASE_CHARACTERS, "é你😀 e\u0301",
         "<eos> <pad>", "\t\r\n", "\u2028 \x00"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_exactly(text, tmp_path):
    made = character_tokenizer("".join(TEXTS))
    made.save_pretrained(tmp_path)
    for tokenizer in (made, AutoTokenizer.from_pretrained(tmp_path)):
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == len(text) and not set(ids) & {0, 1, 2}
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode([0, 0, *ids, 1], skip_special_tokens=True) == text
        assert [tokenizer.decode([index]) for index in ids] == list(text)


def test_special_tokens_are_distinct():
    tokenizer = character_tokenizer()
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert len(tokenizer) == 3 + 96 == max(tokenizer.get_vocab().values()) + 1
    assert tokenizer("é")["input_ids"] == [2]


def test_ids_depend_on_the_set_of_characters_only():
    assert character_tokenizer("éèé").get_vocab() == character_tokenizer("èéa").get_vocab()
    assert character_tokenizer("é").get_vocab()["a"] == character_tokenizer().get_vocab()["a"]


def test_padding_is_on_the_left(tmp_path):
    character_tokenizer().save_pretrained(tmp_path)
    batch = load_tokenizer(tmp_path)(["ab", "c"], padding=True)
    assert batch["attention_mask"] == [[1, 1], [0, 1]] and batch["input_ids"][1][0] == 0


def other(**special):
    words = {word: index for index, word in enumerate(["</s>", "<unk>", "<s>", "a", "b"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


@pytest.mark.parametrize(("special", "embeddings", "pad"), [
    ({"eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>"}, 5, "<unk>"),
    ({"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}, 5, "<unk>"),
    ({"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "b"}, 5, "b"),
    ({"eos_token": "</s>", "unk_token": "</s>", "bos_token": "<s>"}, 5, "</s>"),
    ({"eos_token": "</s>", "unk_token": "<unk>"}, 1, "</s>"),
    ({"eos_token": "</s>", "unk_token": "<unk>"}, 6, "<pad>"),
    ({"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}, 8, "<pad>"),
])
def test_a_missing_pad_token_gets_a_distinct_one_where_there_is_one(special, embeddings, pad):
    tokenizer = with_padding(other(**special), embeddings)
    assert tokenizer.pad_token == pad and tokenizer.padding_side == "left"
    assert tokenizer.eos_token == "</s>"
    assert len(tokenizer) == (6 if pad == "<pad>" else 5) and tokenizer.pad_token_id < embeddings


def test_a_broken_tokenizer_is_told(tmp_path):
    character_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(LabError, match="cannot be loaded") as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)
