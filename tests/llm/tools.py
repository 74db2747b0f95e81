"""Small random models of several kinds, ragged prompts, a task that gives rewards, and sessions on it."""

import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from inspect import signature
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MambaConfig,
    OpenAIGPTConfig,
    Qwen2Config,
    Qwen3Config,
)

from labcore.catalog import choices
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.models import MODELS, ModelSize
from labcore.catalog.metrics import METRICS
from labcore.llm.batch import Prompts
from labcore.llm.probes import view
from labcore.llm.rollout import Rollout
from labcore.llm.session import LlmSession
from labcore.maths.call import member
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.tasks.task import Problem, Score

VOCABULARY = 11
LENGTHS = (3, 1, 6)  # of the prompts: two of them need padding
# Weights far from zero: with the usual 0.02 all logits are nearly equal, and a mistake would drown in rounding.
WIDE = {"initializer_range": 0.3, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
SIZE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, **WIDE}
HEADS = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, **WIDE}

CONFIGS = {
    "llama": lambda vocabulary: LlamaConfig(vocab_size=vocabulary, num_key_value_heads=1, **SIZE),
    "gpt2": lambda vocabulary: GPT2Config(vocab_size=vocabulary, **HEADS),
    "qwen2": lambda vocabulary: Qwen2Config(vocab_size=vocabulary, num_key_value_heads=1, **SIZE),
    "qwen3": lambda vocabulary: Qwen3Config(vocab_size=vocabulary, num_key_value_heads=1, head_dim=8, **SIZE),
    "gpt_neox": lambda vocabulary: GPTNeoXConfig(vocab_size=vocabulary, **SIZE),
    "mamba": lambda vocabulary: MambaConfig(vocab_size=vocabulary, hidden_size=16, state_size=4, num_hidden_layers=2,
                                            **WIDE),
    "openai-gpt": lambda vocabulary: OpenAIGPTConfig(vocab_size=vocabulary, **HEADS),
}
CACHED, CACHELESS = ("llama", "gpt2", "qwen2", "gpt_neox"), ("mamba", "openai-gpt")


def model(kind: str = "llama", vocabulary: int = VOCABULARY, seed: int = 0, dtype: torch.dtype = torch.float32,
          layers: int = 2):
    config = CONFIGS[kind](vocabulary)
    config.num_hidden_layers = layers
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).to(dtype).eval()


def prompts(lengths=LENGTHS, vocabulary: int = VOCABULARY, seed: int = 0) -> Prompts:
    """Left-padded prompts with tokens from 2 on, and noise under the padding: what is masked must not be read."""
    width = max(lengths)
    ids = torch.randint(2, vocabulary, (len(lengths), width), generator=torch.Generator().manual_seed(seed))
    return Prompts(ids, torch.arange(width) >= width - torch.tensor(lengths)[:, None])


