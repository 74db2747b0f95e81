"""The code that the scripts bring: the same kinds of prompts, and exactly the lab's verdicts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labcore.catalog.llm.tasks import TASKS
from labcore.exports.handover.task_code import MATH_VERIFY, task_code
from labcore.exports.handover.tools import TOOLS
from labcore.tasks.task import Problem, make_task
from labcore.tasks.verifiers import choice
from tests.exports.handover.conftest import PAIRS, plan

ROOT = Path(__file__).parents[3]
TEXTS = ("", "3", " 3 ", "13", "3.0", "#### 3", "the sum is 3.", "−3", "1,003", "acb", "abc", "abcd", "132", "142",
         "1320", "3/4", "0.75", "B", "The answer is B.", "A or B", "[3]", "```json\n3\n```", "<a>3</a>", "1,5")


def names(each) -> dict:
    found: dict = {}
    exec(compile(task_code(each), "task.py", "exec"), found)
    return found


@pytest.mark.parametrize("task, knobs", [
    ("sort", {}), ("add", {}), ("add", {"reward_shape": "shaped"}), ("prompts", {"verifier": "exact"}),
    ("prompts", {"verifier": "numeric"}), ("prompts", {"verifier": "regex", "pattern": "^[0-9]+$"}),
    ("prompts", {"verifier": "contains"}), ("prompts", {"verifier": "contains", "pattern": "b"}),
    ("prompts", {"verifier": "math"}), ("prompts", {"verifier": "json"}),
    ("prompts", {"verifier": "format", "pattern": "<a>…</a>"}),
    ("prompts", {"verifier": "length", "length_low": 2, "length_high": 3}), ("text", {"verifier": "length"})])
def test_verdicts_are_the_labs(task, knobs, files):
    each = plan("grpo", task, files, knobs=knobs)
    ours, theirs = make_task(each.spec.task_row, each.spec.knobs, each.spec.data), names(each)["score"]
    for answer in ("3", "132", "abc", "3/4", "B", "[3]"):
        for text in TEXTS:
            assert theirs(text, answer) == ours.score(Problem("", answer), text).reward, (text, answer)


def test_the_letter_of_a_choice_is_judged_as_in_the_lab(files):
    Path(files["prompts"]).write_text('{"prompt": "Which?", "answer": "B"}')
    theirs = names(plan("grpo", "prompts", files, knobs={"verifier": "choice"}))["score"]
    for text in (*TEXTS, r"\boxed{B}", "A) 3\nB) 4", "b"):
        assert theirs(text, "B") == choice(text, "B"), text


@pytest.mark.parametrize("task", ["sort", "add", "prompts", "text"])
def test_prompts_are_of_the_labs_kind(task, files):
    each = plan("grpo", task, files)
    found = names(each)["problems"](200, seed=3)
    assert len(found) == 200 and found == names(each)["problems"](200, seed=3) != names(each)["problems"](200, seed=4)
    ours = make_task(each.spec.task_row, each.spec.knobs, each.spec.data).problems(200, np.random.default_rng(0))
    assert {len(row["prompt"]) for row in found} <= {len(problem.prompt) for problem in ours}
    assert {character for row in found for character in row["prompt"] + row["answer"]} == {
        character for problem in ours for character in problem.prompt + problem.answer}
    if task != "text":
        assert all(names(each)["score"](row["answer"], row["answer"]) == 1 for row in found)


def test_a_task_of_ones_own_is_left_to_be_written(monkeypatch):
    each = plan("grpo")
    monkeypatch.setitem(TASKS, "sort", replace(TASKS["sort"], source="labcore.tasks.reverse:Reverse"))
    for tool in TOOLS.values():
        assert "they are what labcore.tasks.reverse:Reverse does in the lab" in tool.script(each)
    with pytest.raises(SystemExit, match="Write problems"):
        names(each)["problems"](3)


def test_the_users_own_pairs(files):
    found = names(plan("dpo", "preferences", files))["pairs"](2)
    assert sorted(found, key=str) == sorted(PAIRS, key=str)


def test_sft_on_pairs_learns_the_chosen_sides(files):
    found = names(plan("sft", "preferences", files))["problems"](2)
    assert {(row["prompt"], row["answer"]) for row in found} == {(row["prompt"], row["chosen"]) for row in PAIRS}


def test_pairs_are_sampled_as_the_lab_samples_them(checkpoint, files):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    each = plan("dpo", "sort", knobs={"group_size": 4, "letters": 2})
    code = names(each)
    code["score"] = code["sampled_pairs"].__globals__["score"] = lambda text, answer: float(len(text) % 2)
    model, tokenizer = (kind.from_pretrained(checkpoint) for kind in (AutoModelForCausalLM, AutoTokenizer))
    found = code["sampled_pairs"](model, tokenizer, prompts=8)
    assert code["sampled_pairs"](model, tokenizer, prompts=8) == found  # the run's seed draws them
    assert found and all(len(row["chosen"]) % 2 > len(row["rejected"]) % 2 for row in found)
    code["sampled_pairs"].__globals__["score"] = lambda text, answer: 1.0
    with pytest.raises(SystemExit, match="No prompt got both"):
        code["sampled_pairs"](model, tokenizer, prompts=2)


def test_the_script_of_the_math_verifier_names_the_package_that_it_imports(files):
    pinned = f"math-verify[antlr4-{{}}]=={MATH_VERIFY}"
    assert f"math-verify=={MATH_VERIFY}\n" in (ROOT / "requirements.txt").read_text()
    for name, tool in TOOLS.items():
        each = plan("grpo", "prompts", files, knobs={"verifier": "math"})
        assert pinned.format("9-3" if name == "verl" else "13-2") in tool.script(each), name
        assert "math-verify" not in tool.script(plan("grpo", "prompts", files, knobs={"verifier": "numeric"})), name
