"""Beside Run: how long a step of a model that was brought along takes, and the buttons that make it shorter."""

from dataclasses import asdict, replace

import pytest

from labcore import machine
from labcore.runs.spec.run_spec import RunSpec
from tests.app.seeding import html
from tests.llm.sizing.test_memory import HELD, SIZES
from tests.llm.sizing.test_step_time import SPEED


@pytest.fixture
def slow(asked, monkeypatch):
    """slow(times) has the machine take so many times as long; with LoRA fewer numbers learn."""
    monkeypatch.setattr(machine, "device_kind", lambda name: "cpu")
    monkeypatch.setattr(machine, "free_memory", lambda name: 10**9)

    def sizes(text):
        lora = RunSpec.from_json(text).knobs["lora_rank"]
        return asdict(replace(SIZES, held=[HELD[0] | {"learnt": 10 if lora else 1000}, HELD[1]]))

    def by(times):
        pace = {key: [times * each for each in values] if key != "rows" else values for key, values in SPEED.items()}
        asked.reply = lambda spec: pace if spec["job"] == "speed" else {
            "sizes": [*map(sizes, spec["specs"])]} if "specs" in spec else None
    return by


def test_a_slow_step_is_told_with_buttons_that_change_the_draft(page, slow, tmp_path):
    slow(100)
    test = page("llm", algorithm="grpo", task="sort", model=str(tmp_path))
    [said] = [each.value for each in test.markdown if each.value.startswith("On this machine")]
    assert "estimated, for completions of full length" in said and "it fits" in said
    button = next(each for each in test.button if each.label.startswith("LoRA rank"))
    assert " a step, " in button.label
    button.click().run()
    [then] = [each.value for each in test.markdown if each.value.startswith("On this machine")]
    assert then != said and not [each for each in test.button if each.label.startswith("LoRA rank")]


def test_a_quick_one_has_no_buttons_and_a_built_in_one_no_word(page, asked, slow, tmp_path):
    slow(0.001)
    test = page("llm", algorithm="grpo", task="sort", model=str(tmp_path))
    assert any(each.value.startswith("On this machine") for each in test.markdown)
    assert not [each for each in test.button if " a step, " in each.label]
    count = len(asked.asked)
    test = page("llm", algorithm="grpo", task="sort", model="tiny")
    assert "On this machine" not in html(test) + "".join(each.value for each in test.markdown)
    assert len(asked.asked) == count
