"""Reward functions of the user's own: where their files lie, what is offered, and their faults in a sentence."""

import pytest

from labcore.errors import LabError
from labcore.tasks import own_reward


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    forget(monkeypatch)


def forget(monkeypatch):
    """As in another process."""
    for name in ("_given", "_modules"):
        monkeypatch.setattr(own_reward, name, {})


def written(tmp_path, body, name="mine.py"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)
    return str(path)


def test_a_spec_has_the_name_and_the_hash_and_no_folder(tmp_path):
    key = own_reward.register(written(tmp_path, "def score(completions, **_): return [1]") + ":score")
    assert key.startswith("mine.py:score ") and len(key.split()[1]) == 12 and str(tmp_path) not in key


def test_another_process_has_the_function_from_the_copy_that_is_kept(tmp_path, monkeypatch):
    key = own_reward.register(written(tmp_path, "def f(**_): return [1]") + ":f")
    written(tmp_path, "def f(**_): return [2]")
    forget(monkeypatch)
    assert own_reward.function(key)() == [1]


def test_a_kept_file_still_imports_and_reads_what_lies_beside_the_original(tmp_path, monkeypatch):
    written(tmp_path, "VALUE = 7", "beside_my_reward.py")
    (tmp_path / "words.txt").write_text("right")
    key = own_reward.register(written(tmp_path, "from pathlib import Path\nfrom beside_my_reward import VALUE\n"
                                      "def f(**_): return [VALUE, (Path(__file__).parent / 'words.txt')"
                                      ".read_text()]\n") + ":f")
    forget(monkeypatch)
    assert own_reward.function(key)() == [7, "right"]


def test_a_file_in_the_lab_s_folder_is_kept_once_a_run_uses_it(tmp_path, monkeypatch):
    written(own_reward.root(), "def f(completions): return [1]")
    [key] = [each for each in own_reward.offered() if ":" in each]
    assert own_reward.function(key)(completions=[]) == [1]
    written(own_reward.root(), "def f(completions): return [2]")
    forget(monkeypatch)
    assert own_reward.function(key)(completions=[]) == [1]


def test_what_is_offered_is_read_and_never_run(tmp_path):
    written(own_reward.root(), "open('ran', 'w')\nimport os\nfrom os.path import join\n"
                               "def right(completions, answer): ...\nasync def slow(prompts, completions, **_): ...\n"
                               "def _own(completions): ...\ndef helper(text): ...\nclass Big:\n"
                               "    def inside(self, completions): ...\n")
    written(own_reward.root(), "def broken(:", "broken.py")
    written(own_reward.root(), "def f(completions): ...", "notes.txt")
    functions = [each.split()[0] for each in own_reward.offered() if ":" in each]
    assert functions == ["mine.py:right", "mine.py:slow"]
    assert own_reward.offered()[:3] == ["verifier", "reward_model", "judge"]
    assert not (own_reward.root() / "ran").exists()


def test_another_content_is_another_function(tmp_path, monkeypatch):
    first = own_reward.register(written(tmp_path, "def f(**_): return [1]") + ":f")
    other = first[:-1] + ("0" if first[-1] != "0" else "1")
    with pytest.raises(LabError, match=r"mine\.py:f \(file hash \w+\), and no file here has this hash: put"):
        own_reward.check(other)


def test_no_path_comes_of_a_name(tmp_path, monkeypatch):
    written(tmp_path, "open('ran', 'w')\ndef f(completions): ...", "away.py")
    for key in (f"{tmp_path}/away.py:f 0123456789ab", "../away.py:f 0123456789ab", "away.py:f ../../0123"):
        with pytest.raises(LabError, match="cannot be used"):
            own_reward.check(key)
    with pytest.raises(LabError, match="no file here has this hash"):
        own_reward.check("away.py:f 0123456789ab")


def test_the_code_is_that_of_the_hash_however_soon_the_file_is_written_again(tmp_path):
    """Python's cache knows a file by its whole seconds and its size."""
    given = [own_reward.register(written(tmp_path, f"def f(**_): return {number}") + ":f") for number in "123"]
    assert [own_reward.function(key)() for key in given] == [1, 2, 3]


def test_two_functions_of_a_file_share_its_state(tmp_path):
    place = written(tmp_path, "seen = []\ndef f(**_): seen.append(1); return seen\ndef g(**_): return seen\n")
    one, other = own_reward.register(place + ":f"), own_reward.register(place + ":g")
    assert own_reward.function(one)() is own_reward.function(other)()


def test_a_file_with_a_dataclass(tmp_path):
    key = own_reward.register(written(
        tmp_path, "from __future__ import annotations\nfrom dataclasses import dataclass\n"
                  "@dataclass\nclass Weights:\n    right: float = 2.0\n"
                  "def f(**_): return Weights().right\n") + ":f")
    assert own_reward.function(key)() == 2.0


def test_a_file_of_one_function_needs_no_name_of_it(tmp_path):
    key = own_reward.register(written(tmp_path, "def helper(text): ...\ndef right(completions): ..."))
    assert key.startswith("mine.py:right ")


@pytest.mark.parametrize("place, match", [
    ("mine.py:", "is not FILE:function"), (":f", "is not FILE:function"), ("mine", "is not FILE:function"),
    ("nowhere.py:f", "There is no file nowhere.py"), ("mine.py:g", "has no function 'g'"),
    ("mine.py:x", "has no function 'x'"), ("mine.py", "has no function with a parameter completions"),
    ("two.py", "has the functions f, g: name one of its functions, for example --reward two.py:f"),
    ("broken.py:f", r"cannot be run \(SyntaxError"), ("raising.py:f", r"cannot be run \(ZeroDivisionError"),
    ("ending.py:f", r"ending.py cannot be run \(SystemExit: 0\): correct it"),
    ("getting.py:f", r"getting.py cannot be run \(RuntimeError: none\): correct it"),
    ("mine.txt:f", "its name must end in .py"), ("a + b.py:f", "cannot be used")])
def test_a_file_that_brings_no_function_is_said_in_words(tmp_path, monkeypatch, place, match):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "x = 3\ndef f(**_): return []")
    written(tmp_path, "def f(completions): ...\ndef g(completions): ...", "two.py")
    written(tmp_path, "def f(:", "broken.py")
    written(tmp_path, "1/0", "raising.py")
    written(tmp_path, "import sys\nsys.exit(0)", "ending.py")
    written(tmp_path, "def __getattr__(name): raise RuntimeError('none')", "getting.py")
    written(tmp_path, "def f(**_): return []", "mine.txt")
    written(tmp_path, "def f(**_): return []", "a + b.py")
    with pytest.raises(LabError, match=match):
        own_reward.register(place)
    assert not own_reward._given


def test_a_lab_that_is_shared_for_reading_runs_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    with pytest.raises(LabError, match="shared for reading"):
        own_reward.register(written(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(**_): return []") + ":f")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("word, found", [
    ("mine.py:f", ("mine.py:f", 1)), ("mine.py:f=0.5", ("mine.py:f", 0.5)), ("verifier=2", ("verifier", 2)),
    ("a=b.py:f", ("a=b.py:f", 1)), ("a=b.py:f=-1e-1", ("a=b.py:f", -0.1)), ("mine.py:f=x", ("mine.py:f=x", 1)),
    ("mine.py:f=nan", ("mine.py:f=nan", 1))])
def test_a_weight_stands_behind_the_function(word, found):
    assert own_reward.weighed(word) == found
