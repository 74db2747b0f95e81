"""Conversations that another tool sends: their last user turn, their text, and the last text of the model."""

import pytest

from app.chat_text import last_turn
from labcore.watch.converting.chat import completion_fields, prompt_fields

TALK = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"}, {"role": "user", "content": "Why?"}]


def test_a_conversation_has_its_last_user_turn_as_prompt_and_all_turns_as_text():
    found = prompt_fields(TALK)
    assert found["prompt"] == "Why?" == last_turn(found["rendered"]) and found["messages"] == TALK
    assert found["rendered"].startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>")


@pytest.mark.parametrize("said, fields", [
    ("plain", {"prompt": "plain"}), (None, {"prompt": ""}), (3, {"prompt": "3"}), ([], {"prompt": "", "messages": []}),
    ([{"role": "user", "content": "hi"}], {"prompt": "hi", "messages": [{"role": "user", "content": "hi"}]}),
    (["hi", None], {"prompt": "hi", "messages": [{"role": "", "content": "hi"}]})])
def test_a_single_message_is_its_text(said, fields):
    assert prompt_fields(said) == fields


@pytest.mark.parametrize("said, fields", [
    ("plain", {"text": "plain"}), (None, {"text": ""}), ([], {"text": ""}),
    ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}], {"text": "a[image]"}),
    ([{"role": "assistant", "content": "4", "reasoning_content": "2+2"}], {"text": "<think>2+2</think>4"}),
    ([{"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}], {"text": '[{"name": "add"}]'}),
    ([{"role": "assistant", "content": "3"}, {"role": "tool", "content": "wrong"},
      {"role": "assistant", "content": "4"}, {"role": "tool", "content": "right"}],
     {"final": "4", "text": "3<|im_end|>\n<|im_start|>tool\nwrong<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
                            "<|im_start|>tool\nright<|im_end|>"})])
def test_a_completion_of_messages_has_the_last_text_of_the_model(said, fields):
    assert completion_fields(said) == fields
