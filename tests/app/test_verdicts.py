"""Long answers, no two alike: by verdict or reward, with their share of the samples and what the updates changed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.llm import story, verdicts
from app.llm.history import Column, Sample
from tests.app.test_story import of_logprobs, pair
from tests.words import says

THOUGHT = "<think>\nthree and four\n</think>\n"


def long(text, reward, advantage, change=0.0, *, exact=None, count=1, **more):
    exact = reward == 1 if exact is None else exact
    return of_logprobs(f"To add them, count on.\nStep {text}.\nThe answer is {text}.", -80.0, -80.0 + change,
                       exact=exact, count=count, reward=reward, advantage=advantage, **more)


def group(*answers):
    return {"prompt": "What is 3 + 4?", "answer": "7", "answers": [*answers]}


MIXED = group(long("7", 1.0, 0.9, 0.4), long("seven", 1.0, 0.9, 0.2), long("8", 0.0, -0.9, -0.1, truncated=True),
              of_logprobs("7", -12.0, -12.0, exact=True))


def test_long_samples_are_grouped_and_short_ones_are_not():
    assert verdicts.grouped(MIXED)
    assert not verdicts.grouped(group(of_logprobs("7", -1.0, -1.0, count=4), long("7", 1.0, 0.5)))
    assert not verdicts.grouped(pair()) and not verdicts.grouped(group(of_logprobs("7" * 60, -1.0, -1.0)))


def test_the_bands_are_the_verdicts_of_what_was_sampled():
    shown = story.payload({"w0": MIXED}, "w0", [], 5, 5)
    right, wrong = shown["verdicts"]
    assert (right["text"], right["count"], right["reward"], right["limited"]) == ("right", 2, 1.0, 0)
    assert right["change"] == pytest.approx(0.3) and wrong["change"] == pytest.approx(-0.1) and wrong["limited"] == 1
    assert [each["last"] for each in right["answers"]] == ["The answer is 7.", "The answer is seven."]
    first = right["answers"][0]
    assert first["first"] == "To add them, count on." and first["said"] == ["−80.0", "−79.6"]
    assert shown["reach"] == pytest.approx(0.4) and shown["rows"] == []
    assert says(shown["sentence"], "2 of 3", "right ones rises by 0.30 nats", "wrong one falls by 0.10 nats")
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


def test_the_heat_map_is_of_verdicts():
    def column(step, right, wrong):
        return Column(step, {}, {}, (Sample(True, 1.0, right), Sample(False, 0.0, wrong)))
    shown = verdicts.payload(MIXED, [Column(0, {}, {}), column(1, 1, 3), column(5, 3, 1)])
    assert shown["columns"] == [1, 5], "before the first step nothing is sampled"
    assert [band["cells"] for band in shown["verdicts"]] == [[0.25, 0.75], [0.75, 0.25]]


@pytest.mark.parametrize("rewards, labels", [
    ([0.5, 0.5], ["reward 0.5"]), ([0.0, 1.0, 0.5], ["reward 1", "reward 0.5", "reward 0"]),
    ([0.0, 0.2, 0.5, 0.9], ["reward 0.6 to 0.9", "reward 0.3 to 0.6", "reward 0 to 0.3"]),
    ([-1.0, None], ["reward −1", "not scored"])])
def test_without_verdicts_the_bands_are_rewards(rewards, labels):
    found = verdicts.bands([Sample(None, reward, 1) for reward in rewards])
    assert [band.label for band in found] == labels


@given(st.lists(st.tuples(st.sampled_from([None, True, False]), st.none() | st.floats(-1, 1, width=16)), min_size=1))
def test_every_sample_is_in_one_band(judged):
    """Where samples have a verdict all of them have one."""
    verdict = any(exact is not None for exact, _ in judged)
    samples = [Sample(bool(exact) if verdict else None, reward, 1) for exact, reward in judged]
    found = verdicts.bands(samples)
    assert all(sum(band.has(each.exact, each.reward) for band in found) == 1 for each in samples)


def test_wrong_answers_with_shaped_rewards_are_told_apart_by_them():
    shaped = group(long("8", 0.1, -0.5, -0.2, exact=False), long("9", 0.7, 0.5, 0.3, exact=False))
    shown = verdicts.payload(shaped, [])
    assert [band["text"] for band in shown["verdicts"]] == ["reward 0.7", "reward 0.1"]
    assert says(shown["sentence"], "None of 2", "reward 0.7 rises by 0.30 nats", "reward 0.1 falls by 0.20 nats")


def test_equal_rewards_teach_nothing():
    level = group(long("8", 0.0, 0.0, 0.001), long("9", 0.0, 0.0, 0.001))
    assert says(verdicts.payload(level, [])["sentence"], "same reward", "no gradient", "wrong ones stays")


def test_rounding_of_log_probs_is_drawn_as_no_change():
    shown = verdicts.payload(group(long("1", 0.0, 0.0, 2e-6, exact=False), long("2", 0.0, 0.0, -1e-3, exact=False)), [])
    (band,) = [each for each in shown["verdicts"] if each["count"]]
    assert [each["change"] for each in (band, *band["answers"])] == [0, 0, 0] and "stays" in shown["sentence"]


def test_thinking_is_apart_from_the_answer():
    thinking = group(long("7", 1.0, 0.0) | {"text": f"{THOUGHT}Seven, I am quite sure of it."})
    answer = verdicts.payload(thinking, [])["verdicts"][0]["answers"][0]
    assert (answer["first"], answer["last"]) == ("Seven, I am quite sure of it.", "")
    assert answer["parts"][0] == ["thinking", THOUGHT.rstrip("\n")]


def test_what_the_reward_of_a_long_answer_is_made_of():
    judged = long("7", 1.0, 0.5) | {"parts": {"right": 1.0, "brief": 0.25}}
    [answer] = verdicts.payload(group(judged), [])["verdicts"][0]["answers"]
    assert answer["earned"] == "right 1, brief 0.25"


def test_files_of_before_the_update_alone():
    before = group(long("7", 1.0, 0.5) | {"logprob_after": None, "after": None})
    shown = verdicts.payload(before, [])
    assert shown["verdicts"][0]["change"] is None and says(shown["sentence"], "one answer", "right")
