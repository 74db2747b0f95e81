"""The sentence above a run: what it learns, how far it is, and the rewards that are not the verifier's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.training import goal_line, status_line
from app.training.feed import Feed
from labcore.catalog import choices
from labcore.catalog.goal import reward_words
from labcore.catalog.kinds import KINDS, algorithm
from labcore.catalog.metrics import NOW
from labcore.catalog.panels import PANELS
from labcore.runs.spec.run_spec import every_knob, make
from labcore.runs.store.rows import Step
from tests.app.seeding import seed
from tests.words import says

VALUES = {key: knob.default for key, knob in every_knob().items()}


def feed_of(*rows: dict[str, float], **spec: str) -> Feed:
    feed = Feed(make(**{"algorithm_key": "grpo", "task_key": "sort", **spec}))
    feed.take([Step(at, at, 0, float(at), metrics) for at, metrics in enumerate(rows, 1)], [])
    return feed


def test_the_share_of_right_completions_is_said_with_its_start():
    feed = feed_of({"reward": 0.46, "exact_match": 0.46}, {"reward": 0.981, "exact_match": 0.981})
    assert says(goal_line.words(feed), "98 %", "46 % at the start")
    assert says(goal_line.words(feed, at=1), "46 %", "46 % at the start")


def test_a_reward_that_is_another_number_is_said_beside_that_share():
    feed = feed_of({"reward": 0.5, "exact_match": 0.4}, {"reward": 0.97, "exact_match": 0.03})
    assert says(goal_line.words(feed), "earns 0.970", "0.500 at the start", "exact match", "3.0 %", "40 % at the start")


def test_prompts_that_are_chosen_by_their_difficulty_are_said_and_not_compared_with_the_first_ones():
    feed = feed_of({"reward": 0.8, "exact_match": 0.8}, {"reward": 0.3, "exact_match": 0.3})
    for choice, said in (("uniform", " Now correct in 30 % (80 % at the start)."), ("learnable", (
            " Now correct in 30 %, on prompts chosen by their difficulty."))):
        pooled = {**feed.spec.knobs, "prompt_pool": 64, "prompt_choice": choice}
        feed.spec = replace(feed.spec, knobs=pooled)
        assert goal_line.words(feed) == said
        reward, *_ = status_line.numbers(feed)
        assert (reward["first"] is None) == (choice != "uniform"), "since start"


@pytest.mark.parametrize("kind", KINDS)
def test_each_algorithm_logs_something_that_says_how_far_it_is(kind):
    for row in KINDS[kind].algorithms.values():
        task = next(task for task in KINDS[kind].tasks.values() if row.learns(task) and not task.data)
        panels = {key for panel in row.charts(task) for key in PANELS[panel].metrics}
        assert panels & {metric.key for metric in NOW}, row.key


def test_a_run_without_rows_says_what_it_learns_only():
    assert goal_line.words(feed_of()) == "" and goal_line.now(feed_of()) == []
    assert goal_line.html(feed_of().spec).startswith("The model sees <code>")


def test_texts_of_a_file_are_shown_as_text(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "<b>What is 3 + 4?</b>", "answer": "7"}', encoding="utf-8")
    spec = make(algorithm_key="grpo", task_key="prompts", knobs={"verifier": "numeric"}, data=str(path))
    assert "&lt;b&gt;What" in goal_line.html(spec) and "last number is 7" in goal_line.html(spec)


def test_the_draft_and_the_run_have_it_above_everything(page, lab):
    draft = page("llm", letters="4")
    said = [each.value for each in draft.get("html") if "rl-goal" in each.value]
    assert "earns 1 if exact" in said[0]


def test_every_source_but_the_verifier_is_said():
    said = {source: reward_words({**VALUES, "reward_source": source}) for source in choices.REWARD.names}
    assert [source for source, words in said.items() if not words] == ["verifier"]
    assert len({*said.values()}) == len(said) and not any("{" in words for words in said.values())


def captions(test):
    return " ".join(each.value for each in test.caption)


def test_two_named_rewards_have_their_weights_beside_them(page, lab):
    test = page("llm", algorithm="gdpo", format_weight="0.5")
    assert "Rewards: 1 × correct" in captions(test) and "0.5 × format" in captions(test)
    for key in ("correct_weight", "format_weight"):
        assert not algorithm("gdpo").knob(key).advanced and algorithm("grpo").knob(key).advanced


def test_the_planted_hole_is_said_before_and_beside_its_run(page, lab):
    assert "a hole to exploit" in captions(page("llm", reward_source="order_only"))
    run_id = seed(lab.store, "running", knobs={"reward_source": "order_only"})
    assert "Both rewards are drawn" in captions(page("llm", run=run_id)), "no gold in these rows"
