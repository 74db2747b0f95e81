"""Answers cut into steps: TRL's own ids and places, the places in a completion's own tokens, and the scores there."""


import pytest
import torch

from labcore.errors import LabError
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.steps import at_places, cut_into_steps, encode_steps, given_steps, step_scores
from labcore.tasks.task import Problem
from tests.llm.tools import session, shake
from tests.references import golden
from tests.words import saying

GOLDEN = golden("trl_prm")
TOKENIZER = character_tokenizer()
END = TOKENIZER.eos_token_id


def ids(text):
    return TOKENIZER(text)["input_ids"]


@pytest.mark.parametrize("case", [case for case in GOLDEN["cases"] if not case["last_step_only"]],
                         ids=lambda case: repr(case["separator"]))
def test_a_row_of_a_file_is_read_as_trl_reads_it(case):
    made = session("prm")
    answers = [given_steps(TOKENIZER, row["completions"], case["separator"]) for row in GOLDEN["rows"]]
    read = encode_steps(made.rendering, [Problem(row["prompt"], "") for row in GOLDEN["rows"]], answers, 64,
                        made.device)
    for row, expected in enumerate(case["rows"]):
        prompt = read.prompts.ids[row][read.prompts.mask[row]].tolist()
        ends = read.ends[row][read.steps[row]].tolist()
        assert prompt + read.ids[row, :ends[-1] + 1].tolist() == expected["input_ids"]
        assert [len(prompt) + end for end in ends] == [
            place for place, label in enumerate(expected["labels"]) if label != -100]


def test_without_a_separator_every_token_is_a_step_the_end_too():
    found = cut_into_steps(TOKENIZER, [*ids("2*3"), END], [END], "")
    assert found.texts == ("2", "*", "3", "") and found.places == (0, 1, 2, 3)
    assert found.ids == tuple((token,) for token in [*ids("2*3"), END])
    assert [found.beginning(step) for step in range(4)] == ["2", "2*", "2*3", "2*3"]


@pytest.mark.parametrize("text, separator, texts, places", [
    ("one\ntwo", "\n", ("one\n", "two"), (3, 7)), ("one\ntwo\n", "\n", ("one\n", "two\n"), (3, 8)),
    ("one\n\ntwo", "\n", ("one\n\n", "two"), (4, 8)), ("\n\none", "\n", ("\n\n", "one"), (1, 5)),
    ("", "\n", ("",), (0,)), ("one", "\n", ("one",), (3,)), ("a; b; c", "; ", ("a; ", "b; ", "c"), (2, 5, 7))])
def test_a_completion_is_cut_behind_each_separator(text, separator, texts, places):
    found = cut_into_steps(TOKENIZER, [*ids(text), END], [END], separator)
    assert (found.texts, found.places) == (texts, places)
    assert "".join(found.texts) == text and len(found.ids) == len(found.places)
    assert all(step[-len(separator):] == tuple(ids(separator)) for step in found.ids)


def test_the_score_stands_at_the_end_of_each_step_whatever_the_padding():
    made = session("prm")
    model = made.models["process_reward_model"]
    shake(model)
    assert isinstance(model, Critic)
    problems = [Problem("ab=", ""), Problem("c", "")]
    answers = [given_steps(made.tokenizer, texts, ";") for texts in (["a", "bb"], ["abc"], ["c", "a", "b"], ["bca"])]
    read = encode_steps(made.rendering, problems, answers, made.context, made.device)
    scores = step_scores(model, read, "fp32")
    for row, each in enumerate(answers):
        whole = ids(problems[row // 2].prompt) + [token for step in each.ids for token in step]
        logits = model(input_ids=torch.tensor([whole])).logits[0]
        at = len(ids(problems[row // 2].prompt)) - 1
        for step, part in enumerate(each.ids):
            at += len(part)
            assert scores[row, step].item() == pytest.approx(logits[at].softmax(-1)[1].item(), abs=1e-5)
        assert scores[row, len(each.ids):].isnan().all()
    assert read.tokens == sum(len(step) for each in answers for step in each.ids)


def test_what_the_context_has_no_room_for_is_cut():
    made = session("prm")
    answers = [given_steps(TOKENIZER, ["aaaa", "bbbb"], ";")]
    read = encode_steps(made.rendering, [Problem("ab=", "")], answers, 9, made.device)
    assert read.ids.shape == (1, 6) and read.ends.tolist() == [[4, 5]]
    with pytest.raises(LabError, match=saying("prompt has 3 tokens", "process reward model", "at most 3")):
        encode_steps(made.rendering, [Problem("ab=", "")], answers, 3, made.device)


def test_rewards_of_steps_that_end_at_one_token_add_up():
    answers = [cut_into_steps(TOKENIZER, ids("a;b"), [END], ";"), cut_into_steps(TOKENIZER, ids("ab"), [END], "")]
    found = at_places(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), answers, 4)
    assert found.tolist() == [[0, 1, 2, 0], [3, 4, 0, 0]]
