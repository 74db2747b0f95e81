"""A switch that is on brings its chart, and a run with it logs what the chart draws; off, it does neither."""

import pytest

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.panels import OWN, PANELS, SWITCHED, with_switched
from tests.llm.tools import records, session

ON = [("parts", {"reward_source": "correct_and_format"}), ("bound", {"surrogate": "bounded_clip"}),
      ("token_weight", {"top_entropy_share": 0.5}), ("token_weight", {"off_policy_threshold": 0.1}),
      ("token_weight", {"importance_cap": 2.0}), ("kl_coefficient", {"adaptive_kl_target": 0.1}),
      ("entropy_coefficient", {"entropy_target": 0.3}),
      ("selection", {"overlong_filter": True}), ("selection", {"selection": "not_truncated"}),
      ("sample_age", {"staleness": 1}), ("pool", {"prompt_pool": 8})]


@pytest.mark.parametrize("panel, knobs", ON, ids=[next(iter(knobs)) for _, knobs in ON])
def test_a_switch_brings_its_chart(panel, knobs):
    started, row = session("grpo", steps=1, **knobs), ALGORITHMS["grpo"].panels
    assert panel not in row and with_switched(row, started.knobs) == (*row, panel)
    metrics = records(started)[0].metrics
    assert {*PANELS[panel].metrics} <= {*metrics}
    without = session("grpo", steps=1)
    assert with_switched(row, without.knobs) == row
    assert not {*PANELS[panel].metrics} & {*records(without)[0].metrics}


def test_several_reward_models_bring_their_spread():
    """`tests/llm/test_rewards_scorer.py` sees it logged."""
    row, knobs = ALGORITHMS["grpo"].panels, {"reward_source": "worst_case_ensemble", "reward_model": "a@1,b@1"}
    assert with_switched(row, knobs) == (*row, "spread") and PANELS["spread"].metrics == ("reward/spread",)
    assert with_switched(row, knobs | {"reward_model": "a@1"}) == row
    assert with_switched(row, knobs | {"reward_source": "verifier"}) == row


def test_pass_at_k_is_drawn_where_it_is_logged():
    """`tests/llm/loops/test_held_out.py` sees it logged: a file may be too small to hold rows out."""
    row = ALGORITHMS["grpo"].panels
    assert with_switched(row, {"held_out": 0.1}) == row
    assert with_switched(row, {"held_out": 0.1}, {"held_out/pass@2"}) == (*row, "pass_at_k")


def test_rewards_of_one_s_own_are_drawn_and_so_is_what_they_do_not_score():
    """`tests/llm/test_rewards.py` sees them logged."""
    row, logged = ALGORITHMS["grpo"].panels, {"reward", "reward/right", "reward/brief", "unscored/brief"}
    several = {"reward_source": "own_function", "reward_function": "a.py:right 12 + a.py:brief 12"}
    assert with_switched(row, several) == (*row, "parts")
    assert with_switched(row, several, logged) == (*row, "parts", "unscored")
    assert with_switched(row, several | {"reward_function": "a.py:right 12"}) == row
    assert PANELS["parts"].lines(logged)[-2:] == ("reward/brief", "reward/right")
    assert PANELS["unscored"].lines(logged) == ("unscored/reward", "unscored/brief")
    assert PANELS["reward"].lines(logged) == PANELS["reward"].metrics


def test_the_scores_of_steps_have_a_chart():
    """`tests/llm/test_process_rewards.py` sees them logged."""
    row = ALGORITHMS["grpo"].panels
    for source in ("process_reward", "step_verifier"):
        assert with_switched(row, {"reward_source": source, "reward_model": "a@1,b@1"}) == (*row, "step_scores")


def test_every_switch_is_tried_and_comes_once():
    logged = {"spread", "pass_at_k", "unscored", "levels", "step_scores", "best_of_n"} | {each.key for each in OWN}
    assert {panel for panel, _ in ON} | logged == {*SWITCHED}
    row = ALGORITHMS["gdpo"]
    assert with_switched(row.panels, {"reward_source": "correct_and_format"}).count("parts") == 1
