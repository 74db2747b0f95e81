"""The environment in a script for another tool: it plays as the lab's does, whoever wrote it."""

import json
import random

import numpy as np
import pytest

from labcore.errors import LabError
from labcore.exports.handover import trl
from labcore.exports.handover.task_code import task_code
from labcore.tasks import own_reward
from labcore.tasks.environment import EnvironmentTask
from labcore.tasks.task import make_task
from tests.exports.handover.conftest import plan

TURNS = {"guess": ["4", "2", "x", "7"], "lookup": ["<tool>2*3</tool>", "<tool>2**9</tool>", "7"],
         "word_maze": ["n", "e", "s", "w", "up"], "twenty_questions": ["fly?", "fur?", "x?", "bat!"],
         "own_environment": ["1", "2", "3", "x"]}


def played(game, row, texts) -> list[tuple]:
    found = [game.reset(row)]
    for text in texts:
        found.append(tuple(game.step(text)))
        if found[-1][2]:
            break
    return found


@pytest.mark.parametrize("task", TURNS)
def test_the_scripts_environment_answers_as_the_labs(task):
    each, rng = plan("grpo", task), random.Random(0)
    space = {"__name__": "script"}
    exec(task_code(each), space)
    of_lab = make_task(each.spec.task_row, each.spec.knobs, None)
    assert isinstance(of_lab, EnvironmentTask)
    rows, drawn = space["rows"](20, seed=1), of_lab.draw_rows(20, np.random.default_rng(0))
    assert {*rows[0]} == {*drawn[0]} - {"seed"} and len({json.dumps(row) for row in rows}) > 4
    for row in [*rows, *({key: value for key, value in row.items() if key != "seed"} for row in drawn)]:
        texts = rng.choices(TURNS[task], k=each["max_turns"])
        row = json.loads(json.dumps(row))  # as the data set holds it
        assert played(space["Game"](), row, texts) == played(of_lab.environment(), row, texts)
    assert [json.loads(one["prompt"]) for one in space["problems"](20, 1)] == json.loads(json.dumps(rows))


SHAPED = {
    "Door": "    def reset(self, row):\n        self.key = row['key']\n        return 'key?'\n\n"
            "    def step(self, text):\n        return 'ok', float(text == str(self.key)), True\n",
    "Talk": "    def __init__(self, config):\n        pass\n\n"
            "    async def start_interaction(self, instance_id, **given):\n        self.key = given['key']\n\n"
            "    async def generate_response(self, instance_id, messages, **_):\n"
            "        return True, 'ok', float(messages[-1]['content'] == str(self.key)), {}\n",
    "Box": "    def reset(self, **row):\n        self.key = row['key']\n\n    def open(self, key: int) -> str:\n"
           "        'Open it.'\n        return 'ok'\n\n    def get_reward(self):\n        return 1.0\n"}


@pytest.mark.parametrize("name", SHAPED)
def test_a_class_of_yours_is_taken_from_its_file_in_whatever_shape_it_is(name, tmp_path, monkeypatch):
    (tmp_path / f"shaped_{name.lower()}.py").write_text(
        f"class {name}:\n    rows = [{{'key': 1, 'prompt': 'key?'}}]\n\n{SHAPED[name]}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    key = own_reward.register(f"{tmp_path}/shaped_{name.lower()}.py:{name}", own_reward.ENVIRONMENT)
    each = plan("grpo", "own_environment", knobs={"environment": key})
    if name == "Box":
        with pytest.raises(LabError, match="has none: repeat the run with a model that has a chat template"):
            trl.script(each)
        each = type(each)(each.run, each.spec, chat=True)
        script = trl.script(each)
        assert "GRPOTrainer(model, environment_factory=Own, " in script and "max_tool_calling_iterations=7," in script
        assert "conversational(problems(" in script and f"put shaped_{name.lower()}.py beside this script" in script
        return
    space = {"__name__": "script"}
    exec(task_code(each), space)
    [row] = space["rows"](1)
    assert row["key"] == 1 and played(space["Game"](), row, ["1"]) == ["key?", ("ok", 1.0, True)]
    assert f"put shaped_{name.lower()}.py beside this script" in trl.script(each)
