"""An environment of the user's own: found by its hash, in three shapes, and one sentence for each fault."""

import numpy as np
import pytest

from labcore.errors import LabError
from labcore.tasks import own_reward
from labcore.tasks.own_environment import OwnEnvironment, offered
from labcore.tasks.task import Problem

LIMITS = {"max_turns": 4, "turn_tokens": 8, "observation_length": 400}
LAB = """
class Door:
    rows = [{"key": 1}, {"key": 2}]
    def reset(self, row):
        self.key, self.seed = row["key"], row["seed"]
        return "which key?"
    def step(self, text):
        return ("open", 1.0, True) if text == str(self.key) else ("shut", -0.5, False)
"""
TRL = '''
class Shop:
    def reset(self, seed):
        self.basket = []
        return "Buy an apple."
    def add(self, name: str) -> str:
        """Put something into the basket."""
        self.basket.append(name)
        return f"{len(self.basket)} in the basket"
    def fail(self) -> str:
        """Never works."""
        raise ValueError("sold out")
    def _secret(self):
        raise AssertionError("not a tool")
    def get_reward(self) -> float:
        return float(self.basket == ["apple"])
'''
VERL = """
class Coach:
    rows = [{"prompt": "6 * 7?", "ground_truth": "42"}]
    def __init__(self, config):
        self.config = config
    async def start_interaction(self, instance_id=None, ground_truth=None, **kwargs):
        self.truth = ground_truth
        return "one"
    async def generate_response(self, instance_id, messages, **kwargs):
        assert instance_id == "one" and messages[0] == {"role": "user", "content": "6 * 7?"}
        right = messages[-1]["content"] == self.truth
        return right, "right" if right else f"try {len(messages)}", float(right), {}
    async def finalize_interaction(self):
        pass
"""


def task(tmp_path, body, name=""):
    path = tmp_path / "mine.py"
    path.write_text(body)
    key = own_reward.register(f"{path}{name}", own_reward.ENVIRONMENT)
    return OwnEnvironment({**LIMITS, "environment": key})


def turns(made, *texts, seed=0):
    [problem] = made.problems(1, np.random.default_rng(seed))
    play = made.begin(problem)
    for text in texts:
        play.step(text)
    return problem, play.episode


def test_the_labs_own_shape(tmp_path):
    made = task(tmp_path, LAB)
    problem, episode = turns(made, "7", "1", seed=1)
    assert problem.prompt == "which key?" and problem.columns["key"] in (1, 2) and problem.answer == ""
    assert episode.moves[0] == ("7", "shut", -0.5)
    keys = {problem.columns["key"] for problem in made.problems(20, np.random.default_rng(0))}
    assert keys == {1, 2} and made.name == "mine.py:Door"


def test_the_shape_of_trl(tmp_path):
    made = task(tmp_path, TRL)
    problem, episode = turns(
        made, '<tool_call>{"name": "add", "arguments": {"name": "apple"}}</tool_call>', '<tool_call>{"name": "fail"}'
        '</tool_call>', '<tool_call>{"name": "_secret"}</tool_call>', "done")
    assert problem.prompt.startswith("Buy an apple.\nTools,")
    assert "add(name: str) -> str: Put something" in problem.prompt
    assert "get_reward" not in problem.prompt and "_secret" not in problem.prompt
    assert [move.observation.partition(":")[0] for move in episode.moves] == ["1 in the basket", "error", "error", ""]
    assert episode.score.exact and "sold out" in episode.moves[1].observation


@pytest.mark.parametrize("call", [
    "{", "[]", '{"name": 1}', '{"name": "add"}', '{"name": "add", "arguments": {"x": 1}}', '{"name": "reset"}',
    '{"name": "__init__"}'])
def test_a_call_that_is_none_is_answered_in_words(tmp_path, call):
    _, episode = turns(task(tmp_path, TRL), f"<tool_call>{call}</tool_call>")
    assert episode.moves[0].observation.startswith("error: ") and not episode.done


def test_the_shape_of_verl(tmp_path):
    problem, episode = turns(task(tmp_path, VERL), "41", "42")
    assert problem.prompt == "6 * 7?" and [move.observation for move in episode.moves] == ["try 2", "right"]
    assert episode.score.exact


@pytest.mark.parametrize("body, words", [
    (LAB.replace('("shut", -0.5, False)', "1 / 0"), "The environment mine.py:Door raised ZeroDivisionError: division "
     "by zero in step in turn 1: correct it, then start a new run with it"),
    (LAB.replace('"which key?"', "{}['a']"), "raised KeyError: 'a' in reset: correct it"),
    (LAB.replace('("shut", -0.5, False)', '("shut", float("nan"), False)'), "returned nan as the reward of turn 1"),
    (LAB.replace('("shut", -0.5, False)', '"shut"'), "returned 'shut' from step in turn 1: return .observation, "
     "reward, done.."),
    (LAB.replace("[{\"key\": 1}, {\"key\": 2}]", "[1]"),
     "`rows` of the environment mine.py:Door is not a list of dicts"),
    (LAB.replace("def step", "def walk"), "^The environment mine.py:Door lacks methods that the lab calls: give it "
     "reset and step"),
    (LAB.replace("class Door:", "class Door:\n    def __init__(self):\n        raise SystemExit(3)"),
     "raised SystemExit: 3 in its constructor"),
    (VERL.replace('"prompt": "6 * 7?", ', ""), "mine.py:Coach has a row without prompt: give each of its `rows`"),
])
def test_a_fault_is_one_sentence(tmp_path, body, words):
    with pytest.raises(LabError, match=words):
        turns(task(tmp_path, body), "7")


@pytest.mark.parametrize("body, name, words", [
    ("x = 1", "", "The environment file mine.py has no class with a method that begins an episode"),
    (LAB + TRL, "", "The environment file mine.py has the classes Door, Shop: name one of its classes, for example "
     "--environment mine.py:Door"),
    (LAB, ":Gate", "The file .* has no class 'Gate': check the name after the colon"),
    ("class A(:", ":A", "The environment file .* cannot be run"),
])
def test_a_file_that_cannot_be_used_is_named(tmp_path, body, name, words):
    with pytest.raises(LabError, match=words):
        task(tmp_path, body, name)


def test_files_of_this_lab_are_offered_unread_code_is_not_run(tmp_path):
    task(tmp_path, LAB)
    assert [name.rpartition(" ")[0] for name in offered()] == ["mine.py:Door"]
    with pytest.raises(LabError, match=r"needs the environment class mine.py:Door .* --environment FILE:class"):
        OwnEnvironment({**LIMITS, "environment": "mine.py:Door 0123456789ab"})


PLAYER = """    @staticmethod
    def player(rng):
        return lambda seen: str(rng.integers(1, 3))
"""


def test_a_player_of_theirs_teaches(tmp_path):
    made = task(tmp_path, LAB + PLAYER)
    assert all(problem.answer.done for problem in made.problems(5, np.random.default_rng(0)))
    assert made.score(Problem("", "", columns={"key": 2, "seed": 0}), "2").exact


def test_a_name_that_is_none_of_a_class_is_refused_as_an_environment():
    with pytest.raises(LabError, match=r"^The environment 'door' cannot be used: name a class of a Python file by "
                                       r"--environment FILE:Class\.$"):
        OwnEnvironment({**LIMITS, "environment": "door"})
