"""Early stopping: by the KL, or by the gold reward's fall; a checkpoint knows of it, and without gold it is silent."""

from dataclasses import replace

import pytest

from labcore.llm.early_stopping import reason
from tests.llm.tools import records, session
from tests.words import says


def said(golds, **knobs) -> list[str]:
    made = session("grpo", reward_source="order_only", **knobs)
    return [reason(made, {"kl": 0.1, "reward/gold": gold}) for gold in golds]


def test_a_fall_below_the_best_of_the_means_of_four_steps_ends_the_run():
    golds = [0.2, 0.4, 0.4, 0.6, 0.6, 0.0, 0.0]  # means of four: 0.4, 0.5, 0.4, 0.3
    assert said(golds, stop_gold_fall=0.15)[:-1] == [""] * 6
    assert says(said(golds, stop_gold_fall=0.15)[-1], "gold reward", "0.300", "0.200 below", "0.500", "4 steps")
    assert said(golds, stop_gold_fall=0.25) == said(golds) == [""] * 7


def test_the_kl_ends_the_run_and_where_there_is_no_gold_nothing_falls():
    made = session("grpo", stop_kl=0.5, stop_gold_fall=0.1)
    assert reason(made, {"kl": 0.5}) == ""
    assert says(reason(made, {"kl": 0.625}), "KL", "0.62 nats/token", "limit of 0.5")
    assert made.recent_gold == [] and made.best_gold == 0.0


def test_a_run_stops_with_words_and_stays_so_when_it_is_resumed(tmp_path):
    made = session("grpo", steps=4, stop_kl=1e-9, learning_rate=0.05)
    assert len(records(made)) == 2, "at the first step policy and reference are the same"
    assert made.finished_because.startswith("early stopping: the KL to the reference reached")
    made.save(tmp_path / "checkpoint")
    resumed = session("grpo", steps=4, stop_kl=1e-9, learning_rate=0.05, resume=tmp_path / "checkpoint")
    assert records(resumed) == [] and resumed.finished_because == made.finished_because
    forked = resumed.fork(replace(made.spec, parent=("parent", 2), knobs={**made.spec.knobs, "stop_kl": 0.0}))
    assert len(records(forked)) == 2 and forked.finished_because == "all 4 steps done"


def test_what_is_remembered_of_gold_is_in_a_checkpoint(tmp_path):
    given = {"reward_source": "order_only", "steps": 6, "max_new_tokens": 2, "stop_gold_fall": 1.0}
    made = session("grpo", **given)
    golds = [record.metrics["reward/gold"] for record in records(made)]
    assert made.recent_gold == golds[2:] and len(set(golds)) > 2
    assert made.best_gold == max(sum(golds[first: first + 4]) / 4 for first in range(3))
    made.best_gold = 0.5
    made.save(tmp_path / "checkpoint")
    again = session("grpo", **given, resume=tmp_path / "checkpoint")
    assert (again.recent_gold, again.best_gold) == (made.recent_gold, pytest.approx(0.5))
