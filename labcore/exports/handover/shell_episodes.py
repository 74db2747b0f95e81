"""The file task.py in the shell scripts for verl, OpenRLHF and ms-swift: a class that plays episodes in the tool.

verl and OpenRLHF pass their tokenizer and sampler to the class, so one loop plays the episodes of both, with the same
tokens and mask as the lab. ms-swift has its own loop, which asks an environment for texts and formats them with a
template.

Sources: verl 0.9.1, `AgentLoopBase` and `AgentLoopOutput`; OpenRLHF 0.11.2, `AgentExecutorBase`; ms-swift 4.6.0, `Env`
and `GYMScheduler`.
"""

from __future__ import annotations

from labcore.exports.handover import environments
from labcore.exports.handover.plan import Plan, Rules
from labcore.exports.handover.rules import given, missing, to
from labcore.exports.handover.shared_rules import BY_VLLM
from labcore.exports.handover.trl_episodes import encoding

_PLAYED = '''

class Played(NamedTuple):
    """An episode: the tokens `begun` of the prompt, then `ids`; `own` is 1 for the model's tokens. `cut`: it reached
    the limit of tokens."""

    begun: list[int]
    ids: list[int]
    own: list[int]
    logprobs: list[float]
    earned: float
    turns: int
    cut: bool


async def episode(tokenizer, row: str, limit: int, write) -> Played:
    """Play the episode of a row, of at most `limit` tokens. `write(ids, most)` samples a turn and returns its tokens
    and their log-probabilities (or none). Tokens of observations are masked, so no tool trains on them."""
    game, ids, own, logprobs, earned = Game(), [], [], [], 0.0
    first = await asyncio.to_thread(game.reset, json.loads(row))
    begun = prompt_ids(tokenizer, first[:OBSERVATION_LENGTH])
    for turn in range(1, MAX_TURNS + 1):
        tokens, theirs = await write(begun + ids, min(TURN_TOKENS, limit - len(ids)))
        ended = tokens[-1:] == [tokenizer.eos_token_id]
        ids, own, logprobs = ids + tokens, own + [1] * len(tokens), logprobs + theirs
        said, reward, done = await asyncio.to_thread(game.step, tokenizer.decode(tokens, skip_special_tokens=True))
        earned += reward
        seen = observation_ids(tokenizer, said[:OBSERVATION_LENGTH], ended)
        cut = not done and len(ids) + len(seen) >= limit
        if done or cut or turn == MAX_TURNS:
            break
        ids, own, logprobs = ids + seen, own + [0] * len(seen), logprobs + [0.0] * len(seen) * bool(theirs)
    return Played(begun, ids, own, logprobs, float(earned), turn, cut)
'''
_VERL = '''

if __name__ == "__main__":
    import pandas

    def table(count: int, seed: int) -> pandas.DataFrame:
        return pandas.DataFrame([{{
            "data_source": "task", "reward_model": {{"style": "rule", "ground_truth": ""}},
            "prompt": [{{"role": "user", "content": Game().reset(json.loads(row["prompt"]))}}],
            "extra_info": {{"row": row["prompt"]}}}} for row in problems(count, seed)])

    table({rows}, {seed}).to_parquet("train.parquet")
    table(256, {seed} + 1).to_parquet("test.parquet")
else:  # imported by verl
    from uuid import uuid4

    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

    class Episodes(AgentLoopBase):
        """verl calls `run` for each completion: it plays an episode, whose return is the score."""

        async def run(self, sampling_params: dict[str, Any], **columns) -> AgentLoopOutput:
            request = uuid4().hex  # one id for all turns, so that one server has their prefix in its cache

            async def write(ids: list[int], most: int) -> tuple[list[int], list[float]]:
                found = await self.server_manager.generate(
                    request_id=request, prompt_ids=ids, sampling_params=sampling_params | {{"max_tokens": most}})
                return list(found.token_ids), list(found.log_probs or [])

            played = await episode(self.tokenizer, columns["extra_info"]["row"], self.rollout_config.response_length,
                                   write)
            return AgentLoopOutput(
                prompt_ids=played.begun, response_ids=played.ids, response_mask=played.own,
                response_logprobs=played.logprobs or None, reward_score=played.earned, num_turns=2 * played.turns,
                metrics={{}}, extra_fields={{"turn_scores": [], "tool_rewards": []}})
'''
_OPENRLHF = '''

if __name__ == "__main__":
    with open("train.jsonl", "w", encoding="utf-8") as file:
        for row in problems({rows}, {seed}):
            first = Game().reset(json.loads(row["prompt"]))
            file.write(json.dumps({{"prompt": first, "answer": row["prompt"]}}, ensure_ascii=False) + "\\n")
else:  # imported by OpenRLHF
    from copy import deepcopy

    from openrlhf.utils.agent import AgentExecutorBase

    class AgentExecutor(AgentExecutorBase):
        """OpenRLHF calls `execute` for each completion; `label` is the row of the episode."""

        async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None):
            async def write(ids: list[int], most: int) -> tuple[list[int], list[float]]:
                params = deepcopy(sampling_params)
                params.max_tokens = most
                found = (await llm_engine.generate(ids, params)).outputs[0]
                tokens = list(found.token_ids)
                return tokens, [each[token].logprob for token, each in zip(tokens, found.logprobs or [])]

            played = await episode(hf_tokenizer, label, MAX_NEW_TOKENS, write)
            start, places = len(played.begun), [at for at, own in enumerate(played.own) if own]
            ranges = [(start + at, start + at + 1) for at in places]
            logprobs = [0.0] * start + played.logprobs if played.logprobs else None
            return {{"prompt": prompt, "label": label, "images": images, "mm_train_inputs": None,
                    "reward": played.earned, "scores": played.earned, "observation_tokens": played.begun + played.ids,
                    "action_ranges": ranges, "rollout_log_probs": logprobs, "truncated": played.cut,
                    "extra_logs": {{"turns": played.turns}}}}
'''
_SWIFT = '''

if __name__ == "__main__":
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    Path("texts.json").write_text(json.dumps(
        [*between(tokenizer), tokenizer.eos_token, tokenizer.all_special_tokens]), "utf-8")
    with open("train.jsonl", "w", encoding="utf-8") as file:
        for row in problems({rows}, {seed}):
            first = Game().reset(json.loads(row["prompt"]))[:OBSERVATION_LENGTH]
            row = {{"messages": [{{"role": "user", "content": {prompt}}}], "row": row["prompt"]}}
            file.write(json.dumps(row, ensure_ascii=False) + "\\n")
else:  # imported by swift
    from swift.model import ModelLoader, ModelMeta, register_model
    from swift.rollout import Env, envs
    from swift.template import TemplateMeta, register_template

    BEFORE, AFTER, END, SPECIAL = json.loads(Path("texts.json").read_text("utf-8"))
    register_template(TemplateMeta("as_written", [], ["{{{{QUERY}}}}"], [END], auto_add_bos={bos}))
    register_model(ModelMeta("any_model", [], ModelLoader, template="as_written"))

    class Episodes(Env):
        """ms-swift makes one `Episodes` for each completion and adds up the rewards of its steps."""

        async def reset(self, config) -> tuple[str, dict[str, Any], str]:
            self.game = Game()
            await asyncio.to_thread(self.game.reset, json.loads(config.data_dict["row"]))
            return config.messages[-1]["content"], {{}}, ""

        async def step(self, action: list[dict[str, str]]) -> tuple[str, float, bool, dict[str, Any]]:
            text = action[-1]["content"]
            for token in SPECIAL:
                text = text.removesuffix(token)
            said, reward, done = await asyncio.to_thread(self.game.step, text)
            return BEFORE + said[:OBSERVATION_LENGTH] + AFTER, float(reward), bool(done), {{}}

        async def close(self) -> None:
            pass

    envs["episodes"] = Episodes
'''
_BETWEEN = {False: '''

def between(tokenizer) -> tuple[str, str]:
    """The texts before and after an observation: it is on a line of its own."""
    return "\\n", "\\n"
''', True: '''

def between(tokenizer) -> tuple[str, str]:
    """The texts that the chat template writes before and after an observation that follows the assistant's turn."""
    said = [{{"role": "user", "content": "probe"}}, {{"role": "assistant", "content": "probe"}}]
    before = written(tokenizer, said)
    whole = written(tokenizer, [*said, {{"role": {role!r}, "content": "observed"}}], add_generation_prompt=True)
    start, _, end = whole[before.rindex("probe") + len("probe"):].removeprefix(tokenizer.eos_token).partition(
        "observed")
    return start, end
'''}


