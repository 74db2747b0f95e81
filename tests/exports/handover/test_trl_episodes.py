"""The rollout of the script for TRL: its tokens and its mask are those of the lab's own episodes."""

import sys
from contextlib import nullcontext
from itertools import groupby
from types import ModuleType, SimpleNamespace

import pytest
from transformers import GenerationConfig

from labcore.exports.handover import trl
from labcore.exports.handover.plan import Plan
from labcore.exports.handover.task_code import task_code
from labcore.exports.handover.trl_episodes import code
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.rendering import Rendering
from labcore.tasks.guess import Guess
from labcore.tasks.task import Problem, make_task
from tests.exports.handover.conftest import plan
from tests.llm.tools import model

TEMPLATE = ("{% for each in messages %}<{{ each.role }}>{{ each.content }}{{ eos_token }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


@pytest.mark.parametrize("chat", [False, True])
def test_its_tokens_and_its_mask_are_those_of_the_labs_episodes(chat, monkeypatch):
    each = plan("grpo", "guess", knobs={"observation_role": "tool" if chat else "user", "max_new_tokens": 400})
    tokenizer = character_tokenizer(Guess.characters + "".join(map(chr, range(33, 127))))
    template = TEMPLATE if chat else None
    tokenizer.chat_template = template
    network = model("llama", len(tokenizer))
    trainer = SimpleNamespace(
        processing_class=tokenizer, max_completion_length=400, model_wrapped=network, accelerator=None,
        eos_token_ids=[tokenizer.eos_token_id], generation_config=GenerationConfig(
            do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id))
    utils = ModuleType("trl.models.utils")
    utils.unwrap_model_for_generation = lambda wrapped, accelerator: nullcontext(wrapped)
    for name, module in (("trl", ModuleType("trl")), ("trl.models", ModuleType("m")), ("trl.models.utils", utils)):
        monkeypatch.setitem(sys.modules, name, module)
    space = {"__name__": "script"}
    more, _ = code(Plan(each.run, each.spec, chat))
    exec(task_code(Plan(each.run, each.spec, chat), more), space)
    rows = space["problems"](6, seed=3)
    found = space["rollout"]([row["prompt"] for row in rows], trainer)
    rendering, of_lab = Rendering(tokenizer, (tokenizer.eos_token_id,), template, observer="tool"), make_task(
        each.spec.task_row, each.spec.knobs, None)
    assert sum(map(len, found["completion_ids"])) > 6
    for row, begun, ids, own, earned in zip(space["rows"](6, 3), found["prompt_ids"], found["completion_ids"],
                                            found["env_mask"], found["earned"], strict=True):
        play = of_lab.begin(Problem("", "", columns=row))
        assert rendering.prompts([Problem(play.first, "")]) == [begun]
        expected, mask, at = [], [], 0
        for mine, part in groupby(own):
            size = len([*part])
            if mine:
                turn, at = ids[at:at + size], at + size
                move = play.step(tokenizer.decode(turn, skip_special_tokens=True))
                expected, mask = expected + turn, mask + [1] * size
            else:
                seen = rendering.observation(move.observation, turn[-1] == tokenizer.eos_token_id)
                expected, mask, at = expected + seen, mask + [0] * len(seen), at + size
        assert (ids, own) == (expected, mask) and earned == sum(move.reward for move in play.moves)
        assert play.done or len(play.moves) == each["max_turns"]


def test_the_trainer_plays_episodes_whatever_the_algorithm_and_has_the_limits_of_the_run():
    for algorithm in ("grpo", "rloo", "ppo"):
        script = trl.script(plan(algorithm, "guess", knobs={"max_turns": 5}))
        assert "GRPOTrainer(model, reward_funcs=reward, rollout_func=rollout, " in script
        assert "MAX_TURNS, TURN_TOKENS = 5, 3" in script
    of_turns = trl.script(plan("rloo", "guess", knobs={"advantage": "turn_return"}))
    assert "one advantage for the whole episode: no equivalent of a return from each turn on" in " ".join(
        of_turns.replace("#", "").split())
