"""Feeds of long runs: what is drawn, what a refresh sends again, and how much a page holds."""

from dataclasses import replace

import pytest

from app.training import feed as feeds
from app.training.chart_data import payload
from app.training.feed import Feed
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Step


def row(step: int, **metrics: float) -> Step:
    return Step(step, 10 * step, 0, 0.1 * step, {"reward": step / 1000, **metrics})


def feed() -> Feed:
    return Feed(make(algorithm_key="grpo", task_key="sort", steps=10))


def test_an_evaluation_between_two_drawn_steps_is_drawn():
    """Evaluations at the odd steps 1, 51, 101, … of a run of which every second row is drawn."""
    found = feed()
    evaluated = [row(step, **({"held_out/accuracy": step / 1e4} if step % 50 == 1 else {})) for step in range(1, 2001)]
    found.take(evaluated, [])
    drawn = found.rows(0)
    assert found.stride == 2 and len(drawn) == 1001 and drawn[0][0] == 1 and drawn[-1][0] == 2000
    assert sum("held_out/accuracy" in each[3] for each in drawn) == 40


def test_a_page_that_stays_open_holds_no_more_than_one_that_is_opened():
    found = feed()
    for start in range(1, 30_000, 500):
        found.take([row(step) for step in range(start, start + 500)], [])
        assert len(found.steps) <= feeds.LONG
    assert found.steps[0].step == 1 and [each.step for each in found.steps[-500:]] == [*range(29_501, 30_001)]
    drawn = found.rows(0)
    assert drawn[0][0] == 1 and drawn[-1][0] == 30_000 and len(drawn) <= feeds.MOST + 1


@pytest.mark.parametrize(("first", "last", "count"), [(3990, 4015, 1), (3100, 5000, 190)])
def test_refreshes_give_the_browser_the_rows_that_it_would_be_given_at_once(first, last, count):
    """The browser drops the rows beyond `after` and adds those that it is sent."""
    found, browser = feed(), []
    found.take([row(step) for step in range(1, first)], [])  # from here on its stretches are as long as at the end
    for start in range(first, last, count):
        found.take([row(step) for step in range(start, start + count)], [])
        sent = payload({"r": found}, full=not browser, x="step", smooth=0.0, ended=False)["runs"]["r"]
        browser = [each for each in browser if each[0] <= sent["after"]] + sent["rows"]
        assert [each[0] for each in browser] == [each[0] for each in found.rows(0)]


def test_a_fork_begins_at_the_row_of_a_thinned_parent_that_is_nearest_before_it():
    parent, fork = feed(), Feed(replace(make(algorithm_key="grpo", task_key="sort", steps=2000), parent=("p", 1001)))
    parent.take([row(step) for step in range(1, 20_000)], [])
    assert 1001 - parent.stride < fork.root(parent)[0] <= 1001
    short = feed()
    short.take([row(step) for step in range(1, 1000)], [])
    assert fork.root(short) is None, "the parent has no row near it"
