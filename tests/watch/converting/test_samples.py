"""Completions of a program in the form of the lab's samples, whatever of them was sent."""

import json
from math import exp

import pytest

from labcore.watch.converting.samples import samples_of

WHOLE = {"text": "ab", "tokens": ["a", "b"], "advantages": [0.5, 0.25], "logprobs": [-1.0, -2.0],
         "old_logprobs": [-1.5, -2.0], "ref_logprobs": [-1.0, -3.0], "sampler_logprobs": [-1.4, -2.1],
         "entropy": [0.1, 0.2], "rewards": {"reward": 0.7, "right": 1, "short": 0.4}}


def one(completion: object, **more: object) -> dict:
    found = samples_of({"groups": [{"prompt": "p", "completions": [completion]}], **more}, 3)
    assert found
    return found["groups"][0]["completions"][0]


def test_ratios_and_kl_are_those_of_the_log_probs():
    found = one(WHOLE)
    assert found["ratio"] == pytest.approx([exp(0.5), 1.0]) and found["kl"] == pytest.approx([0.0, exp(-1.0)])
    assert (found["reward"], found["parts"], found["advantage"]) == (0.7, {"right": 1.0, "short": 0.4}, 0.375)


@pytest.mark.parametrize("left", [key for key in WHOLE if key != "text"])
def test_fields_that_were_not_sent_are_missing(left):
    found = one({key: value for key, value in WHOLE.items() if key != left})
    assert found["text"] == "ab" and left not in found and json.dumps(found, allow_nan=False)


def test_a_prompt_of_messages_is_a_chat():
    found = samples_of({"groups": [{"prompt": [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}],
                                    "completions": [{"text": [{"role": "assistant", "content": "yes"}]}]}]}, 1)
    group, = found["groups"] if found else []
    assert (group["prompt"], len(group["messages"]), group["completions"][0]["text"]) == ("hi", 2, "yes")


@pytest.mark.parametrize("line", [{}, {"groups": 3}, {"groups": [3]}, {"groups": [{"completions": [3]}]},
                                  {"groups": [{"prompt": "a"}]}])
def test_a_line_without_completions_has_no_samples(line):
    assert samples_of(line, 1) is None


def test_values_that_are_not_numbers_are_empty():
    found = one({"text": 3, "tokens": ["a"], "logprobs": ["NaN"], "old_logprobs": [1e9], "rewards": {"r": "x"}})
    assert (found["text"], found["reward"], found["logprobs"], found["ratio"]) == ("3", None, [None], [None])
    assert one({"text": "a", "tokens": ["a"], "logprobs": [0.0], "old_logprobs": [-1e9]})["ratio"] == [exp(80.0)]


def test_a_step_says_how_many_groups_it_had():
    groups = [{"prompt": "p", "completions": [{"text": "a"}] * 4}]
    found = samples_of({"groups": groups, "of": 64}, 1)
    assert found and found["batch_groups"] == 16


def test_pairs_have_both_sides_and_the_difference_of_their_rewards_as_margin():
    sides = [{**WHOLE, "text": text, "rewards": {"reward": reward}} for text, reward in (("good", 0.7), ("bad", 0.2))]
    [pair] = samples_of({"pairs": True, "groups": [{"prompt": "p", "completions": sides}]}, 3)["pairs"]
    assert (pair["prompt"], pair["margin"], pair["chosen"]["text"]) == ("p", pytest.approx(0.5), "good")
    assert (pair["rejected"]["logprob"], pair["rejected"]["ref_logprob"]) == (-3.0, -4.0)
    assert "ratio" not in pair["chosen"] and pair["chosen"]["tokens"] == ["a", "b"]


@pytest.mark.parametrize("sides, there", [([{"text": "a"}, {"text": "b"}], True), ([{"text": "a"}], False), ([], False),
                                          ([{"text": "a"}] * 3, False)])
def test_pairs_without_rewards_have_no_margin_and_a_side_alone_is_no_pair(sides, there):
    found = samples_of({"pairs": True, "groups": [{"prompt": "p", "completions": sides}]}, 3)
    assert (found is not None) == there and (not there or found["pairs"][0]["margin"] is None)
