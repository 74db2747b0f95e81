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
    ("class N:\n  def __float__(self): raise KeyError('x')\ndef f(**_): return [1.0, N()]", "for the completion 'bb'"),
    ("def f(**_): return 3", "raised TypeError"),
    ("import sys\ndef f(**_): sys.exit(0)", "function mine.py:f raised SystemExit: 0: correct it"),
    ("class E(Exception):\n  def __str__(self): raise ValueError\ndef f(**_): raise E", "raised E: correct it"),
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
    ("ending.py:f", r"ending.py cannot be run \(SystemExit: 0\): correct it"),
    ("getting.py:f", r"getting.py cannot be run \(RuntimeError: none\): correct it"),
    ("mine.txt:f", "its name must end in .py")])
def test_a_file_that_brings_no_function_is_said_in_words(tmp_path, monkeypatch, place, match):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "x = 3\ndef f(**_): return []")
    written(tmp_path, "def f(:", "broken.py")
    written(tmp_path, "1/0", "raising.py")
    written(tmp_path, "import sys\nsys.exit(0)", "ending.py")
    written(tmp_path, "def __getattr__(name): raise RuntimeError('none')", "getting.py")
    written(tmp_path, "def f(**_): return []", "mine.txt")
    with pytest.raises(LabError, match=match):
        own_reward.give(place)


def test_what_was_not_given_is_not_run():
    with pytest.raises(LabError, match="from the command line only"):
        own_reward.check("")
    with pytest.raises(LabError, match=r"come from mine\.py:f with the hash abc: resume it on the command line"):
        own_reward.check("mine.py:f abc")


def test_a_function_that_changes_its_arguments_changes_nothing_of_the_lab(tmp_path):
    name = own_reward.give(written(tmp_path, "def f(prompts, completions, answer):\n"
                                             "    completions.reverse(); prompts.clear(); answer.append('c')\n"
                                             "    return [1, 2]\n") + ":f")
    prompts, texts, answers = [*PROMPTS], [*TEXTS], [*ANSWERS]
    assert own_reward.rewards(name, prompts, texts, answers) == [1.0, 2.0]
    assert (prompts, texts, answers) == (PROMPTS, TEXTS, ANSWERS)


@pytest.mark.parametrize("close", ["sys.stdout.close(); sys.stderr.close()", "sys.__stdout__.flush()"])
def test_what_the_code_prints_goes_to_standard_error_and_it_closes_nothing(tmp_path, capfd, close):
    own_reward._stream.cache_clear()
    name = own_reward.give(written(tmp_path, f"import sys\nprint('at the top')\n{close}\n"
                                             f"def f(**_):\n    print('inside'); {close}\n    return [1, 2]") + ":f")
    for _ in range(2):
        own_reward.rewards(name, PROMPTS, TEXTS, ANSWERS)
    print("the lab's own")
    said = capfd.readouterr()
    assert said.out == "the lab's own\n" and said.err == "at the top\ninside\ninside\n"


def test_a_lab_that_is_shared_for_reading_runs_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    with pytest.raises(LabError, match="shared for reading"):
        own_reward.give(written(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(**_): return []") + ":f")
    assert not (tmp_path / "ran").exists()


def test_what_it_gave_is_known_and_the_newest_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(own_reward, "_known", {})
    monkeypatch.setattr(own_reward, "KNOWN", 2)
    name = own_reward.give(written(tmp_path, "def f(completions, **_): return [len(c) for c in completions]") + ":f")
    own_reward.rewards(name, ["a="] * 3, ["a", "aa", "aaa"], ["a"] * 3)
    one, two, three, other = own_reward.known(name, ["a="] * 3 + ["b="], ["a", "aa", "aaa", "aaa"], ["a"] * 4)
    assert (two, three) == (2.0, 3.0) and one != one and other != other
