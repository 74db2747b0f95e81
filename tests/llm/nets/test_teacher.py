"""A teacher by its name: what it may be, and how it is refused."""

import pytest

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.tasks import TASKS
from labcore.errors import LabError
from labcore.llm.nets.model import build, save
from labcore.llm.nets.teacher import check_vocabulary, load_teacher
from labcore.llm.nets.tokenizer import character_tokenizer, letter_tokenizer
from labcore.runs.spec.run_spec import knobs_of, make
from tests.llm.tools import TINIER

BUILT_IN = "SFT base b1482f67ad01"
OURS = character_tokenizer("")


def opd(**given):
    return make(algorithm_key="opd", task_key="sort", knobs=given)


def test_a_folder_is_kept_as_a_whole_path_and_loaded_frozen(tmp_path, monkeypatch):
    save(build(TINIER, OURS, 3), OURS, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    spec = opd(teacher="mine")
    assert spec.knobs["teacher"] == str(tmp_path / "mine")
    teacher = load_teacher(spec.knobs, OURS)
    assert teacher.config.hidden_size == TINIER.hidden
    assert not any(weight.requires_grad for weight in teacher.parameters())


def test_the_built_in_teacher_is_the_default_of_its_task_alone():
    assert opd().knobs["teacher"] == BUILT_IN
    assert {knob.key: knob.default for knob in knobs_of(ALGORITHMS["opd"], TASKS["add"])}["teacher"] == ""


@pytest.mark.parametrize("name, said", [
    ("nobody-here", "There is no teacher 'nobody-here' here: set `teacher` to an earlier run"),
    ("base:nobody-here", "There is no teacher"), ("SFT base 000000000000", "There is no teacher"),
    ("tiny", "'tiny' has random weights")])
def test_what_is_no_teacher_is_refused_before_the_run(name, said):
    with pytest.raises(LabError, match=said):
        opd(teacher=name)


@pytest.mark.parametrize("algorithm, knobs", [
    ("opd", {}), ("minillm", {}), ("gkd", {}), ("seqkd", {}), ("sdft", {"teacher": ""})])
def test_a_run_without_a_teacher_is_refused_before_it_is_queued(algorithm, knobs):
    with pytest.raises(LabError, match=r"no teacher to learn from: set `teacher` to a run"):
        make(algorithm_key=algorithm, task_key="add", knobs=knobs)


def test_a_run_without_a_teacher_does_not_start():
    with pytest.raises(LabError, match=r"no teacher to learn from: set `teacher` to a run"):
        load_teacher({"teacher": ""}, OURS)


def test_a_run_that_asks_no_teacher_does_not_look_for_one():
    assert make(algorithm_key="gkd", task_key="sort", knobs={
        "sft_loss": "nll", "teacher": "nobody-here"}).knobs["teacher"] == "nobody-here"


def test_another_vocabulary_is_refused_with_the_tokens_that_differ():
    with pytest.raises(LabError, match=r"teacher theirs .*different vocabulary.* \d+ of \d+ tokens differ.*'a'.*"
                       "model family"):
        check_vocabulary("theirs", letter_tokenizer("a"), letter_tokenizer("ba"))
    check_vocabulary("ours", character_tokenizer(""), OURS)


def test_padding_is_no_token_of_a_completion():
    padded, plain = letter_tokenizer("ab"), letter_tokenizer("ab")
    padded.add_special_tokens({"pad_token": "<pad>"})
    plain.add_special_tokens({"pad_token": "<other>"})
    assert padded.get_vocab() != plain.get_vocab()
    check_vocabulary("theirs", padded, plain)
