"""Texts of chat models as people read them: the last user turn of every usual template, chips, thinking, first and last
line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat_text import CLOSE, OPEN, TEXT, THINKING, TOKEN, Part, ends, last_turn, parts, prompt_view, thought

SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "<start_of_turn>", "<｜User｜>", OPEN, CLOSE]
TEMPLATED = {
    "ChatML": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOld?<|im_end|>\n<|im_start|>assistant\nYes."
              "<|im_end|>\n<|im_start|>user\nWhat is\n3 + 4?<|im_end|>\n<|im_start|>assistant\n",
    "Llama 3": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWhat is\n3 + 4?<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "Gemma": "<bos><start_of_turn>user\nWhat is\n3 + 4?<end_of_turn>\n<start_of_turn>model\n",
    "Llama 2": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nWhat is\n3 + 4? [/INST]",
    "Phi": "<|system|>\nBe brief.<|end|>\n<|user|>\nWhat is\n3 + 4?<|end|>\n<|assistant|>\n",
    "DeepSeek": "<｜begin▁of▁sentence｜><｜User｜>What is\n3 + 4?<｜Assistant｜><think>\n",
    "Anthropic": "\n\nHuman: Old?\n\nAssistant: Yes.\n\nHuman: What is\n3 + 4?\n\nAssistant:",
    "none": "What is\n3 + 4?"}


@pytest.mark.parametrize("template", TEMPLATED)
def test_a_prompt_is_what_the_user_said_last(template):
    assert last_turn(TEMPLATED[template]) == "What is\n3 + 4?"


@pytest.mark.parametrize("text", ["", "ba=", "<|im_start|>assistant\n", "user\n3 + 4?", "a < b and c > d"])
def test_a_text_without_a_user_s_turn_stays_as_it_is(text):
    assert last_turn(text) == text


@given(st.lists(st.sampled_from([*SPECIAL, "a", "\n", " ", "<"]), max_size=10).map("".join))
def test_parts_joined_are_the_text(text):
    found = parts(text)
    assert "".join(part.text for part in found) == text
    assert all(part.kind != TEXT or not part.text.startswith(OPEN) for part in found)


def test_tokens_and_thinking_are_told_apart():
    assert parts("<|im_start|>user\nHi<|im_end|>") == [Part(TOKEN, "<|im_start|>"), Part(TEXT, "user\nHi"),
                                                       Part(TOKEN, "<|im_end|>")]
    assert parts("so it is</think>7") == [Part(THINKING, "so it is</think>"), Part(TEXT, "7")], "begun by the template"
    assert parts("<think>cut") == [Part(THINKING, "<think>cut")], "the limit came before its end"


@given(st.lists(st.sampled_from([OPEN, CLOSE, "a", "", "<", "think", ">", "\n"]), max_size=12))
def test_thinking_covers_whole_tokens(pieces):
    found = thought(pieces)
    thoughts = [part.text for part in parts("".join(pieces)) if part.kind == THINKING]
    assert (found is None) == (not thoughts)
    if found:
        start, stop = found
        assert 0 <= start < stop <= len(pieces) and thoughts[0] in "".join(pieces[start:stop])


def test_first_and_last_line():
    assert ends("One.\n\n  Two. \nThree.") == ("One.", "Three.") and ends("") == ("", "") and ends("\n7\n") == ("7", "")
    assert ends("<think>a\nb</think>") == ("", "")


def test_a_prompt_has_parts_only_where_there_is_more_to_it():
    assert prompt_view({"prompt": "ba="}) == {"turn": "ba=", "parts": []}
    rendered = prompt_view({"prompt": "What is\n3 + 4?", "rendered": TEMPLATED["ChatML"]})
    assert rendered["turn"] == "What is\n3 + 4?" and rendered["parts"][0] == [TOKEN, "<|im_start|>"]
    assert prompt_view({"prompt": TEMPLATED["Gemma"]})["turn"] == "What is\n3 + 4?", "a file that has it written out"
