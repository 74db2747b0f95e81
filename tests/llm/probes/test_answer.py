"""Answers token by token, and the same questions for many models."""

import math
import shutil
from unittest.mock import patch

import numpy as np
import pytest
import torch

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.nets.model import load
from labcore.llm.probes import answer as answer_session
from labcore.llm.probes.answer import answer, learner, quiz, reader
from labcore.runs import jobs
from labcore.runs.files.paths import run_folder
from labcore.tasks.task import Score
from tests.every import now
from tests.llm.runs_on_disk import saved
from tests.llm.tools import TINIER

ASKED = {"prompt": "dbcaef=", "answer": "abcdef", "count": 3, "temperature": 1.0, "max_new_tokens": 6, "seed": 3}
QUIZ = {"count": 12, "temperature": 1.0, "max_new_tokens": 6, "seed": 0}


@pytest.fixture(autouse=True)
def tiny():
    with patch.dict(MODELS, {"tiny": TINIER}):
        yield


@pytest.fixture(scope="module")
def home_of_run(labs):
    home = next(labs)
    with pytest.MonkeyPatch.context() as patched, patch.dict(MODELS, {"tiny": TINIER}):
        patched.setenv("RL_LAB_HOME", str(home))
        saved("grpo-sort-aaaa")
    return home


@pytest.fixture
def run(home_of_run, lab_home):
    shutil.copytree(home_of_run, lab_home)
    return "grpo-sort-aaaa"


def test_equal_seeds_are_equal_randomness(run):
    """Two names of one model answer alike; another seed does not; the base itself departs from itself by nothing."""
    found = answer({"models": [run, f"{run}@2", f"base:{run}"], **ASKED})
    newest, same, base = (column["answers"] for column in found["columns"])
    assert newest == same and [column["model"] for column in found["columns"]] == [f"{run}@2", f"{run}@2",
                                                                                   f"base:{run}"]
    assert found["twins"]
    assert [each["text"] for each in base] != [each["text"] for each in newest]
    assert all(each["logprobs"] == each["base_logprobs"] for each in base)
    assert answer({"models": [run], **ASKED, "seed": 4})["columns"][0]["answers"] != newest
    assert answer({"models": [run], **ASKED})["columns"][0]["answers"] == newest


def test_a_model_that_is_kept_stays_where_it_is(run):
    """Two runs may have one base, and a device each: a session is not to find its policy on the other's."""
    weights = str(run_folder(run) / "checkpoints" / "step-000002" / "policy")
    here = answer_session._loaded(weights, torch.device("cpu"))[0]
    elsewhere = answer_session._loaded(weights, torch.device("meta"))[0]
    assert (here.device.type, elsewhere.device.type) == ("cpu", "meta")
    assert answer_session._loaded(weights, torch.device("cpu"))[0] is here
    assert not any(weight.requires_grad for weight in here.parameters()) and not here.training


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probs_are_those_of_the_sampled_distribution(run, temperature):
    """By the model's own forward pass over prompt and answer, one token after the other."""
    each = answer({"models": [run], **ASKED, "temperature": temperature})["columns"][0]["answers"][0]
    model, tokenizer = load(run_folder(run) / "checkpoints" / "step-000002" / "policy")
    ids = tokenizer(ASKED["prompt"], add_special_tokens=False)["input_ids"]
    for token, logprob, top in zip(each["tokens"], each["logprobs"], each["top"], strict=True):
        with torch.no_grad():
            table = (model(torch.tensor([ids])).logits[0, -1] / temperature).log_softmax(-1)
        number = tokenizer.get_vocab()[token]
        assert logprob == pytest.approx(float(table[number]), abs=2e-4)
        probabilities = {text: p for text, p, _ in top}
        assert probabilities[token] == pytest.approx(math.exp(logprob), abs=1e-4)
        assert [p for _, p, _ in top] == sorted(probabilities.values(), reverse=True)
        assert top[0][1] == pytest.approx(float(table.max().exp()), abs=1e-4) and 5 <= len(top) <= 7
        ids.append(number)
    assert each["logprob"] == pytest.approx(sum(each["logprobs"]), abs=1e-3)


def test_the_base_s_bars_are_the_base_s(run):
    """What the run says of the base is what the base says of itself, on the same tokens."""
    found = answer({"models": [run, f"base:{run}"], **ASKED})
    ours, base = (column["answers"][0]["top"][0] for column in found["columns"])
    told = {text: p for text, p, _ in base}
    assert any(text in told for text, _, _ in ours)
    assert all(q == pytest.approx(told[text], abs=1e-5) for text, _, q in ours if text in told)
    assert max(base, key=lambda row: row[1])[0] in {text for text, _, _ in ours}  # the base's first is always told


def test_temperature_0_takes_the_likeliest_token_and_answers_once(run):
    each, = answer({"models": [run], **ASKED, "temperature": 0})["columns"][0]["answers"]
    for token, top in zip(each["tokens"], each["top"], strict=True):
        assert top[0][0] == token


