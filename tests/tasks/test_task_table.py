"""Every row of the task table makes problems, the same for the same generator, and judges them."""

import json

import numpy as np
import pytest

from labcore.catalog.llm.tasks import TASKS, WITHOUT_ANSWERS
from labcore.errors import LabError
from labcore.tasks.add import digits_right
from labcore.tasks.file_statistics import statistics_of
from labcore.tasks.task import PairTask, Problem, check_data, make_task

ROWS = {
    "prompts": [{"question": f"{n} + 1 = ?", "answer": f"#### {n + 1}"} for n in range(20)],
    "preferences": [{"prompt": f"p{n}", "chosen": f"good {n}", "rejected": "bad"} for n in range(20)],
}
TEXT = "".join(f"line {n} ends here.\n" for n in range(1, 101))


def knobs(key, **changes):
    """The defaults, without held-out rows: `test_held_out.py` has those."""
    return {**{knob.key: knob.default for knob in TASKS[key].knobs if knob.key != "held_out"}, **changes}


@pytest.fixture
def make(tmp_path):
    def build(key, rows=None, **changes):
        row, path = TASKS[key], None
        if row.data == "text":
            path = tmp_path / "my.txt"
            path.write_text(TEXT)
        elif row.data:
            path = tmp_path / "my.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in rows or ROWS[row.data]))
        assert check_data(row, path, knobs(key, **changes)) == make_task(row, knobs(key, **changes), path).size
        return make_task(row, knobs(key, **changes), path)

    return build


@pytest.mark.parametrize("key", TASKS)
def test_every_task_keeps_the_contract(make, key):
    task = make(key)
    problems = task.problems(15, np.random.default_rng(3))
    assert problems == task.problems(15, np.random.default_rng(3)) != task.problems(15, np.random.default_rng(4))
    assert len(problems) == 15 and all(problem.prompt for problem in problems)
    assert len(task.problems(50, np.random.default_rng(0))) == 50
    for problem in problems:
        assert set(problem.prompt + problem.answer) <= set(task.characters)
        assert task.score(problem, "never right, and long enough to be of no use to anyone").reward == 0
    if TASKS[key].data:
        assert all(problem.line for problem in problems)
    else:
        assert task.size is None and all(problem.line is None for problem in problems)


@pytest.mark.parametrize("key", ["sort", "add"])
def test_the_state_of_the_generator_is_all_there_is_to_checkpoint(make, key):
    rng = np.random.default_rng(0)
    make(key).problems(5, rng)
    state = rng.bit_generator.state
    expected = make(key).problems(5, rng)
    later = np.random.default_rng()
    later.bit_generator.state = state
    assert make(key).problems(5, later) == expected


@pytest.mark.parametrize("name, pattern", [("length", ""), ("json", ""), ("format", "<a>…</a>"), ("regex", "a+"),
                                           ("contains", "x"), ("contains", ""), ("exact", ""), ("numeric", ""),
                                           ("math", ""), ("choice", "")])
def test_prompts_without_answers_need_a_verifier_without_them(make, name, pattern):
    asks = [{"prompt": f"Say something about {n}."} for n in range(30)]
    if name in WITHOUT_ANSWERS and (pattern or name != "contains"):
        task = make("prompts", asks, verifier=name, pattern=pattern)
        assert task.size == 30 and task.score(task.rows[0], '{"a": "x"}').reward in (0, 1)
        return
    with pytest.raises(LabError, match=f"the {name} verifier compares: .* needs none .length, format, regex or json"):
        make("prompts", asks, verifier=name, pattern=pattern)


def test_sort(make):
    task = make("sort", letters=4)
    problem = Problem("dbca=", "abcd")
    assert task.score(problem, "abcd").exact and task.score(problem, "abcd").reward == 1
    for wrong in ("", "abc", "abcde", "abdc", "abcd "):
        assert task.score(problem, wrong).reward == 0 and not task.score(problem, wrong).exact
    for made in task.problems(50, np.random.default_rng(0)):
        word = made.prompt.removesuffix("=")
        assert len(word) == 4 and list(made.answer) == sorted(word)


@pytest.mark.parametrize(("digits", "low", "high"), [(1, 0, 9), (2, 10, 99), (3, 100, 999)])
def test_add(make, digits, low, high):
    seen = set()
    for made in make("add", digits=digits).problems(2000, np.random.default_rng(0)):
        a, b = map(int, made.prompt.removesuffix("=").split("+"))
        assert low <= a <= high and low <= b <= high and made.answer == str(a + b)
        seen |= {a, b}
    assert {low, high} <= seen or digits == 3


@pytest.mark.parametrize(("completion", "share"), [
    ("132", 1), ("131", 2 / 3), ("032", 2 / 3), ("13", 2 / 3), ("1320", 3 / 4), ("", 0), ("abc", 0),
])
def test_shaped_addition(make, completion, share):
    problem = Problem("47+85=", "132")
    score = make("add", reward_shape="shaped").score(problem, completion)
    assert score.reward == pytest.approx(share) == digits_right(completion, "132")
    assert score.exact == (completion == "132")
    assert make("add").score(problem, completion).reward == float(completion == "132")


def test_prompts_by_each_verifier(make):
    problem = Problem("1 + 1 = ?", "#### 2")
    assert make("prompts", verifier="numeric").score(problem, "it is 2.0").exact
    assert not make("prompts", verifier="exact").score(problem, "2").exact
    assert make("prompts", verifier="regex", pattern="^a+$").score(problem, "aaa").reward == 1
    assert make("prompts", verifier="contains", pattern="cat").score(problem, "a cat").reward == 1
    assert make("prompts", verifier="length", length_low=2, length_high=3).score(problem, "abcd").reward == 0


