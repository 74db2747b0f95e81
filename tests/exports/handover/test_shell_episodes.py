"""Episodes in the scripts for verl, OpenRLHF and ms-swift: their tokens are the lab's, and the files are the tools'."""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
from itertools import groupby
from types import ModuleType, SimpleNamespace

import pytest
import torch

from labcore.exports.handover import ms_swift, openrlhf, verl
from labcore.exports.handover.plan import Plan
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.rendering import Rendering
from labcore.tasks import own_reward
from labcore.tasks.environment import EnvironmentTask
from labcore.tasks.guess import Guess
from labcore.tasks.task import Problem, make_task
from tests.exports.handover.conftest import plan
from tests.exports.handover.test_environments import SHAPED
from tests.exports.handover.test_ms_swift import _module, parsed
from tests.exports.handover.test_trl_episodes import TEMPLATE

TOOLS = {"verl": verl, "openrlhf": openrlhf, "ms-swift": ms_swift}
LOOPS = "verl.experimental.agent_loop"
PARTS = {"verl": ["verl", "verl.experimental", LOOPS, f"{LOOPS}.agent_loop"],
         "openrlhf": ["openrlhf", "openrlhf.utils", "openrlhf.utils.agent"],
         "ms-swift": ["swift", "swift.model", "swift.template", "swift.rollout"]}


def tokens_of(chat: bool):
    tokenizer = character_tokenizer(Guess.characters + "".join(map(chr, range(33, 127))))
    tokenizer.chat_template = TEMPLATE if chat else None
    return tokenizer


def made(tool: str, chat: bool, tokenizer, folder, monkeypatch, **knobs) -> tuple[Plan, dict]:
    """The plan of a run, and what its script's task.py defines once it has written its files and the tool imports
    it."""
    base = plan("grpo", "guess", steps=1, knobs={"observation_role": "tool" if chat else "user", "max_new_tokens": 60,
                                                 "prompts_per_step": 4, **knobs})
    each = Plan(base.run, base.spec, chat)
    monkeypatch.chdir(folder)
    tokenizer.save_pretrained(folder / "model")
    (folder / "task.py").write_text(TOOLS[tool].script(each).split("<<'PYTHON'\n")[1].split("\nPYTHON")[0])
    monkeypatch.setattr(sys, "argv", ["task.py", str(folder / "model")])
    runpy.run_path("task.py", run_name="__main__")
    registered: dict = {}
    for name in PARTS[tool]:
        module = _module(name, registered)
        vars(module).update(AgentLoopBase=object, AgentLoopOutput=SimpleNamespace, AgentExecutorBase=object, Env=object,
                            envs=registered)
        monkeypatch.setitem(sys.modules, name, module)
    return each, runpy.run_path("task.py", run_name="task") | registered


class Writer:
    """Writes numbers of one digit at random, now and then without an end; keeps what it was asked for."""

    def __init__(self, tokenizer):
        self.tokenizer, self.random, self.asked = tokenizer, torch.Generator().manual_seed(0), []

    def __call__(self, ids: list[int], most: int) -> list[int]:
        self.asked.append((ids, most))
        digit, ends = torch.randint(1, 8, (2,), generator=self.random).tolist()
        written = self.tokenizer(str(digit), add_special_tokens=False)["input_ids"]
        return (written + [self.tokenizer.eos_token_id] * (ends > 2))[:most]


