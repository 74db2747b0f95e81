"""Rewards of one's own on the page: picked among the functions of the lab's folder, never uploaded."""

import pytest

from app.llm import reward_parts
from labcore.tasks import own_reward
from tests.app.seeding import unfolded
from tests.tasks.test_own_reward import written


@pytest.fixture
def functions(lab):
    """The keys of two functions in the lab's folder of reward files."""
    written(own_reward.root(), "open('ran', 'w')\ndef right(completions, answer): ...\ndef brief(completions): ...\n")
    return {key.split()[0].split(":")[1]: key for key in own_reward.offered() if ":" in key}


def test_functions_are_picked_and_become_the_draft_s(page, lab, functions):
    test = page("llm", algorithm="grpo", reward_source="own_function", reward_function=functions["right"],
                reward_weights="1 0.5")
    assert not test.exception
    unfolded(test, "reward")
    [picks] = [each for each in test.multiselect if each.label.startswith("Your rewards")]
    assert picks.options == ["right · mine.py", "verifier", "reward model", "judge", "brief · mine.py"]
    assert picks.value == [functions["right"]]
    picks.set_value([functions["right"], functions["brief"]]).run()
    assert test.query_params["reward_function"] == f"{functions['right']} + {functions['brief']}"
    said = " ".join(each.value for each in test.caption)
    assert "Rewards: right + 0.5 × brief. The gold" in said and not (own_reward.root() / "ran").exists()


def test_a_link_with_a_sum_that_cannot_be_opens_the_page_and_says_why(page, lab):
    test = page("llm", algorithm="grpo", reward_source="own_function", reward_function="os.system + no")
    assert not test.exception
    assert any("cannot be used" in each.value for each in (*test.warning, *test.error))


def test_the_parts_of_answers_in_words():
    answers = [{"count": 3, "parts": {"right": 1.0, "brief": 0.25}},
               {"count": 1, "parts": {"right": 0.0, "brief": None}},
               {"count": 0, "parts": {"right": 9.0, "brief": 9.0}}, {"count": 2}]
    assert reward_parts.mean(answers) == {"right": 0.75, "brief": 0.25}
    assert reward_parts.sentence({"answers": answers}) == "Mean rewards: right 0.75, brief 0.25."
    assert reward_parts.sentence({"answers": [{"count": 1, "parts": {"gold": 1.0}}]}) == ""
    watched = {"answers": [{"count": 1, "parts": {"right": None, "brief": None, "gold": 0.0}}]}
    assert reward_parts.sentence(watched) == "", "nobody scored them"
    assert reward_parts.said({"parts": {"right": 1.0, "polite": None}}) == "right 1, polite –"
    assert reward_parts.said({}) == ""
