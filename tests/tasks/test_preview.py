"""What is said of the user's data before a run: each finding once, with its rows."""

import pytest

from labcore.runs.spec.run_spec import make
from labcore.tasks import preview
from tests.app.asking import previewed
from tests.words import says


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"prompt": "a", "answer": "b"}\n')

    def with_knobs(task: str = "prompts", algorithm: str = "grpo", **knobs):
        return make(algorithm_key=algorithm, task_key=task, data=str(path), knobs=knobs)
    return with_knobs


def said(spec, **result) -> list[tuple[str, str]]:
    return [(each.level, each.text) for each in preview.findings(previewed(**result), spec)]


TWO = {"count": 2, "lines": [3, 8], "why": "Line 3 is bad."}
MANY = {"count": 25, "lines": [*range(1, 21)], "why": "Line 1 is bad.", "longest": 90}


@pytest.mark.parametrize("result, knobs, expected", [
    ({}, {}, ("good", "30 rows in the layout “prompt and answer”.")),
    ({"layouts": [["GSM8K", 28, 1], ["messages", 2, 5]]}, {}, (
        "warning", "The file mixes 2 layouts: “GSM8K” 28 rows, from line 1; “messages” 2 rows, from line 5. Check that "
        "this is intended.")),
    ({"left_out": TWO}, {}, ("warning", "2 rows cannot be read, so the run does not start: lines 3, 8. Line 3 is "
                                        "bad.")),
    ({"left_out": TWO}, {"unusable_rows": "skip"}, (
        "note", "2 rows cannot be read and are left out: lines 3, 8. Line 3 is bad.")),
    ({"refused": {**TWO, "count": 1, "lines": [3]}}, {}, (
        "warning", "1 row cannot be rendered, so the run does not start: line 3. Line 3 is bad.")),
    ({"unjudged": TWO | {"why": "is empty"}}, {}, (
        "warning", "2 answers cannot be used by the verifier exact: lines 3, 8. The first is empty.")),
    ({"answered": False}, {}, ("note", "No row has an answer: choose a verifier that needs none (length, format, regex "
                                       "or json, or contains with a pattern), also beside a judge, a reward model or "
                                       "functions of your own.")),
    ({"out_of_order": TWO | {"why": "turn 2 is by the user, after the user"}}, {}, (
        "note", "2 conversations have turns in an unusual order: lines 3, 8 (turn 2 is by the user, after the user).")),
    ({"long": MANY}, {}, (
        "warning", "25 prompts of more than the 36 tokens that the context leaves beside a completion of 64 keep the "
        "run from starting: lines 1, 2, 3, 4, 5, 6, 7, 8 and 17 more; the longest has 90 tokens.")),
    ({"long": MANY | {"count": 1, "lines": [4]}}, {"long_prompts": "cut"}, (
        "note", "1 prompt of more than the 36 tokens that the context leaves beside a completion of 64 loses its "
        "beginning: line 4; the longest has 90 tokens.")),
    ({"folds": True}, {}, ("note", "The chat template has no system turn, so the system text stands at the beginning "
                                   "of the first turn of the user.")),
    ({"template": "none"}, {}, ("warning", "The model has a chat template, but the chat template is off, so it reads "
                                           "plain text, unlike its training.")),
    ({"template": "chatml", "has_template": False}, {}, (
        "note", "The model has no chat template of its own: prompts are written in ChatML, on which it may not have "
        "been trained.")),
    ({"template": "none", "has_template": False, "conversations": 2}, {}, (
        "warning", "2 of 30 prompts are a conversation, and no chat template is in use to write it.")),
    ({"measured": 10}, {}, ("good", "Prompts have 3 to 12 tokens (median 5, 90 % up to 8); with their answers 3 to 12 "
                                    "tokens (median 5, 90 % up to 8) (measured on 10 rows). The context holds 100 "
                                    "tokens."))])
def test_each_finding_is_a_sentence(spec, result, knobs, expected):
    assert expected in said(spec(**knobs), **result)


def test_fields_of_pairs_that_nothing_uses_are_named(spec):
    assert any(kind == "note" and says(text, "not used", "level") for kind, text in said(spec("preferences", "dpo")))


def test_the_most_important_comes_first(spec):
    levels = [level for level, _ in said(spec(), long=MANY, folds=True)]
    assert levels == sorted(levels, key=["warning", "note", "good"].index) and levels[0] == "warning"


def test_only_what_prompts_depend_on_is_asked(spec):
    one, other = spec(), spec(learning_rate=1e-4, group_size=4)
    assert preview.asked(one) == preview.asked(other)
    for knobs in ({"system_prompt": "Be brief."}, {"max_new_tokens": 5}, {"verifier": "numeric"}, {"template": "off"}):
        assert preview.asked(one) != preview.asked(spec(**knobs))


def test_repeated_prompts_and_the_verifier(spec):
    result = previewed(repeated=2, disagreeing=1, fits="math")
    repeated, fits = (each.text for each in preview.of_answers(result, spec()))
    assert says(repeated, "2 prompts", "1 with another answer") and says(fits, "verifier", "math", "TeX", "fractions")
    (repeated,) = preview.of_answers(result, spec("preferences", "dpo"))
    assert says(repeated.text, "2 prompts") and "another answer" not in repeated.text