def played(tool: str, space: dict, each: Plan, tokenizer, write: Writer, row: str) -> tuple[list, list, list, float]:
    """The beginning, the completion, its mask and the return, as the tool gets them."""
    if tool == "verl":
        async def generate(request_id, prompt_ids, sampling_params):
            tokens = write(prompt_ids, sampling_params["max_tokens"])
            return SimpleNamespace(token_ids=tokens, log_probs=[-0.5] * len(tokens))

        loop = space["Episodes"]()
        loop.tokenizer, loop.server_manager = tokenizer, SimpleNamespace(generate=generate)
        loop.rollout_config = SimpleNamespace(response_length=each["max_new_tokens"])
        found = asyncio.run(loop.run({}, extra_info={"row": row}, raw_prompt=[]))
        assert [number < 0 for number in found.response_logprobs] == [*map(bool, found.response_mask)]
        return found.prompt_ids, found.response_ids, found.response_mask, found.reward_score
    engine = SimpleNamespace()

    async def generate(ids, params):
        tokens = write(ids, params.max_tokens)
        logprobs = [{token: SimpleNamespace(logprob=-0.5)} for token in tokens]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, logprobs=logprobs)])

    engine.generate = generate
    params = SimpleNamespace(max_tokens=7)
    found = asyncio.run(space["AgentExecutor"]().execute("", row, params, 2048, tokenizer, engine))
    whole, own = found["observation_tokens"], [0] * len(found["observation_tokens"])
    for start, end in found["action_ranges"]:
        own[start:end] = [1] * (end - start)
    start = own.index(1)
    assert [number < 0 for number in found["rollout_log_probs"]] == [*map(bool, own)]
    return whole[:start], whole[start:], own[start:], found["reward"]


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("tool", ["verl", "openrlhf"])
def test_their_tokens_and_masks_are_those_of_the_labs_episodes(tool, chat, tmp_path, monkeypatch):
    tokenizer = tokens_of(chat)
    each, space = made(tool, chat, tokenizer, tmp_path, monkeypatch)
    of_lab, write = make_task(each.spec.task_row, each.spec.knobs, None), Writer(tokenizer)
    assert isinstance(of_lab, EnvironmentTask)
    rendering = Rendering(tokenizer, (tokenizer.eos_token_id,), TEMPLATE if chat else None, observer="tool")
    returns = []
    for row in space["rows"](12, 3):
        begun, ids, own, earned = played(tool, space, each, tokenizer, write, json.dumps(row))
        play, expected, mask, at = of_lab.begin(Problem("", "", columns=row)), [], [], 0
        assert rendering.prompts([Problem(play.first, "")]) == [begun]
        for mine, part in groupby(own):
            size = len([*part])
            turn, at = ids[at:at + size], at + size
            if mine:
                move = play.step(tokenizer.decode(turn, skip_special_tokens=True))
                expected, mask = expected + turn, mask + [1] * size
            else:
                seen = rendering.observation(move.observation, ended=expected[-1] == tokenizer.eos_token_id)
                expected, mask = [*expected, *seen], mask + [0] * len(seen)
        assert (expected, mask) == (ids, own) and earned == play.episode.score.reward
        assert len(ids) <= each["max_new_tokens"] and len(play.moves) <= each["max_turns"]
        returns.append(earned)
    assert {*returns} == {0.0, 1.0} and max(most for _, most in write.asked) == each["turn_tokens"]


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("chat", [False, True])
def test_ms_swift_is_given_the_environment_and_the_texts_around_observations(chat, tmp_path, monkeypatch):
    tokenizer = tokens_of(chat)
    each, space = made("ms-swift", chat, tokenizer, tmp_path, monkeypatch)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    rendering = Rendering(tokenizer, (tokenizer.eos_token_id,), TEMPLATE if chat else None, observer="tool")
    first = rows[0]["messages"][0]["content"]
    assert len(rows) == each.rows and ids_of(tokenizer, first) == rendering.prompts([Problem("1-7?", "")])[0]
    game, secret = space["Episodes"](), json.loads(rows[0]["row"])["secret"]
    assert space["Episodes"] is space["envs"]["episodes"]
    asked = SimpleNamespace(data_dict={"row": rows[0]["row"]}, messages=rows[0]["messages"])
    assert asyncio.run(game.reset(asked)) == (first, {}, "")
    said, reward, done, _ = asyncio.run(game.step([{"role": "assistant", "content": "x" + tokenizer.eos_token}]))
    assert (reward, done) == (0.0, False)
    assert ids_of(tokenizer, said) == rendering.observation("no number", ended=True)
    assert asyncio.run(game.step([{"role": "assistant", "content": str(secret)}]))[1:3] == (1.0, True)
    assert space["template"][:3] == ("as_written", [], ["{{QUERY}}"]) and space["template"][3] == [tokenizer.eos_token]


def test_the_settings_name_the_files():
    found = ms_swift.settings(plan("grpo", "guess", knobs={"turn_tokens": 5}))
    assert found | {"multi_turn_scheduler": "gym_scheduler", "gym_env": "episodes", "max_turns": 3, "use_vllm": True,
                    "max_completion_length": 5} == found and "reward_funcs" not in found
    assert parsed(["swift", "rlhf", *(word for key in ("gym_env", "max_turns", "multi_turn_scheduler", "use_vllm")
                                      for word in ms_swift.words(key, found[key]).split())])
    found, script = verl.settings(plan("grpo", "guess")), verl.script(plan("grpo", "guess"))
    assert found["actor_rollout_ref.rollout.agent.agent_loop_config_path"] == "agent.yaml"
    assert "- name: episodes\n  _target_: task.Episodes" in script and "custom_reward_function" not in script
    found = openrlhf.settings(plan("grpo", "guess"))
    assert found["--train.agent_func_path"] == "task.py" and "--reward.remote_url" not in found


@pytest.mark.parametrize("name", SHAPED)
def test_a_class_of_yours_is_played_or_the_script_says_why_not(name, tmp_path, monkeypatch):
    (tmp_path / f"shaped_{name.lower()}.py").write_text(
        f"class {name}:\n    rows = [{{'key': 1, 'prompt': 'key?'}}]\n\n{SHAPED[name]}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    key = own_reward.register(f"{tmp_path}/shaped_{name.lower()}.py:{name}", own_reward.ENVIRONMENT)
    base = plan("grpo", "own_environment", steps=1, knobs={"environment": key, "prompts_per_step": 1})
    for tool in TOOLS.values():
        said = tool.script(Plan(base.run, base.spec))
        plain = all(line.startswith("#") for line in said.splitlines())
        assert plain == (name == "Box") and ("the script for TRL" in said) == plain
    if name != "Box":
        (tmp_path / "task.py").write_text(verl.script(base).split("<<'PYTHON'\n")[1].split("\nPYTHON")[0])
        monkeypatch.setattr(sys, "modules", sys.modules | {part: ModuleType(part) for part in PARTS["verl"]})
        vars(sys.modules[PARTS["verl"][-1]]).update(AgentLoopBase=object, AgentLoopOutput=SimpleNamespace)
        space, tokenizer = runpy.run_path("task.py", run_name="task"), tokens_of(False)
        write = Writer(tokenizer)
        assert played("verl", space, base, tokenizer, write, json.dumps(space["rows"](1)[0]))[3] in (0.0, 1.0)
