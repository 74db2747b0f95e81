"""What is said before a run of answers that its length limit cuts off, and of long texts."""

import json

import pytest

from labcore.catalog.choices import needs_teacher
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.tasks import TASKS
from labcore.catalog.mix.cautions import of_run
from labcore.cli.main import main
from labcore.runs.spec.run_spec import knobs_of, make
from labcore.tasks import cautions
from labcore.tasks.cautions import caution, of_task
from tests.words import says


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


def pairs(tmp_path, length: int, lines: int = 4) -> str:
    path = tmp_path / f"pairs-{length}.jsonl"
    path.write_text("".join(json.dumps({"prompt": "a=", "chosen": "ab" * (length // 2), "rejected": "b"}) + "\n"
                            for _ in range(lines)))
    return str(path)


def said(tmp_path, length: int, algorithm: str = "dpo", **knobs) -> str:
    return make(algorithm_key=algorithm, task_key="preferences", data=pairs(tmp_path, length), knobs=knobs).caution()


def test_texts_that_are_cut_and_the_tokens_of_a_step_are_said(tmp_path):
    assert says(said(tmp_path, 50_000), "4 of 8", "2,048", "tiny", "50,003", "beginnings", "32,768 tokens",
                "lower pairs_per_step", "shorten the texts")
    assert said(tmp_path, 50_000, pairs_per_step=4).endswith("their beginnings only.")
    assert "lower sequences_per_step" in said(tmp_path, 50_000, "sft", sequences_per_step=32)
    assert said(tmp_path, 200) == ""
    assert said(tmp_path, 2045, pairs_per_step=4) == "" and "4 of 8" in said(tmp_path, 2046, pairs_per_step=4)


def test_the_command_line_says_it_before_the_start(tmp_path, capsys, monkeypatch):
    started = []
    monkeypatch.setattr("labcore.cli.commands.train", lambda *given: started.append(capsys.readouterr().err) or 0)
    assert main(["run", "--algorithm", "dpo", "--preferences", pairs(tmp_path, 50_000)]) == 0
    assert "labcore: 4 of 8 texts are longer" in started[0]


def test_a_file_that_cannot_be_read_is_said_where_it_is_checked(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert make(algorithm_key="dpo", task_key="preferences", data=str(tmp_path / "empty.jsonl")).caution() == ""
    assert make(algorithm_key="dpo", task_key="sort").caution() == ""
