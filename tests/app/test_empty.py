"""The page before a run: its words are those of the loss and the pairs that are chosen."""

import pytest

from app.training.empty import trained
from labcore import machine
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.spec.run_spec import make
from tests.app.seeding import html, ran


@pytest.mark.parametrize(("algorithm", "knobs", "words"), [
    ("dpo", {}, "Only the margin between the sides is trained; nothing is sampled."),
    ("simpo", {"second_loss": "none"}, "Only the margin between the sides is trained; nothing is sampled."),
    ("online_dpo", {}, "Only the margin between the sides is trained; the next pairs are sampled."),
    ("kto", {}, "Each side is trained by itself; nothing is sampled."),
    ("dpo", {"preference_loss": "apo_zero"}, "Each side is trained by itself; nothing is sampled."),
    ("orpo", {}, "The margin between the sides and the chosen side are trained; nothing is sampled."),
    ("dpo", {"second_loss": "sft"}, "The margin between the sides and the chosen side are trained; nothing is "
                                    "sampled.")])
def test_what_is_trained_depends_on_the_loss_and_the_pairs(algorithm, knobs, words):
    assert trained(make(algorithm_key=algorithm, task_key="sort", knobs=knobs).knobs) == words


def test_the_page_says_so(page):
    for algorithm, words in (("online_dpo", "the next pairs are sampled"), ("kto", "trained by itself")):
        assert ALGORITHMS[algorithm].loop == "preference"
        test = page("llm", algorithm=algorithm, task="sort")
        assert words in " ".join(each.proto.body for each in test.get("html"))


def test_bf16_on_a_processor_without_it_is_said_at_the_knob_and_beside_run(page, monkeypatch):
    monkeypatch.setattr(machine, "bf16", lambda device="auto": machine.Bf16("this processor (A Xeon)", False))
    test = page("llm", algorithm="grpo", task="sort")
    test.session_state["more_knobs"] = True
    ran(test)
    assert "This processor (A Xeon) has no bf16 arithmetic: choose fp32." in [each.value for each in test.caption]
    assert "look first" not in html(test)
    next(each for each in test.selectbox if each.label == "Precision").set_value("bf16").run()
    assert "Ready, but look first.</b> Precision is bf16, but this processor (A Xeon) has no bf16" in html(test)
