"""Functions of the user's own are called as TRL calls them, and what they return is checked in words."""

import math
from pathlib import Path

import numpy as np
import pytest

from labcore.catalog.reward_terms import terms
from labcore.errors import LabError
from labcore.runs.files.uploads import keep
from labcore.tasks import own_reward, reward_call
from labcore.tasks.prompts import Prompts
from labcore.tasks.reward_call import Asked, columns_of, rewards
from labcore.tasks.task import Problem, Turn
from tests.tasks.test_own_reward import forget, written

PROBLEMS, TEXTS, IDS = [Problem("a=", "a"), Problem("b=", "b")], ["a", "bb"], [[5, 1], [6, 6, 1]]
ASKED = Asked(PROBLEMS, TEXTS, IDS, (), 3, 40)


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    forget(monkeypatch)


def given(tmp_path, body, *names):
    place = written(tmp_path, body)
    return terms(" + ".join(own_reward.register(f"{place}:{name}") for name in names or ("f",)))


def seen(tmp_path, asked, more="**more"):
    """All that a function gets."""
    [term] = given(tmp_path, f"got = {{}}\ndef f({more}):\n    got.update({{k: v for k, v in locals().items()}})\n"
                             "    got.update(got.pop('more', {}))\n    return [0] * len(got['completions'])\n")
    rewards([term], asked)
    return own_reward.function(term.key).__globals__["got"]


def test_it_is_called_as_trl_calls_one(tmp_path):
    got = seen(tmp_path, ASKED)
    assert got["prompts"] == ["a=", "b="] and got["completions"] == TEXTS and got["completion_ids"] == IDS
    assert got["answer"] == ["a", "b"]
    assert (got["trainer_state"].global_step, got["trainer_state"].max_steps) == (3, 40)
    assert got.keys() == {"prompts", "completions", "completion_ids", "answer", "trainer_state"}


def test_a_conversation_comes_as_messages(tmp_path):
    turns = (Turn("system", "Be brief."), Turn("user", "2+2?"))
    got = seen(tmp_path, Asked([Problem("2+2?", "4", turns=turns)], ["4"], [[9]]))
    assert got["prompts"] == [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]]
    assert got["completions"] == [[{"role": "assistant", "content": "4"}]]


@pytest.mark.parametrize("row", [
    b'{"prompt": [{"role": "user", "content": "2+2?"}], "answer": "4"}',
    b'{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}',
    b'{"asked": [{"from": "human", "value": "2+2?"}], "answer": "4"}'])
def test_a_conversation_of_one_turn_is_one(tmp_path, row):
    """For the model it is the text of its turn; a function gets it as TRL gives it."""
    fields = "prompt=asked" if b"asked" in row else ""
    task = Prompts({"verifier": "exact", "fields": fields}, keep("rows.jsonl", row))
    got = seen(tmp_path, Asked(task.rows, ["4"], [[9]]))
    assert got["prompts"] == [[{"role": "user", "content": "2+2?"}]]
    assert got["completions"] == [[{"role": "assistant", "content": "4"}]] and not task.rows[0].turns


def test_every_column_of_the_file_travels_as_it_stands_there(tmp_path):
    """Also those that the task itself has read, under their own names; a row that lacks one has None."""
    file = keep("rows.jsonl", b'{"question": "1+1?", "solution": "2", "level": 3, "meta": {"a": [1]}, '
                              b'"completion": "x"}\n'
                              b'{"question": "2+2?", "solution": "4", "completion": "y"}\n')
    task = Prompts({"verifier": "exact", "fields": "answer=solution"}, file)
    assert columns_of(task) == ["question", "solution", "level", "meta"]
    problems = sorted(task.problems(2, np.random.default_rng(0)), key=lambda problem: problem.line)
    got = seen(tmp_path, Asked(problems, TEXTS, IDS, columns_of(task)))
    assert got["question"] == ["1+1?", "2+2?"] and got["solution"] == got["answer"] == ["2", "4"]
    assert got["level"] == [3, None] and got["meta"] == [{"a": [1]}, None]


@pytest.mark.parametrize("parameters", ["prompts, completions, answer", "completions, *, answer=None", "completions"])
def test_a_function_gets_only_what_it_names(tmp_path, parameters):
    got = seen(tmp_path, ASKED, parameters)
    assert got["completions"] == TEXTS and got.get("answer", ["a", "b"]) == ["a", "b"] and "completion_ids" not in got


def test_several_are_called_once_each_and_the_async_ones_at_the_same_time(tmp_path):
    named = given(tmp_path, "import asyncio\ncalls, both = [], asyncio.Barrier(2)\n"
                            "def plain(completions): calls.append('plain'); return [len(c) for c in completions]\n"
                            "async def slow(completions): return await together('slow', [3, 4])\n"
                            "async def also(completions): return await together('also', [5, None])\n"
                            "async def together(name, found):\n    calls.append(name)\n"
                            "    await asyncio.wait_for(both.wait(), 20)\n    return found\n",
                  "slow", "plain", "also")
    slow, plain, also = rewards(named, ASKED)
    assert (slow, plain, also[0]) == ([3, 4], [1, 2], 5) and math.isnan(also[1])
    assert sorted(own_reward.function(named[0].key).__globals__["calls"]) == ["also", "plain", "slow"]


