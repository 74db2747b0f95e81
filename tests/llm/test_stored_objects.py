"""What a checkpoint holds of waiting groups comes back as it was, and no file names another class."""

import json
from dataclasses import dataclass

import pytest
import torch

from labcore.errors import LabError
from labcore.llm.batch import Prompts
from labcore.llm.stored_objects import packed, unpacked
from labcore.tasks.environment import Episode, Move
from labcore.tasks.task import Problem, Turn


def test_dataclasses_come_back_from_tensors_and_json():
    problem = Problem("a", "b", 3, (Turn("user", "a"),), {"level": 2, "tags": ["x"]}, talk=True)
    first = Prompts(torch.tensor([[1, 2]]), torch.tensor([[True, False]]), (1,))
    value = [{"first": first}, problem, None, 1.5, "text"]
    tensors, found = packed(value)
    again = unpacked(tensors, json.loads(json.dumps(found)))
    assert again[1:] == value[1:] and again[1].columns == problem.columns and type(again[1].turns[0]) is Turn
    assert torch.equal(again[0]["first"].ids, first.ids) and again[0]["first"].known == (1,)


def test_an_episode_comes_back_with_its_moves():
    episode = Episode([Move("8", "higher", 0.0), Move("12", "correct", 1.0)], True, 1)
    tensors, found = packed([episode, "plain"])
    again, plain = unpacked(tensors, json.loads(json.dumps(found)))
    assert again == episode and again.moves == episode.moves and again.done and again.cut == 1 and type(plain) is str


def test_no_other_class_is_written_or_made():
    @dataclass
    class Other:
        value: int

    with pytest.raises(TypeError, match="Other"):
        packed([Other(1)])
    with pytest.raises(LabError, match="Other"):
        unpacked({}, {"class": "Other", "map": {"value": 1}})
