"""The estimator bench: what is asked of it, that it is the same twice, and that it finds what is known to be there."""

import csv
import json
from unittest.mock import patch

import pytest
import torch

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.llm.exact.bench import _samples, climbed, estimator_bench, frozen_session, settings_of
from labcore.llm.exact.draws import estimate
from labcore.llm.exact.session import ExactSession
from labcore.llm.experience import collect
from labcore.llm.generation import generate
from labcore.llm.sizing import bench
from labcore.runs import jobs
from labcore.tasks.task import Score
from tests.llm.exact.small import TINY
from tests.llm.tools import session

SMALL = {**TINY, "prompt_count": 2, "prompts_per_step": 2, "group_size": 4}
ASKED = {"algorithms": ["rloo", "dr_grpo"], "batches": 40, "seed": 1, "knobs": SMALL}


def test_it_finds_the_bias_that_is_there_and_none_where_there_is_none():
    found = estimator_bench({**ASKED, "algorithms": ["rloo", "dr_grpo", "dpo"], "batches": 40})
    unbiased, shorter, pairs = found["rows"]
    assert not unbiased["biased"] and unbiased["scale"][1] < 1 < unbiased["scale"][2] and not unbiased["reasons"]
    wanted = (1 - 1 / 4) / 2  # less its own reward, over the length limit
    assert shorter["biased"] and not shorter["turns"] and shorter["scale"][1] < wanted < shorter["scale"][2]
    assert [bench.finding(row) for row in found["rows"][:2]] == ["no bias found", "other length"]
    assert not pairs["biased"] and pairs["samples"] == 32 and unbiased["samples"] == 8
    assert found["reward_before"] < found["reward"] < found["reward_best"]


def test_a_knob_is_looked_at_in_every_row_and_the_same_question_has_the_same_answer():
    asked = {**ASKED, "batches": 10, "knob": "group_size", "values": ["2", 4]}
    found = estimator_bench(asked)
    assert [(row["algorithm"], row["value"], row["samples"]) for row in found["rows"]] == [
        (key, size, 2 * size) for key in ASKED["algorithms"] for size in (2, 4)]
    one, same, other = (json.dumps(estimator_bench({**ASKED, "algorithms": ["rloo"], "batches": 10, "seed": seed}))
                        for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("advantage", ["greedy_baseline", "win_probability", "group_mean"])
def test_what_a_batch_is_compared_with_is_counted_in_every_round_of_sampling(advantage):
    started = session("nash_md", advantage=advantage, selection="informative", resample_rounds=2, group_size=2)
    started.task.score = lambda problem, text: Score(1.0, True)  # all groups are drawn again
    with patch("labcore.llm.experience.generate", side_effect=generate) as drawn:
        batch = collect(started)
    asked = [len(call.args[2]) * call.args[3] for call in drawn.call_args_list]
    assert len(batch.sampled) == 3 and _samples(batch, started.knobs) == sum(asked)


def test_the_frozen_policy_is_one_and_stays():
    settings = settings_of({**ASKED, "algorithms": ["grpo", "ppo"]}, 1)
    trail, about = climbed(ExactSession.start(settings[0].spec), 0.5)
    weights = trail[-1]
    halfway = (about["reward_before"] + about["reward_best"]) / 2
    assert about["reward"] == pytest.approx(halfway, abs=0.03)
    for setting in settings:
        session, world = frozen_session(setting.spec, weights)
        assert float((world.probabilities * world.rewards).sum(1).mean()) == pytest.approx(about["reward"], abs=1e-5)
        assert session.knobs["updates_per_batch"] == 1 and "exact/reward" not in vars(session)
        estimate(session, collect(session).rollout)
        assert all(torch.equal(weights[name], weight) for name, weight in session.policy.state_dict().items())


@pytest.mark.parametrize("changes, words", [
    ({"algorithms": []}, "Choose at least one algorithm"),
    ({"algorithms": ["grpoo"]}, "There is no algorithm 'grpoo'"),
    ({"knob": "gae_lambda", "values": [0.5]}, "RLOO has no knob 'gae_lambda'"),
    ({"knob": "beta"}, "Give the values of beta"),
    ({"knob": "vocabulary", "values": [2, 3]}, "vocabulary is part of the problem, which is the same for all rows"),
    ({"knob": "max_new_tokens", "values": [2, 3]}, "max_new_tokens is part of the problem"),
    ({"knobs": {"shoe": 3}}, "None of these algorithms has a knob 'shoe'"),
    ({"batches": 5}, "batches must be a whole number from 10 to 2000"),
    ({"batches": 2000, "knob": "beta", "values": [0.01 * k for k in range(20)]}, "at most 50,000 are drawn at once"),
    ({"critic": "good"}, "There is no critic 'good'"), ({"progress": 2}, "progress must be a share"),
    ({"knobs": {"vocabulary": 6, "max_new_tokens": 6}}, "at most 10,000 can be enumerated"),
    ({"knobs": {"reward_source": "noisy_verifier", "shaping": "length_cost"}}, "have no mean that is known"),
])
def test_what_cannot_be_measured_is_refused_in_a_sentence(changes, words):
    with pytest.raises(LabError, match=words):
        estimator_bench({**ASKED, **changes})


def test_a_row_whose_batches_all_have_no_gradient_says_so():
    """One completion in 781 is right, and 20 are drawn."""
    sparse = {"vocabulary": 5, "max_new_tokens": 4, "prompt_count": 1, "prompts_per_step": 1, "group_size": 2,
              "beta": 0.0}
    row, = estimator_bench({"algorithms": ["rloo"], "batches": 10, "seed": 1, "task": "one_winner", "progress": 0,
                            "knobs": sparse})["rows"]
    assert "draw more batches" in row["fault"] and bench.finding(row) == "no gradient"


def test_the_command_prints_the_table_and_writes_it(tmp_path, monkeypatch, capsys):
    file = tmp_path / "table.csv"
    given = [f"--set={key}={value}" for key, value in SMALL.items()]
    asked = ["bench-estimators", "--algorithms", "rloo,grpo", "--knob", "beta", "--values", "0,0.5", "--batches", "12",
             *given]
    assert main([*asked, "--csv", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "bias²/|∇|²" in printed and "k3 in the loss" in printed and printed.count("RLOO") == 2
    rows = list(csv.DictReader(file.open()))
    assert [(row["algorithm"], row["value"]) for row in rows] == [
        ("rloo", "0.0"), ("rloo", "0.5"), ("grpo", "0.0"), ("grpo", "0.5")]
    assert float(rows[0]["bias_low"]) <= float(rows[0]["bias"]) <= float(rows[0]["bias_high"])
    monkeypatch.setattr(jobs, "do", lambda spec: pytest.fail("it was measured before"))
    assert main([*asked, "--json"]) == 0 and len(json.loads(capsys.readouterr().out)["rows"]) == 4
    assert main(["bench-estimators", "--knob", "beta"]) == 1
    assert "--knob and --values belong together" in capsys.readouterr().err
    assert main([*asked, "--csv", str(file / "table.csv")]) == 1
    assert "choose another place for --csv" in capsys.readouterr().err