def test_async_functions_find_the_event_loop_of_their_last_call_again(tmp_path):
    """A client that a function keeps, such as one of HTTP, belongs to the loop that it was made in."""
    [term] = given(tmp_path, "import asyncio\nloops = []\nasync def f(completions):\n"
                             "    loops.append(asyncio.get_running_loop()); return [1, 2]\n")
    for _ in range(2):
        rewards([term], ASKED)
    one, other = own_reward.function(term.key).__globals__["loops"]
    assert one is other and not one.is_closed()


def test_none_is_not_scored(tmp_path):
    [[one, other]] = rewards(given(tmp_path, "def f(**_): return [None, 2]"), ASKED)
    assert math.isnan(one) and other == 2


@pytest.mark.parametrize("body, match", [
    ("def f(**_): return [1.0]", "returned 1 rewards for 2 completions: return one for each"),
    ("def f(**_): return [1.0, float('nan')]", "returned nan for the completion 'bb': return a finite number, or None"),
    ("def f(**_): return [1.0, float('inf')]", "returned inf for the completion 'bb'"),
    ("def f(**_): return [1.0, 10 ** 400]", "for the completion 'bb': return a finite number"),
    ("import torch\ndef f(**_): return [1.0, torch.zeros(2)]", "for the completion 'bb': return a finite number"),
    ("def f(**_): return ['1', '2']", "returned '1' for the completion 'a'"),
    ("class N:\n  def __float__(self): raise KeyError('x')\ndef f(**_): return [1.0, N()]", "for the completion 'bb'"),
    ("def f(**_): return 3", "raised TypeError"), ("def f(**_): return None", "raised TypeError"),
    ("async def f(**_): return 3", "raised TypeError"),
    ("import sys\ndef f(**_): sys.exit(0)", "function mine.py:f raised SystemExit: 0: correct it"),
    ("import sys\nasync def f(**_): sys.exit(0)", "function mine.py:f raised SystemExit: 0: correct it"),
    ("class E(Exception):\n  def __str__(self): raise ValueError\ndef f(**_): raise E", "raised E: correct it"),
    ("def f(**_): raise ValueError('no such word.')", "raised ValueError: no such word: correct it"),
    ("async def f(**_): raise ValueError('no such word.')", "raised ValueError: no such word: correct it"),
    ("def f(completions, /): return [1, 2]", "raised TypeError")])
def test_a_function_that_gives_no_rewards_is_said_in_words(tmp_path, body, match):
    with pytest.raises(LabError, match=match):
        rewards(given(tmp_path, body), ASKED)


def test_a_column_that_is_not_there_is_named_before_the_run(tmp_path):
    named = given(tmp_path, "def f(completions, ground_truth, level=1, **_): ...\ndef g(completions, log_extra): ...",
                  "f", "g")
    reward_call.check_columns(named[:1], ["ground_truth"])
    with pytest.raises(LabError, match=r"mine\.py:f asks for the column 'ground_truth', which the rows do not have.*"
                                       r"The columns are answer, question, solution\."):
        reward_call.check_columns(named, ["question", "solution"])
    with pytest.raises(LabError, match=r"mine\.py:g asks for the column 'log_extra'"):
        reward_call.check_columns(named[1:], [])


def test_a_function_that_changes_its_arguments_changes_nothing_of_the_lab(tmp_path):
    columns = {"level": [[1]]}
    problems = [Problem("a=", "a", columns=columns)] * 2
    asked = Asked(problems, [*TEXTS], [[*row] for row in IDS], ("level",))
    [term] = given(tmp_path, "def f(prompts, completions, answer, completion_ids, level):\n"
                             "    completions.reverse(); prompts.clear(); answer.append('c')\n"
                             "    completion_ids[0].clear(); level[0][0].append(2)\n    return [1, 2]\n")
    assert rewards([term], asked) == [[1.0, 2.0]]
    assert (asked.texts, asked.ids, columns) == (TEXTS, IDS, {"level": [[1]]})


@pytest.mark.parametrize("close", ["sys.stdout.close(); sys.stderr.close()", "sys.__stdout__.flush()"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_the_code_prints_goes_to_standard_error_and_it_closes_nothing(tmp_path, capfd, close, kind):
    own_reward._stream.cache_clear()
    named = given(tmp_path, f"import sys\nprint('at the top')\n{close}\n"
                            f"{kind} f(**_):\n    print('inside'); {close}\n    return [1, 2]")
    for _ in range(2):
        rewards(named, ASKED)
    print("the lab's own")
    said = capfd.readouterr()
    assert said.out == "the lab's own\n" and said.err == "at the top\ninside\ninside\n"


def test_no_loop_is_made_where_nothing_is_async(tmp_path, monkeypatch):
    monkeypatch.setattr(reward_call, "loop", lambda: pytest.fail("a loop"))
    assert rewards(given(tmp_path, "def f(**_): return (1, True)"), ASKED) == [[1, 1]]


def test_the_functions_of_the_documentation_do_what_they_say(tmp_path):
    """docs/rewards.md, as it stands."""
    text = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    named = given(tmp_path, text.split("```python reward\n")[1].split("```")[0], "right", "brief")
    problems = [Problem("1+1?", "2", columns={"level": 1}), Problem("2+2?", "4", columns={"level": 5})]
    right, brief = rewards(named, Asked(problems, ["1+1 is 2", "5"], [[1], [1]], ("level",)))
    assert right == [1, 0] and 0.9 < brief[0] < 1 and math.isnan(brief[1])
