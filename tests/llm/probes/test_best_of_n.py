"""Best of n: the order of the answers, the scores of their steps, and what cannot be ranked."""

import math
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForTokenClassification, LlamaConfig

from labcore.catalog.families.process import OF_PUBLISHED
from labcore.catalog.llm.tasks import SORT_SCORER, SORT_TEACHER
from labcore.errors import LabError
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.model import load
from labcore.llm.nets.scorer import CONFIG, save_scorer
from labcore.llm.nets.text_step_scorer import load_step_scorer
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.runs import jobs
from labcore.runs.files import atomic
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import make
from labcore.tasks.task import Problem, make_task
from tests.llm.tools import SIZE

PROMPT = {"prompt": "dbcaef=", "answer": "abcdef"}
ASKED = {"job": "best_of_n", "model": "base:policy", "scorer": SORT_SCORER, **PROMPT, "temperature": 1.0, "top_k": 0,
         "top_p": 1.0, "max_new_tokens": 8, "seed": 3, "count": 12}


@pytest.fixture(autouse=True)
def policy(tmp_path, monkeypatch):
    """A run of sort, whose base sorts about 40 % of the prompts."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    spec = make(algorithm_key="grpo", task_key="sort", steps=2)
    atomic.write_text(run_folder("policy") / "spec.json", spec.to_json())


def ranked(**other):
    return jobs.do(ASKED | other)


def test_answers_are_ranked_by_the_lowest_score_of_their_steps():
    found = ranked()
    scores = [each["score"] for each in found["answers"]]
    assert len(scores) == 12 and scores == sorted(scores, reverse=True) and found["of_steps"]
    assert found == ranked(), "the same seed gives the same answers"
    for each in found["answers"]:
        assert "".join(text for text, _, _ in each["steps"]) == each["text"]
        assert each["score"] == pytest.approx(min(score for _, score, _ in each["steps"]))
        assert each["exact"] == (each["text"] == PROMPT["answer"] and not each["truncated"])
        upto = ""
        for text, _, gold in each["steps"][:-1]:
            upto += text
            assert gold == float(PROMPT["answer"].startswith(upto))


@pytest.mark.parametrize("by, how", [("product", math.prod), ("last", lambda scores: scores[-1])])
def test_the_scores_of_steps_become_one_as_asked(by, how):
    for each in ranked(by=by)["answers"]:
        assert each["score"] == pytest.approx(how([score for _, score, _ in each["steps"]]), abs=1e-3)


def test_the_model_that_comes_with_the_lab_finds_right_answers():
    """Of a base that is right in 40 %, the answer with the highest score is right far more often."""
    right, chosen = [], []
    spec = make(algorithm_key="grpo", task_key="sort")
    for problem in make_task(spec.task_row, spec.knobs, None).problems(8, np.random.default_rng(0)):
        answers = ranked(prompt=problem.prompt, answer=problem.answer, count=16)["answers"]
        right += [each["exact"] for each in answers]
        chosen.append(answers[0]["exact"])
    assert sum(chosen) / len(chosen) > sum(right) / len(right) + 0.25


def test_a_published_model_of_steps_reads_them_as_it_is_told(tmp_path):
    tokens, folder = character_tokenizer(), tmp_path / "published"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForTokenClassification.from_config(LlamaConfig(
            **{**SIZE, "vocab_size": len(tokens), "num_labels": 2})).save_pretrained(folder)
    tokens.save_pretrained(folder)
    found, scorer = ranked(scorer=str(folder), step_separator="c"), load_step_scorer(
        str(folder), {**OF_PUBLISHED, "step_separator": "c"})
    assert found["of_steps"] and len({each["score"] for each in found["answers"]}) > 1
    for each in found["answers"]:
        texts = [text for text, _, _ in each["steps"]]
        assert "".join(texts) == each["text"] and all("c" not in text[:-1] for text in texts)
        scores = scorer.scores([Problem(PROMPT["prompt"], "")], [texts], "fp32")[0]
        assert each["score"] == pytest.approx(scores.min().item(), abs=1e-4)
    with pytest.raises(LabError, match="step_separator"):
        ranked(scorer=str(folder), step_separator="")


def test_without_a_right_answer_nobody_judges():
    for each in ranked(answer=None)["answers"]:
        assert each["exact"] is None and {gold for _, _, gold in each["steps"]} == {None}


@pytest.mark.parametrize("other, words", [
    ({"by": "highest"}, "cannot be 'highest': choose lowest"), ({"scorer": "nobody"}, "no reward model 'nobody'"),
    ({"count": 0}, "count must be a whole number"), ({"prompt": "dbü="}, "does not know"),
    ({"scorer": SORT_TEACHER}, "no reward model")])
def test_what_cannot_be_ranked_is_said(other, words):
    with pytest.raises(LabError, match=words):
        ranked(**other)


def test_a_reward_model_of_whole_answers_ranks_them_too():
    folder, base = run_folder("judge") / "checkpoints" / "step-000001", model_of_name(SORT_TEACHER)
    shutil.copytree(base, folder / CONFIG)
    scorer = Critic(load(base)[0])
    torch.nn.init.normal_(scorer.head.weight, generator=torch.Generator().manual_seed(0))  # it begins at 0
    save_scorer(scorer, folder)
    found = ranked(scorer="judge")
    scores = [each["score"] for each in found["answers"]]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1
    assert not found["of_steps"] and found["answers"][0]["steps"] == []
