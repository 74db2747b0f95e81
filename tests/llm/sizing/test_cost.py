"""The table of what algorithms cost, from what was counted and measured."""

from labcore.llm.sizing import cost
from labcore.runs import jobs
from labcore.runs.spec.run_spec import make

HELD = [{"name": "policy", "parameters": 1000, "learnt": 1000}, {"name": "reference", "parameters": 1000, "learnt": 0},
        {"name": "critic", "parameters": 1010, "learnt": 1010}]


def measured(spec, *seconds):
    asked = cost.cost_asked(spec)
    jobs._keep(jobs.put(asked), {"activations": 5000, "seconds": list(seconds), "measured": 1.0})


def test_rows_have_exact_bytes_and_the_step_beside_ppo_s(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    ppo, grpo = (make(algorithm_key=key, task_key="sort") for key in ("ppo", "grpo"))
    before = cost.rows([ppo, grpo], [HELD, HELD[:2]])
    assert (before[0].weights, before[0].learning, before[0].together) == (12_040, 12 * 2010, 12_040 + 12 * 2010)
    assert before[0].names() == "policy, critic, reference (frozen)"
    assert (before[0].batch, before[1].batch) == ("64 completions × 4", "256 completions × 2")
    assert before[0].seconds is None and cost.times(before[1], before) is None
    measured(ppo, 0.4, 0.2, 0.3)
    measured(grpo, 0.5, 0.1)
    rows = cost.rows([ppo, grpo], [HELD, HELD[:2]])
    assert [row.seconds for row in rows] == [0.2, 0.1] and cost.times(rows[1], rows) == 0.5
    assert rows[1].together == before[1].together + 5000
    assert cost.rows([ppo], ["no model"])[0].fault == "no model"


def test_the_rows_beside_a_run_have_its_task_model_and_lora():
    own = make(algorithm_key="kto", task_key="sort", model="some/model", knobs={"lora_rank": 4, "letters": 5})
    found = cost.beside(own)
    assert [spec.algorithm for spec in found] == ["kto", *cost.USUAL]
    assert {(spec.knobs["lora_rank"], spec.knobs["letters"], spec.model) for spec in found} == {(4, 5, "some/model")}
    builtin = make(algorithm_key="kto", task_key="sort", knobs={"lora_rank": 4})
    assert "sft" not in [spec.algorithm for spec in cost.beside(builtin)], "its weights would be random"


def test_a_mix_that_began_from_ppo_stands_beside_ppo_and_is_not_taken_for_it():
    mix = make(algorithm_key="ppo", task_key="sort", mix="mine")
    found = cost.beside(mix)
    assert [(spec.algorithm, spec.mix) for spec in found[:3]] == [("ppo", "mine"), ("ppo", ""), ("grpo", "")]
    rows = [cost.Row(spec, HELD, {"seconds": [seconds]}) for spec, seconds in zip(found, (0.1, 0.4), strict=False)]
    assert [cost.times(row, rows) for row in rows] == [0.25, 1.0]


def test_the_same_question_of_two_processes_is_one_job(monkeypatch):
    spec = make(algorithm_key="grpo", task_key="sort")
    monkeypatch.setattr(cost.versions, "here", lambda: {"code": "abc", "threads": 1})
    one = jobs.job_id(cost.cost_asked(spec))
    monkeypatch.setattr(cost.versions, "here", lambda: {"code": "abc"})
    assert jobs.job_id(cost.cost_asked(spec)) == one
    monkeypatch.setattr(cost.versions, "here", lambda: {"code": "other"})
    assert jobs.job_id(cost.cost_asked(spec)) != one