def test_a_batch_repeats_a_prompt_only_when_it_must(make):
    drawn = make("prompts", verifier="numeric").problems(20, np.random.default_rng(0))
    assert len({problem.line for problem in drawn}) == 20
    assert make("prompts", verifier="numeric").problems(5, np.random.default_rng(0)) == drawn[:5]


@pytest.mark.parametrize(("rows", "changes", "words"), [
    ([{"prompt": "", "answer": "a"}], {}, "Line 1 of my.jsonl has an empty prompt"),
    ([*ROWS["prompts"], {"prompt": "a", "answer": "yes"}], {"verifier": "numeric"},
     "in line 21 .* is not a whole plain number.*verifier=math"),
    ([{"prompt": "a", "answer": ""}], {}, "answer in line 1 .* is empty"),
    (None, {"verifier": "regex"}, "needs a pattern"),
    (None, {"verifier": "regex", "pattern": "["}, "not a regular expression"),
])
def test_bad_prompts(make, rows, changes, words):
    with pytest.raises(LabError, match=words):
        make("prompts", rows, **changes)


def test_preferences(make):
    task = make("preferences")
    assert isinstance(task, PairTask) and not isinstance(make("sort"), PairTask)
    pairs = task.pairs(20, np.random.default_rng(0))
    assert sorted(pair.line for pair in pairs) == list(range(1, 21))
    assert all(pair.chosen == f"good {pair.prompt[1:]}" and pair.rejected == "bad" for pair in pairs)
    assert pairs == task.pairs(20, np.random.default_rng(0)) != task.pairs(20, np.random.default_rng(1))
    problem = task.problems(1, np.random.default_rng(0))[0]
    assert problem.answer.startswith("good") and task.score(problem, problem.answer).exact


SINGLES = [{"prompt": f"p{n}", "completion": f"text {n}", "label": n % 4 > 0} for n in range(20)]


def test_single_completions(make):
    task = make("preferences", SINGLES)
    assert task.unpaired and task.size == 20 and not make("preferences").unpaired
    singles = task.singles(20, np.random.default_rng(0))
    assert sorted(single.line for single in singles) == list(range(1, 21))
    assert sum(single.label for single in singles) == 15 and set("text 19p") <= set(task.characters)
    desired = task.problems(15, np.random.default_rng(0))
    assert {problem.prompt for problem in desired} == {row["prompt"] for row in SINGLES if row["label"]}
    assert statistics_of(task).answers == (6, 6, 7)


@pytest.mark.parametrize(("rows", "words"), [
    ([{"question": "p", "good": "a", "bad": "b"}],
     "Line 1 of my.jsonl has the fields 'question', 'good', 'bad': a pair needs 'prompt', 'chosen' and 'rejected'"),
    ([*SINGLES, {"prompt": "p", "completion": "a"}], "The label in line 21 of my.jsonl is None: write true"),
    ([*SINGLES, {"prompt": "p", "completion": "a", "label": "yes"}], "The label in line 21 of my.jsonl is 'yes'"),
    ([*SINGLES, {"prompt": "p", "label": True}], "Line 21 of my.jsonl has no field 'completion'"),
    ([*SINGLES, {"prompt": "", "completion": "a", "label": True}], "Line 21 of my.jsonl has an empty prompt"),
    ([{**row, "label": True} for row in SINGLES], "Every label in my.jsonl is true: .* add completions with the other"),
])
def test_bad_single_completions(make, rows, words):
    with pytest.raises(LabError, match=words):
        make("preferences", rows)


@pytest.mark.parametrize(("row", "words"), [
    ({"prompt": "p", "chosen": "same", "rejected": "same"}, "Line 21 of my.jsonl has the same text as chosen and rej"),
    ({"prompt": "p", "chosen": "a"}, "Line 21 of my.jsonl has no field 'rejected'"),
    ({"prompt": "", "chosen": "a", "rejected": "b"}, "Line 21 of my.jsonl has an empty prompt"),
    ({"prompt": "p", "good": "a", "bad": "b"}, "Line 21 of my.jsonl has no field 'chosen'"),
    ({"prompt": "p", "chosen": "a", "rejected": ["b"]}, "'rejected' in line 21 of my.jsonl is a list"),
    ({"prompt": "p", "chosen": "a", "rejected": True}, "'rejected' in line 21 of my.jsonl is a true or false"),
    ({"prompt": "p", "chosen": "a", "rejected": "\ud800"}, "Line 21 of my.jsonl .* half a character"),
    ({"prompt": "p", "chosen": "a", "rejected": "b", "chosen_truncated": "no"}, "'chosen_truncated' in line 21 of "
     "my.jsonl is 'no': write true"),
])
def test_bad_preferences(make, row, words):
    with pytest.raises(LabError, match=words):
        make("preferences", [*ROWS["preferences"], row])


def test_text_pieces(make):
    task = make("text", prompt_length=5, piece_length=12)
    for problem in task.problems(200, np.random.default_rng(0)):
        piece = problem.prompt + problem.answer
        assert len(problem.prompt) == 5 and len(piece) == 12 and piece in TEXT
        assert piece.split("\n")[0] in TEXT.split("\n")[problem.line - 1]


def test_text_faults(make):
    with pytest.raises(LabError, match="leaves nothing to learn"):
        make("text", prompt_length=12, piece_length=12)
    with pytest.raises(LabError, match="fewer than one piece of 2048"):
        make("text", prompt_length=12, piece_length=2048)
    with pytest.raises(LabError, match="give pattern a value"):
        make("text", verifier="contains")


@pytest.mark.parametrize("key", [key for key, row in TASKS.items() if row.data])
def test_a_task_that_needs_a_file_says_so(key):
    with pytest.raises(LabError, match=f"--{TASKS[key].data} FILE"):
        make_task(TASKS[key], knobs(key), None)
