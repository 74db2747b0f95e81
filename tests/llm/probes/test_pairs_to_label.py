"""Pairs to label: different completions of one prompt, from a checkpoint, a base, or the task itself."""

from unittest.mock import patch

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.generation import token_logprobs
from labcore.llm.loops.preference import encode
from labcore.llm.probes.answer import reader
from labcore.runs import jobs
from labcore.runs.spec.run_spec import make
from labcore.tasks import labels
from labcore.tasks.task import Pair
from tests.llm.runs_on_disk import saved
from tests.llm.tools import TINIER

ASKED = {"job": "pairs_to_label", "count": 6, "seed": 3}


@pytest.fixture(autouse=True)
def tiny():
    with patch.dict(MODELS, {"tiny": TINIER}):
        yield


def test_a_checkpoint_gives_as_many_pairs_as_are_wanted_and_the_same_again():
    run = saved("grpo-sort-aaaa")
    found = jobs.do(ASKED | {"model": run})
    assert found["model"] == f"{run}@2" and len(found["pairs"]) == 6
    assert all(pair["a"] != pair["b"] and pair["prompt"].endswith("=") for pair in found["pairs"])
    assert jobs.do(ASKED | {"model": run}) == found != jobs.do(ASKED | {"model": run, "seed": 4})
    assert found["pairs"] != jobs.do(ASKED | {"model": f"base:{run}"})["pairs"]
    assert {pair["answer"] for pair in found["pairs"]} == {"".join(sorted(pair["prompt"][:-1]))
                                                           for pair in found["pairs"]}, "so that gold can label them"


def test_one_side_may_be_another_model_s_and_stands_in_no_place_of_its_own():
    run = saved("grpo-sort-aaaa", max_new_tokens=2, temperature=0.05)
    found = jobs.do(ASKED | {"model": run, "against": f"base:{run}", "count": 30})
    assert found["model"] == f"{run}@2" and len(found["pairs"]) == 30
    policy, base = (reader(name, {}, 0) for name in (f"{run}@2", f"base:{run}"))

    def likelier(pair, side):  # by the policy than by the base
        return _logprob(policy, pair, side) > _logprob(base, pair, side)

    places = [likelier(pair, "a") for pair in found["pairs"] if likelier(pair, "a") != likelier(pair, "b")]
    assert len(places) > 25 and 5 < sum(places) < 25


def _logprob(session, pair, side) -> float:
    prompts, completions = encode(session, [Pair(pair["prompt"], pair[side], "", chosen_truncated=True)])
    return float(token_logprobs(session, session.policy, prompts, completions)[0].sum())


def test_before_any_run_they_are_the_task_s_own_without_its_labels():
    spec = make(algorithm_key="reward_model", task_key="reviews", knobs={"label_temperature": 0.0})
    found = jobs.do(ASKED | {"spec": spec.to_json(), "count": 80})
    assert found["model"] == "" and len(found["pairs"]) == 80
    picks = labels.by_gold(spec, found["pairs"], 0)
    assert 22 < picks.count("a") < 58, "the chosen side is first about as often as second"


def test_a_base_that_is_there_is_sampled_and_one_that_is_not_is_said():
    shipped = make(algorithm_key="reward_model", task_key="sort", model="tiny", knobs={"sft_steps": 0})
    assert len(jobs.do(ASKED | {"spec": shipped.to_json()})["pairs"]) == 6
    missing = make(algorithm_key="reward_model", task_key="sort", model="tiny", knobs={"sft_steps": 3})
    with pytest.raises(LabError, match="The base model of 'sort' is gone"):
        jobs.do(ASKED | {"spec": missing.to_json()})


def test_a_model_that_always_says_the_same_gives_nothing_to_choose_from():
    run = saved("grpo-sort-aaaa", temperature=0.05, by=3.0, max_new_tokens=1)
    with pytest.raises(LabError, match="nothing to choose between"):
        jobs.do(ASKED | {"model": run})


@pytest.mark.parametrize("count", [0, 5000, "6"])
def test_a_count_that_cannot_be_is_refused(count):
    with pytest.raises(LabError, match="count must be a whole number"):
        jobs.do(ASKED | {"model": "grpo-sort-aaaa", "count": count})
