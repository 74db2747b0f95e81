"""Groups and orders of a list, by fields and by knobs."""

import pytest

from labcore.runs.lists.entries import FIELDS, GROUPS, ORDERS, TEXTS, grouped, knobs, ordered
from tests.runs.lists.tools import entry

LOW = entry("a", knobs={"beta": 0.02, "group_size": 8}, last=0.4, best=0.5)
HIGH = entry("b", knobs={"beta": 0.1, "group_size": 8}, last=0.6, best=0.9)
AGAIN = entry("c", knobs={"beta": 0.02, "group_size": 8}, last=0.8, best=0.9)
WORLD = entry("d", kind="maze", algorithm="Q-learning", knobs={"alpha": 0.1}, metric="episode_return", last=-12.0,
              best=None)
FRESH = entry("e", knobs={"beta": 0.1}, metric="reward", last=None, best=None)


def test_groups_come_in_the_order_of_their_values_and_those_without_one_last():
    found = grouped([WORLD, HIGH, LOW, AGAIN], "beta")
    assert [(group.value, [each.id for each in group.entries]) for group in found] == [
        (0.02, ["a", "c"]), (0.1, ["b"]), (None, ["d"])]
    assert [group.value for group in grouped([HIGH, WORLD], "algorithm")] == ["GRPO", "Q-learning"]


def test_means_are_of_one_metric_each_and_leave_out_runs_without_a_step():
    group, = grouped([LOW, AGAIN, WORLD, FRESH], "seed")
    count, last, best = group.means["reward"]
    assert (count, round(last, 9), round(best, 9)) == (2, 0.6, 0.7)
    assert group.means["episode_return"] == (1, -12.0, None)


def test_knobs_that_differ_within_an_algorithm_come_first():
    assert knobs([LOW, HIGH, WORLD]) == ["beta", "alpha", "group_size"]


@pytest.mark.parametrize("key, descending, found", [
    ("last", True, "cbade"), ("last", False, "dabce"), ("beta", False, "acbed"), ("id", False, "abced")])
def test_an_order_puts_runs_without_a_value_last(key, descending, found):
    assert "".join(each.id for each in ordered([LOW, HIGH, AGAIN, WORLD, FRESH], key, descending)) == found


def test_titles_are_in_the_order_of_their_numbers():
    """By the letters alone #10 would come before #9."""
    found = [entry("a", title="PPO sort #8"), *(entry(str(of), title=f"GRPO sort #{of}") for of in (10, 9, 100))]
    assert [each.title for each in ordered(found, "id", False)] == [
        "GRPO sort #9", "GRPO sort #10", "GRPO sort #100", "PPO sort #8"]


def test_numbers_in_texts_that_are_no_numbers_of_runs_are_in_the_order_of_their_letters():
    """Padded to whole numbers 0.5 would come before 0.25."""
    found = [entry(word, knobs={"schedule": word}) for word in ("0.5", "0.25", "1.5")]
    assert [each.id for each in ordered(found, "schedule", False)] == ["0.25", "0.5", "1.5"]


def test_what_can_be_chosen_is_there():
    assert {*GROUPS, *ORDERS} <= set(FIELDS) and set(ORDERS) > TEXTS
    there = entry("a", last=0.4, best=0.5)
    assert {key for key in ORDERS if isinstance(FIELDS[key].read(there), str)} == TEXTS