def completion_ids(rows: int, length: int, vocabulary: int = VOCABULARY, seed: int = 1) -> Tensor:
    return torch.randint(0, vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


def alone(network, asked: Prompts, ids: Tensor) -> Tensor:
    """The output that predicts each completion token, one row at a time and with no padding at all."""
    group_size, outputs = len(ids) // len(asked), []
    for row, completion in enumerate(ids):
        prompt = asked.ids[row // group_size][asked.mask[row // group_size]]
        whole = torch.cat([prompt, completion])[None]
        outputs.append(network(input_ids=whole).logits[0, len(prompt) - 1: -1])
    return torch.stack(outputs)


def every_completion(vocabulary: int, length: int, eos: int) -> tuple[Tensor, Tensor]:
    """All completions of up to `length` tokens, those that end earlier padded with 0: ids and mask (N, length)."""
    rows = []
    for count in range(1, length + 1):
        for body in itertools.product([token for token in range(vocabulary) if token != eos], repeat=count - 1):
            lasts = range(vocabulary) if count == length else [eos]
            rows += [(*body, last) for last in lasts]
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    return ids, torch.tensor([[True] * len(row) + [False] * (length - len(row)) for row in rows])


# Numbers that are logged only with shaping, with noise, with a proxy, or where a surrogate has a lower bound.
SOMETIMES = {"reward/shaped", "reward/verifier", "reward/gold", "reward/spread", "reward/steps", "clip_frac/low",
             "teacher/forward_kl",
             *(key for key, metric in METRICS.items() if metric.kind)}


class Letters:
    """A task on which even a random model earns something: the share of letters before "n", those of "<unk>" too."""

    size, characters = None, "abc="
    answer = "abc"

    def problems(self, count, rng):
        return [Problem("abc="[: 1 + rng.integers(4)], self.answer, line=7) for _ in range(count)]

    def score(self, problem, completion):
        share = sum(letter < "n" for letter in completion) / 8
        return Score(share, share == 1)

    def can_become_right(self, problem, beginning):
        return all(letter < "n" for letter in beginning)


TINIER = ModelSize("tiny", "tinier", hidden=32, layers=1, heads=2, intermediate=48, parameters="0.01 M", context=64)
SMALL = {"online": {"prompts_per_step": 4, "group_size": 4, "updates_per_batch": 1, "mini_batches": 1},
         "prm": {"prompts_per_step": 4, "group_size": 4, "eval_answers": 8},
         "sft": {"sequences_per_step": 8},
         "reward_model": {"pairs_per_step": 4, "pair_prompts": 8, "group_size": 4, "eval_pairs": 8},
         "preference": {"pairs_per_step": 4, "pair_prompts": 8, "group_size": 4}}


def first_of_each(rows: Iterable[Algorithm], sort: Callable[[Algorithm], Any]) -> list[str]:
    """The key of the first row of each sort."""
    return [row.key for row in {sort(row): row for row in reversed([*rows])}.values()]


def unlike(rows: Iterable[Algorithm]) -> list[str]:
    """The first row of each sort that holds another state: rows apart by pure functions are saved and resumed alike."""
    def state(row: Algorithm) -> tuple:
        given = {knob.key: knob.default for knob in row.knobs}
        if "advantage" not in given:
            return row.loop, row.models, given.get("pairs")
        advantage = choices.ADVANTAGE[given["advantage"]]
        past = "past_rewards" in signature(member(choices.ADVANTAGE, advantage.key)).parameters
        refills = choices.SELECTION[given["selection"]].refills
        return row.loop, row.models, advantage.critic, advantage.rollouts, past, refills
    return first_of_each(rows, state)


def with_each(*knobs: str) -> list[str]:
    """Online rows: those of `unlike`, and for each knob here the first row with each of its defaults."""
    rows = [row for row in ALGORITHMS.values() if row.loop == "online"]
    by_knob = [first_of_each(rows, lambda row, key=key: {each.key: each.default for each in row.knobs}.get(key))
               for key in ("selection", "teacher_context", "sft_weight", *knobs)]
    return list(dict.fromkeys([*unlike(rows), *itertools.chain(*by_knob)]))


def one_of_each_sort(keys: Iterable[str]) -> list[Any]:
    """Rows to train for a claim of what is learnt: the first of each sort now, all others by `make test-long`."""
    keys = [*keys]
    now = unlike(ALGORITHMS[key] for key in keys)
    return [key if key in now else pytest.param(key, marks=pytest.mark.long) for key in keys]


def spec(algorithm: str, task: str = "sort", *, steps: int = 2, seed: int = 0, data=None, mix: str = "",
         **knobs):
    """A run of `algorithm` so small that a step takes milliseconds."""
    row = make(algorithm_key=algorithm, task_key=task, data=data).row
    known = {knob.key for knob in row.knobs}
    small = {key: value for key, value in SMALL[row.loop].items() if key in known}
    return make(algorithm_key=algorithm, task_key=task, steps=steps, seed=seed, device="cpu", data=data, mix=mix,
                knobs={**small, "max_new_tokens": 6, **knobs})


def session(algorithm: str, letters: bool = True, resume=None, **given) -> LlmSession:
    """A session on random weights, on the task that gives rewards (or, without `letters`, on its own)."""
    with patch.dict(MODELS, {"tiny": TINIER}):
        started = LlmSession.start(spec(algorithm, **given), resume=resume)
    if letters:
        started.task = Letters()
    return started


def quietly() -> AbstractContextManager:
    """Without the samples and lines of a run's steps, which take longer than a step so small."""
    return patch.multiple(view, samples_due=lambda step: False, line_due=lambda steps_done: False)


def records(started: LlmSession, pictures: bool = False) -> list[Record]:
    """A run to its end, with the samples and lines of its steps or without."""
    with nullcontext() if pictures else quietly():
        return [record for record in started.run() if record is not None]


def weights(network) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).clone()


def shake(network, seed: int = 0, by: float = 0.05) -> None:
    """Move every weight a little: an update after the first finds the policy off its old self and its reference."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator)


def ragged(rollout: Rollout, seed: int = 0) -> Rollout:
    """The rollout with completions of many lengths and rewards that all differ."""
    rows, width = rollout.ids.shape
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    mask = torch.arange(width) < lengths
    values = None if rollout.old_values is None else torch.randn(rows, width, generator=generator) * mask
    return replace(rollout, completion_mask=mask, shaped=torch.randn(rows, generator=generator), old_values=values,
                   old_logprobs=rollout.old_logprobs * mask, ref_logprobs=rollout.ref_logprobs * mask)