def test_a_verdict_needs_an_answer_to_compare_with(run):
    class Judge:
        characters = "abcdef="

        def score(self, problem, completion):
            return Score(0.25, problem.answer == "abcdef")

    def judged(**more):
        with patch("labcore.llm.probes.answer.make_task", lambda *_: Judge()):
            return answer({"models": [f"{run}@2"], **ASKED, **more})["columns"][0]["answers"][0]

    assert (judged()["reward"], judged()["exact"]) == (0.25, True)
    assert (judged(answer=None)["reward"], judged(answer=None)["exact"]) == (None, None)


@pytest.mark.parametrize("change, words", [
    ({"prompt": "dé=ß"}, "does not know 'ß', 'é': write the prompt without"),
    ({"prompt": ""}, "A prompt is empty"),
    ({"prompt": "a" * 80}, "has room for 63"),
    ({"count": 17}, "count must be a whole number from 1 to 16, not 17"),
    ({"seed": -1}, "seed must be a whole number"),
    ({"temperature": 9.0}, "`temperature` is 9, outside its bounds"),
    ({"models": []}, "0 models were asked: choose one to 3"),
    ({"models": ["grpo-sort-aaaa@7"]}, "no checkpoint of step 7 any more: take one of 1, 2"),
    ({"models": ["nobody"]}, "The run nobody has no model here"),
])
def test_what_cannot_be_is_one_sentence(run, change, words):
    with pytest.raises(LabError, match=words):
        answer({"models": [run], **ASKED, **change})


def test_a_run_in_the_middle_and_its_base_are_not_the_newest(run):
    texts = {name: [each["text"] for each in answer({"models": [name], **ASKED})["columns"][0]["answers"]]
             for name in (run, f"{run}@1", f"base:{run}")}
    assert texts[run] != texts[f"base:{run}"]
    loaded = [reader(name, {}, 0).policy.lm_head.weight for name in (run, f"{run}@1", f"base:{run}")]
    assert not torch.equal(loaded[0], loaded[1]) and not torch.equal(loaded[1], loaded[2])


def test_a_learner_is_the_session_as_it_was(run):
    session = learner(f"{run}@1")
    assert session.step == 1 and session.optimizers["policy"].state_dict()["state"]
    base = learner(f"base:{run}")
    assert base.step == 0 and torch.equal(base.policy.lm_head.weight, base.reference.lm_head.weight)
    assert torch.equal(base.policy.lm_head.weight, session.reference.lm_head.weight)


def test_all_models_get_the_same_questions(run):
    other = saved("ppo-sort-bbbb", "ppo", seed=5)
    found = quiz({"models": [run, other], **QUIZ})
    alone = quiz({"models": [other], **QUIZ})
    assert len(found["questions"]) == 12 and found["questions"] == alone["questions"]
    assert found["columns"][1] == alone["columns"][0]
    for question, each in zip(found["questions"], found["columns"][0]["answers"], strict=True):
        assert question["answer"] == "".join(sorted(question["prompt"][:-1]))
        assert each["exact"] == (each["text"] == question["answer"])
    assert quiz({"models": [run], **QUIZ, "seed": 1})["questions"] != found["questions"]


@pytest.mark.parametrize("seed", now([0, 3], 0))
def test_the_questions_are_none_of_the_batches_of_the_run_with_that_seed(seed):
    """default_rng(seed) would be the stream of the first batch. Of 12! prompts two streams have none in common."""
    run = saved("grpo-sort-dddd", letters=12, seed=seed)
    asked = {question["prompt"] for question in quiz({"models": [run], **QUIZ, "count": 64, "seed": seed})["questions"]}
    session = learner(f"base:{run}")
    trained = {problem.prompt for step in range(3)
               for problem in session.task.problems(64, np.random.default_rng((session.prompt_seed, step)))}
    assert len(asked) == 64 and not asked & trained


def test_a_file_with_few_prompts_is_asked_once(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("".join(f'{{"prompt": "{letter}=", "answer": "{letter}"}}\n' for letter in "abc"))
    own = saved("grpo-prompts-aaaa", task="prompts", data=str(path))
    questions = quiz({"models": [own], **QUIZ})["questions"]
    assert sorted(question["prompt"] for question in questions) == ["a=", "b=", "c="]


def test_one_prompt_many_times(run):
    found = quiz({"models": [run], **QUIZ, "prompt": "cba=", "answer": None})
    assert {question["prompt"] for question in found["questions"]} == {"cba="}
    assert len({each["text"] for each in found["columns"][0]["answers"]}) > 1
    assert {each["reward"] for each in found["columns"][0]["answers"]} == {None}


def test_runs_of_other_tasks_or_settings_get_no_common_questions(run):
    longer = saved("grpo-sort-cccc", letters=8)
    with pytest.raises(LabError, match="grpo-sort-aaaa@2 and grpo-sort-cccc@2 learnt different tasks"):
        quiz({"models": [run, longer], **QUIZ})


def test_they_are_jobs(run):
    """By the name that the page uses, and JSON through and through."""
    assert jobs.compute({"job": "answer", "models": [run], **ASKED})["columns"][0]["model"] == f"{run}@2"
    assert len(jobs.compute({"job": "quiz", "models": [run], **QUIZ})["questions"]) == 12


def test_the_chosen_token_is_found_among_the_likeliest(run):
    for each in answer({"models": [run], **ASKED})["columns"][0]["answers"]:
        assert [top[place][0] for top, place in zip(each["top"], each["chosen"], strict=True)] == each["tokens"]
