"""A few prompts of the user's file, answered before the run."""

import json

import pytest

from app.training.own_data import asked_of
from labcore.llm.probes.first_answers import first_answers
from labcore.runs import jobs
from labcore.runs.files import bases
from labcore.runs.spec.run_spec import base_spec, make


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(40)))
    return path


def spec(file, **knobs):
    return make(algorithm_key="grpo", task_key="prompts", data=str(file),
                knobs={"verifier": "length", "max_new_tokens": 6, **knobs})


def test_the_model_answers_prompts_of_the_file_and_the_verifier_judges(file):
    asked = asked_of(spec(file))
    found = jobs.do(asked)
    assert (found["context"], found["longest"], len(found["answers"])) == (2048, 5, 16)
    assert len({answer["prompt"] for answer in found["answers"]}) == 16
    for answer in found["answers"]:
        assert answer["exact"] == (answer["reward"] == 1) == (1 <= len(answer["text"]) <= 40)
        assert answer["truncated"] == (len(answer["text"]) == 6) and not found["has_template"]
    assert json.loads(json.dumps(found)) == found == jobs.do(asked), "the same again"


def test_prompts_that_do_not_fit_are_left_out(file):
    rows = [{"prompt": "x" * 3000, "answer": "y"}, {"prompt": "1=", "answer": "1"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    found = jobs.do(asked_of(spec(file)))
    assert found["longest"] == 3000 and [answer["prompt"] for answer in found["answers"]] == ["1="]


def test_the_base_is_asked_where_there_is_one():
    add = make(algorithm_key="grpo", task_key="add")
    before, after = (first_answers({"spec": asked_of(add)["spec"], "base": base, "count": 64})
                     for base in (None, base_spec(add).hash()))
    assert bases.shipped(base_spec(add).hash()) and not bases.folder(base_spec(add).hash()).exists(), "read, not copied"
    assert sum(answer["exact"] for answer in before["answers"]) == 0
    assert sum(answer["exact"] for answer in after["answers"]) > 5


def test_the_job_is_that_of_the_file_the_model_and_the_knobs_that_count(file):
    asked = jobs.job_id(asked_of(spec(file)))
    assert asked == jobs.job_id(asked_of(spec(file, beta=0.5, group_size=4, sft_steps=9)))
    assert asked != jobs.job_id(asked_of(spec(file, verifier="exact")))
    assert asked != jobs.job_id(asked_of(spec(file, temperature=0.5)))
    for knob, value in (("template", "off"), ("system_prompt", "Be brief."), ("begins_with", "So")):
        assert asked != jobs.job_id(asked_of(spec(file, **{knob: value}))), "the prompt that the model reads"
