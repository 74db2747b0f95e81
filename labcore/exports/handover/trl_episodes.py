"""Episodes in TRL: a `rollout_func` for GRPOTrainer.

TRL's own loop calls tools and needs a chat template for that. The lab's environments answer any text, so the script
plays them itself. A prompt of its data set is the row of an episode as JSON. `rollout` returns the tokens of the first
observation in its place, the mask of the model's tokens as `env_mask`, and the returns for the reward function. A class
of the user's that has TRL's methods is played by TRL's own loop (`environment_factory`).

Source: TRL 1.16, `GRPOTrainer._generate` and `_generate_and_score_completions`.
"""

from __future__ import annotations

from labcore.errors import LabError
from labcore.exports.handover import environments
from labcore.exports.handover.plan import Plan, Rule, Rules
from labcore.exports.handover.rules import built_in, choice, given, missing
from labcore.exports.handover.shared_rules import IN_THE_CODE

_ROLLOUT = '''

def rollout(prompts: list[str], trainer) -> dict[str, list]:
    """One episode for each row: the model writes a turn, the environment answers, and so on. `env_mask` is 1 at the
    tokens of the model, and TRL learns from no others. `earned` goes to the reward function."""
    import torch
    from trl.models.utils import unwrap_model_for_generation

    tokenizer, limit, games = trainer.processing_class, trainer.max_completion_length, [Game() for _ in prompts]
    begun = [prompt_ids(tokenizer, game.reset(json.loads(row))[:OBSERVATION_LENGTH])
             for game, row in zip(games, prompts)]
    ids, own, earned = [[] for _ in prompts], [[] for _ in prompts], [0.0 for _ in prompts]
    going = [*range(len(prompts))]
    with torch.no_grad(), unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
        for turn in range(MAX_TURNS):
            asked = tokenizer.pad({"input_ids": [begun[at] + ids[at] for at in going]}, padding_side="left",
                                  return_tensors="pt").to(model.device)
            drawn = model.generate(**asked, generation_config=trainer.generation_config, max_new_tokens=TURN_TOKENS)
            drawn, still = drawn[:, asked["input_ids"].shape[1]:].tolist(), []
            for at, tokens in zip(going, drawn):
                tokens = tokens[:limit - len(ids[at])]
                end = next((place for place, token in enumerate(tokens, 1) if token in trainer.eos_token_ids), 0)
                tokens = tokens[:end or len(tokens)]
                ids[at], own[at] = ids[at] + tokens, own[at] + [1] * len(tokens)
                said, reward, done = games[at].step(tokenizer.decode(tokens, skip_special_tokens=True))
                earned[at] += reward
                seen = observation_ids(tokenizer, said[:OBSERVATION_LENGTH], bool(end))
                if not done and turn + 1 < MAX_TURNS and len(ids[at]) + len(seen) < limit:
                    ids[at], own[at] = ids[at] + seen, own[at] + [0] * len(seen)
                    still.append(at)
            going = still
            if not going:
                break
    return {"prompt_ids": begun, "completion_ids": ids, "logprobs": None, "env_mask": own, "earned": earned}


def reward(completions: list[str], earned: list[float], **_) -> list[float]:
    """The return of each episode."""
    return earned
'''
_PLAIN = '''

def prompt_ids(tokenizer, prompt: str) -> list[int]:
    return tokenizer(prompt)["input_ids"]


def observation_ids(tokenizer, text: str, ended: bool) -> list[int]:
    """An observation stands on a line of its own. A turn that has not `ended` is ended here."""
    found = tokenizer(f"\\n{text}\\n", add_special_tokens=False)["input_ids"]
    return found if ended else [tokenizer.eos_token_id, *found]
'''
_CHAT = '''

def written(tokenizer, messages: list[dict[str, str]], **how) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, **TEMPLATE_ARGUMENTS, **how)


def encoded(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=False)["input_ids"]


def prompt_ids(tokenizer, prompt: str) -> list[int]:
    return encoded(tokenizer, written(tokenizer, turns(prompt), add_generation_prompt=True))


def observation_ids(tokenizer, text: str, ended: bool) -> list[int]:
    """The tokens that the chat template writes between two turns of the assistant, observation included. They contain
    the end of the turn unless the turn has `ended` by itself."""
    said = [{{"role": "user", "content": "probe"}}, {{"role": "assistant", "content": "probe"}}]
    before = written(tokenizer, said)
    whole = written(tokenizer, [*said, {{"role": {role!r}, "content": text}}], add_generation_prompt=True)
    ids = encoded(tokenizer, whole[before.rindex("probe") + len("probe"):])
    return ids[1:] if ended and ids[0] == tokenizer.eos_token_id else ids
'''


def code(plan: Plan) -> tuple[str, str]:
    """The code beside that of the environment, and the trainer's arguments for it. Raises LabError if TRL has no
    trainer that plays the run's episodes."""
    if environments.has_tools(plan):
        if not plan.chat:
            raise LabError("TRL calls the tools of this environment through a chat template, and the model of this run "
                           "has none: repeat the run with a model that has a chat template.")
        return "", "environment_factory=Own, "
    return encoding(plan) + _ROLLOUT, "reward_funcs=reward, rollout_func=rollout, "


def encoding(plan: Plan) -> str:
    """The code that tokenizes the first observation and the later ones."""
    return _CHAT.format(role=str(plan["observation_role"])) if plan.chat else _PLAIN


_NO_LIMIT = missing("GRPOTrainer has no such limit where it calls the tools of a class")


def _by_tools(tools: Rule) -> Rule:
    """The rule `tools` if TRL's own loop plays the episodes; otherwise the script's loop handles the knob."""
    return lambda plan, value: (tools if environments.has_tools(plan) else IN_THE_CODE)(plan, value)


RULES: Rules = {  # the first turn calls no tool yet
    "max_turns": _by_tools(given(lambda plan, value: {"max_tool_calling_iterations": value - 1})),
    "turn_tokens": _by_tools(_NO_LIMIT), "observation_length": _by_tools(_NO_LIMIT),
    "observation_role": _by_tools(built_in("results of tools are messages of the role tool")),
    "rollouts": choice({"engine": ({}, "")}, "the loop below samples by transformers: have it call your vLLM server")}
