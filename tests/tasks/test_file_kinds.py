"""Which task a file is for, by what it holds and by what is to learn from it."""

import json

import pytest

from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.tasks.file_kinds import kinds_of, task_for

ROWS, TASKS = KINDS["llm"].algorithms, KINDS["llm"].tasks
PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}
SINGLE = {"prompt": "a", "completion": "b", "label": True}
PROBLEM = {"question": "a", "answer": "b"}
FILES = {"pairs": PAIR, "singles": SINGLE, "prompts": PROBLEM, "both": PAIR | {"answer": "b"}}


@pytest.fixture
def file(tmp_path):
    def written(name, text=""):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(text or "\n \n" + json.dumps(FILES[name]) + "\n")
        return path
    return written


def test_what_a_file_is_by_its_first_object(file):
    assert {name: kinds_of(file(name)) for name in FILES} == {
        "pairs": ["preferences"], "singles": ["preferences"], "prompts": ["prompts"],
        "both": ["preferences", "prompts"]}
    assert kinds_of(file("prompt alone", '{"prompt": "a"}')) == ["prompts"]
    for text in ("plain text", "[1]", '{"chosen": null, "text": "a"}', "{", "\udcff"):
        assert kinds_of(file("other", text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))) == []
    with pytest.raises(LabError, match="is empty"):
        kinds_of(file("none", " "))


@pytest.mark.parametrize("given", ["prompts", "preferences", "text"])
@pytest.mark.parametrize("name", ["pairs", "singles"])
@pytest.mark.parametrize("algorithm", ["dpo", "kto", "reward_model", "sft"])
def test_a_file_of_preferences_is_one_wherever_it_is_given(file, given, name, algorithm):
    assert task_for(file(name), TASKS[given], [ROWS[algorithm]], TASKS).key == "preferences"


@pytest.mark.parametrize("given, algorithms, task", [
    ("prompts", ["dpo"], "preferences"), ("prompts", ["grpo"], "prompts"), ("prompts", ["grpo", "dpo"], "prompts"),
    ("prompts", ["online_dpo"], "prompts"), ("prompts", ["sft"], "prompts"), ("preferences", ["sft"], "preferences"),
    ("text", ["dpo"], "preferences")])
def test_a_file_with_answers_and_pairs_is_taken_as_its_learner_needs_it(file, given, algorithms, task):
    assert task_for(file("both"), TASKS[given], [ROWS[key] for key in algorithms], TASKS).key == task


@pytest.mark.parametrize("name, given, algorithms, words", [
    ("pairs", "prompts", ["grpo"],
     "pairs.jsonl has preferences (prompt, chosen, rejected), and GRPO learns from prompts with answers (prompt, "
     "answer): choose an algorithm that learns from pairs"),
    ("pairs", "text", ["grpo", "ppo"], "and GRPO and PPO learn from plain text"),
    ("prompts", "preferences", ["dpo"],
     "prompts.jsonl has prompts with answers (prompt, answer), and the task 'Your own preferences' reads preferences "
     "(prompt, chosen, rejected): choose the task 'Your own prompts' (prompts), or give another file."),
    ("prompts", "text", ["sft"], "reads plain text: choose the task 'Your own prompts'"),
    ("both", "text", ["online_dpo"], "choose an algorithm that learns from pairs")])
def test_what_was_found_and_what_is_needed_is_one_sentence(file, name, given, algorithms, words):
    with pytest.raises(LabError) as refused:
        task_for(file(name), TASKS[given], [ROWS[key] for key in algorithms], TASKS)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("given", ["prompts", "preferences", "text"])
def test_what_is_no_json_is_left_to_its_reader(file, given):
    assert task_for(file("other", "plain text"), TASKS[given], [ROWS["dpo"]], TASKS) is TASKS[given]
