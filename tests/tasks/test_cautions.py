"""What is said before a run of answers that its length limit cuts off."""

import pytest

from labcore.catalog.choices import needs_teacher
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.tasks import TASKS
from labcore.catalog.mix.cautions import of_run
from labcore.runs.spec.run_spec import knobs_of, make
from labcore.tasks import cautions
from labcore.tasks.cautions import caution, of_task


@pytest.mark.parametrize("task", [key for key, row in TASKS.items() if not row.data])
def test_nothing_is_said_of_defaults(task):
    for row in ALGORITHMS.values():
        if row.learns(TASKS[task]):
            plain = {knob.key: knob.default for knob in knobs_of(row, TASKS[task])}
            alone = needs_teacher(plain) and not plain["teacher"]
            spec = make(algorithm_key=row.key, task_key=task, knobs={"teacher": "their/model"} if alone else {})
            usual = TASKS[task].own(row.loop, row.key)
            assert of_task(spec) == "" == " ".join(of_run("llm", row.key, spec.knobs, usual)), row.key


@pytest.mark.parametrize("task, knobs, said", [
    ("sort", {"letters": 8}, ""),  # all letters are there, and only the end is cut off
    ("sort", {"letters": 9}, "The length limit of 8 tokens cuts off 64 of 64 right answers: set "
     "`max_new_tokens` to 10."),
    ("add", {"digits": 6}, "set `max_new_tokens` to 8."), ("countdown", {"max_new_tokens": 3}, "cuts off 64 of 64"),
    ("reviews", {"max_new_tokens": 2}, "")])  # whatever is written is a review
def test_a_limit_below_the_right_answers_is_said_with_one_that_fits(task, knobs, said):
    found = of_task(make(algorithm_key="grpo", task_key=task, knobs=knobs))
    assert found.endswith(said) if said.startswith("set") else said in found if said else found == ""


def test_the_tokens_of_another_model_are_not_known():
    assert of_task(make(algorithm_key="grpo", task_key="sort", model="a/model", knobs={"letters": 9})) == ""


@pytest.mark.parametrize("platform, verifier, said", [("win32", "math", True), ("darwin", "math", True),
                                                      ("linux", "math", False), ("win32", "exact", False)])
def test_a_verifier_without_a_bound_of_memory_is_said(platform, verifier, said, tmp_path, monkeypatch):
    monkeypatch.setattr(cautions.sys, "platform", platform)
    (tmp_path / "sums.jsonl").write_text('{"prompt": "1+2=", "answer": "3"}')
    spec = make(algorithm_key="grpo", task_key="prompts", data=str(tmp_path / "sums.jsonl"), knobs={
        "verifier": verifier})
    assert ("on this system no limit of memory" in caution(spec)) is said
