"""A reward function of the user's own: loaded from the command line alone, and its faults said in one sentence."""

from __future__ import annotations

import pytest

from labcore.errors import LabError
from labcore.tasks import own_reward

PROMPTS, TEXTS, ANSWERS = ["a=", "b="], ["a", "bb"], ["a", "b"]


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    monkeypatch.setattr(own_reward, "_given", {})


def written(tmp_path, body, name="mine.py"):
    path = tmp_path / name
    path.write_text(body)
    return str(path)


def test_it_is_called_as_trl_calls_one(tmp_path):
    name = own_reward.give(written(tmp_path, "def score(prompts, completions, answer, **more):\n"
                                             "    return [len(c) - (c == a) for c, a in zip(completions, answer)]\n"
                                   ) + ":score")
    assert own_reward.rewards(name, PROMPTS, TEXTS, ANSWERS) == [0.0, 2.0]
    assert name.startswith("mine.py:score ") and len(name.split()[1]) == 12 and str(tmp_path) not in name


def test_another_content_has_another_name(tmp_path):
    first = own_reward.give(written(tmp_path, "def f(**_): return [1]") + ":f")
    second = own_reward.give(written(tmp_path, "def f(**_): return [2]") + ":f")
    assert first != second
    with pytest.raises(LabError, match=rf"from mine\.py:f with the hash .*, not {first}: resume it on"):
        own_reward._given = {first: own_reward._given[first]}
        own_reward.check(second)


def test_the_code_is_that_of_the_hash_however_soon_the_file_is_written_again(tmp_path):
    """Python's cache knows a file by its whole seconds and its size."""
    given = [own_reward.give(written(tmp_path, f"def f(**_): return [{number}, {number}]") + ":f") for number in "123"]
    assert [own_reward.rewards(name, PROMPTS, TEXTS, ANSWERS)[0] for name in given] == [1, 2, 3]


def test_a_file_with_a_dataclass(tmp_path):
    name = own_reward.give(written(tmp_path, "from __future__ import annotations\nfrom dataclasses import dataclass\n"
                                             "@dataclass\nclass Weights:\n    right: float = 2.0\n"
                                             "def f(**_): return [Weights().right] * 2\n") + ":f")
    assert own_reward.rewards(name, PROMPTS, TEXTS, ANSWERS) == [2.0, 2.0]


@pytest.mark.parametrize("body, match", [
    ("def f(**_): return [1.0]", "returned 1 rewards for 2 completions: return one number for each"),
    ("def f(**_): return [1.0, float('nan')]", "returned nan for the completion 'bb': return a finite number"),
    ("def f(**_): return [1.0, float('inf')]", "returned inf for the completion 'bb'"),
    ("def f(**_): return [1.0, 10 ** 400]", "for the completion 'bb': return a finite number"),
    ("import torch\ndef f(**_): return [1.0, torch.zeros(2)]", "for the completion 'bb': return a finite number"),
    ("def f(**_): return [1.0, None]", "returned None for the completion 'bb'"),
    ("def f(**_): return ['1', '2']", "returned '1' for the completion 'a'"),
    ("def f(**_): return 3", "raised TypeError"),
    ("def f(**_): raise ValueError('no such word.')", "raised ValueError: no such word: correct it"),
    ("def f(completions): return [1, 2]", "raised TypeError: f.. got an unexpected keyword")])
def test_a_function_that_gives_no_rewards_is_said_in_words(tmp_path, body, match):
    name = own_reward.give(written(tmp_path, body) + ":f")
    with pytest.raises(LabError, match=match):
        own_reward.rewards(name, PROMPTS, TEXTS, ANSWERS)


@pytest.mark.parametrize("place, match", [
    ("mine.py", "is no FILE:function"), ("mine.py:", "is no FILE:function"), (":f", "is no FILE:function"),
    ("nowhere.py:f", "There is no file nowhere.py"), ("mine.py:g", "has no function 'g'"),
    ("mine.py:x", "has no function 'x'"),
    ("broken.py:f", r"cannot be run \(SyntaxError"), ("raising.py:f", r"cannot be run \(ZeroDivisionError"),
    ("mine.txt:f", "its name must end in .py")])
def test_a_file_that_brings_no_function_is_said_in_words(tmp_path, monkeypatch, place, match):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "x = 3\ndef f(**_): return []")
    written(tmp_path, "def f(:", "broken.py")
    written(tmp_path, "1/0", "raising.py")
    written(tmp_path, "def f(**_): return []", "mine.txt")
    with pytest.raises(LabError, match=match):
        own_reward.give(place)


def test_what_was_not_given_is_not_run():
    with pytest.raises(LabError, match="from the command line only"):
        own_reward.check("")
    with pytest.raises(LabError, match=r"come from mine\.py:f with the hash abc: resume it on the command line"):
        own_reward.check("mine.py:f abc")