def plays(plan: Plan) -> bool:
    """True if the script can play the run's episodes; it cannot if the model calls the methods of a class as tools."""
    return plan.spec.task_row.has_turns and not environments.has_tools(plan)


def code_verl(plan: Plan) -> str:
    """The agent loop, and the rows of the data set."""
    return encoding(plan) + _PLAYED + _VERL.format(rows=plan.rows, seed=plan.spec.seed)


def code_openrlhf(plan: Plan) -> str:
    """The agent executor, and the rows of the data set."""
    limit = f"\n\nMAX_NEW_TOKENS = {plan['max_new_tokens']}  # of an episode, observations included\n"
    return limit + encoding(plan) + _PLAYED + _OPENRLHF.format(rows=plan.rows, seed=plan.spec.seed)


def code_swift(plan: Plan) -> str:
    """The environment, its template, and the rows of the data set."""
    prompt = "written(tokenizer, turns(first), add_generation_prompt=True)" if plan.chat else "first"
    return (encoding(plan) if plan.chat else "") + _BETWEEN[plan.chat].format(role=str(plan["observation_role"])) + (
        _SWIFT.format(rows=plan.rows, seed=plan.spec.seed, prompt=prompt, bos=not plan.chat))


# The limit of tokens in ms-swift's loop counts for each turn.
SWIFT_RULES: Rules = {
    "max_turns": to("max_turns"), "turn_tokens": to("max_completion_length"),
    "max_new_tokens": missing("ms-swift limits the tokens of each turn, and an episode only by the model's context"),
    "rollouts": given(lambda plan, value: {"use_vllm": True, "vllm_mode": "colocate"},
                      lambda plan, value: "" if value == "vllm" else BY_VLLM)}
SWIFT_SETTINGS = {"multi_turn_scheduler": "gym_scheduler", "gym_env": "episodes"}
VERL_AGENT = "- name: episodes\n  _target_: task.Episodes"
