"""The page before a run: its words are those of the loss and the pairs that are chosen."""

import re

import pytest

from app.training import status_line
from app.training.empty import trained
from app.training.feed import Feed
from labcore import machine
from labcore.catalog.exact import TASKS as EXACT
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.runs.spec.run_spec import make
from tests.app.seeding import html, seed, unfolded


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


@pytest.mark.parametrize(("kind", "task"), [
    ("exact", "sorted"), ("llm", "sort"), ("llm", "guess"),
    *(pytest.param(*each, marks=pytest.mark.long) for each in (
        *(("exact", key) for key in EXACT if key != "sorted"), ("llm", "add"), ("llm", "countdown")))])
def test_the_three_steps_show_a_completion_that_is_wrong(page, kind, task):
    shown = html(page(kind, task=task))
    right, slip = re.search(r'<br>([^<>]+) <span class="rl-pos">✓</span><br>([^<>]+) <span class="rl-muted">✗', shown
                            ).groups()
    assert slip not in ("…", right) and f"{slip} <span" in shown[shown.index("3 · It learns"):]


def test_bf16_on_a_processor_without_it_is_said_at_the_knob_and_beside_run(page, monkeypatch):
    monkeypatch.setattr(machine, "bf16", lambda device="auto": machine.Bf16("this processor (A Xeon)", False))
    test = page("llm", algorithm="grpo", task="sort")
    unfolded(test, "memory")
    assert "This processor (A Xeon) has no bf16 arithmetic: choose fp32." in [each.value for each in test.caption]
    assert "with warnings" not in html(test)
    next(each for each in test.selectbox if each.label == "Precision").set_value("bf16").run()
    assert "Ready, with warnings.</b> Precision is bf16, but this processor (A Xeon) has no bf16" in html(test)


def test_a_model_that_is_not_there_is_said_in_place_of_ready_and_cannot_be_run(page, lab):
    test = page("llm", algorithm="grpo", task="sort", model="/no/such/model")
    assert "Not ready yet.</b> There is no model &#x27;/no/such/model&#x27;: choose tiny, small, " in html(test)
    [run] = [button for button in test.button if button.label == "Run"]
    assert run.disabled and run.proto.help.startswith("There is no model")
    assert not any("used as it is" in each.value for each in test.caption)
    next(each for each in test.selectbox if each.label == "Model").set_value("tiny").run()
    assert "<b>Ready.</b>" in html(test) and not any(button.disabled for button in test.button if button.label == "Run")


def test_a_task_without_its_file_cannot_be_run(page):
    test = page("llm", algorithm="grpo", task="prompts")
    said = "Your own prompts: upload a file with your prompts first."
    assert f"Not ready yet.</b> {said}" in html(test) and test.warning[0].value == said
    assert next(button for button in test.button if button.label == "Run").disabled
    next(each for each in test.selectbox if each.label == "Task").set_value("sort").run()
    assert not next(button for button in test.button if button.label == "Run").disabled


def test_a_knob_that_cannot_go_with_the_others_takes_run_away_at_once(page):
    test = page("llm", algorithm="ppo", task="sort", sft_steps="0")
    unfolded(test, "memory")
    next(each for each in test.slider if each.label.startswith("LoRA rank")).set_value(4).run()
    assert "Not ready yet.</b> LoRA leaves the weights" in html(test)
    assert next(button for button in test.button if button.label == "Run").disabled


@pytest.mark.parametrize("steps, first, said", [
    (0, "Run again", "Fix that, then run it again."), (4, "Resume", "Its results so far are kept.")])
def test_a_run_that_failed_is_resumed_where_it_has_made_a_step(page, lab, steps, first, said):
    run = seed(lab.store, "failed", steps=steps, message="There is no model '/no/such/model': choose tiny.")
    test = page("llm", run=run)
    offered = [button for button in test.button if button.label in ("Run again", "Resume", "Fork")]
    assert offered[0].label == first and offered[0].proto.type == "primary"
    assert said in status_line.line(lab.store.run(run), Feed(lab.store.run(run).spec))
