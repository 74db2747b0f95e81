"""Conversations in the Playground: what is asked with which turns, and how an answer becomes one of them."""

import pytest

from labcore.runs.files.paths import run_folder
from tests.app.asking import trained
from tests.app.seeding import link, ran
from tests.app.test_pages import labels
from tests.app.test_playground import by_key, said
from tests.llm.chat_model import TALKS, written


@pytest.fixture
def chat(lab, tmp_path):
    """A run on conversations whose tokenizer has a chat template."""
    run = trained(lab.store, task="prompts", data=written(tmp_path / "talks.jsonl", [{"messages": TALKS[1]}]),
                  knobs={"verifier": "exact", "held_out": 0.0, "system_prompt": "Be brief."})
    (run_folder(run) / "checkpoints" / "step-000006" / "policy" / "chat_template.jinja").write_text("{{ messages }}")
    return run


def turns(*said: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(said)]


def test_a_prompt_of_the_task_is_asked_with_the_turns_before_it(page, chat, asked):
    test = page("playground", runs=chat)
    spec = asked.asked[-1]
    assert (spec["prompt"], spec["answer"]) == ("or c?", "c")
    assert spec["turns"] == TALKS[1][:3] and "system" not in spec
    assert [each.markdown[0].value for each in test.chat_message] == ["a or b?", "b"]
    assert by_key(test.text_input, "playground:system").value == "One word."


def test_an_answer_becomes_a_turn_and_the_next_one_is_written(page, chat, asked):
    test = page("playground", runs=chat)
    test.button(key="playground:next:0").click()
    ran(test)
    count = len(asked.asked)
    assert [each.markdown[0].value for each in test.chat_message] == ["a or b?", "b", "or c?", "abc0"]
    assert "Write the next turn above." in said(test) and count == 1, "nothing is asked without a prompt"
    by_key(test.text_area, "playground:prompt").set_value("and d?")
    ran(test)
    spec = asked.asked[-1]
    assert spec["turns"] == [*TALKS[1][:3], *turns("or c?", "abc0")] and spec["prompt"] == "and d?"
    assert spec["answer"] is None
    again = page("playground", **link(test))
    assert len(asked.asked) == 2 and [each.markdown[0].value for each in again.chat_message][-1] == "abc0"
    again.button(key="playground:new").click()
    ran(again)
    assert not again.chat_message and by_key(again.text_area, "playground:prompt").value == ""
    by_key(again.text_area, "playground:prompt").set_value("Hello")
    ran(again)
    assert asked.asked[-1]["prompt"] == "Hello" and "turns" not in asked.asked[-1]


def test_another_prompt_keeps_the_conversation(page, chat, asked):
    test = page("playground", runs=chat)
    by_key(test.text_area, "playground:prompt").set_value("or e?")
    ran(test)
    assert asked.asked[-1]["prompt"] == "or e?" and asked.asked[-1]["turns"] == TALKS[1][:3]


def test_a_system_prompt_of_ones_own_takes_the_place_of_every_other(page, chat, asked):
    test = page("playground", runs=chat)
    by_key(test.text_input, "playground:system").set_value("Speak up.")
    ran(test)
    assert asked.asked[-1]["system"] == "Speak up." and asked.asked[-1]["turns"] == TALKS[1][1:3]
    by_key(test.text_input, "playground:system").set_value("")
    ran(test)
    assert asked.asked[-1]["system"] == "" and link(test)["system"] == ""


def test_a_model_without_a_template_has_no_conversation(page, lab, grpo, asked):
    test = page("playground", runs=grpo)
    assert not {"turns", "system"} & asked.asked[-1].keys() and "Continue the conversation" not in labels(test)
    assert not [each for each in test.text_input if each.label == "System prompt"]


def test_a_talk_that_is_none_is_left_out_of_the_link(page, chat, asked):
    for talk in ("x", '[["user"]]', '[["nobody", "a"]]', "[1]"):
        assert "talk=" in said(page("playground", runs=chat, talk=talk))
        assert asked.asked[-1]["turns"] == TALKS[1][:3]
