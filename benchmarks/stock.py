"""Models of stock classes with random weights for `grpo_step --models`, and the floor that memory sets to decoding.

Nothing is fetched: the tokenizer is a byte-level BPE trained on the prompts themselves, with tokens that no text has up
to the model's vocabulary. So prompts have about the length that they have for a model of that name, and every id that
random weights sample has a text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

LLAMA, QWEN2 = "llama", "qwen2"
# Settings of transformers' configurations; the names say how many parameters.
MODELS: dict[str, dict[str, Any]] = {
    "llama-1m": {"model_type": LLAMA, "vocab_size": 1024, "hidden_size": 128, "intermediate_size": 352,
                 "num_hidden_layers": 4, "num_attention_heads": 4, "tie_word_embeddings": True},
    "llama-60m": {"model_type": LLAMA, "vocab_size": 32_768, "hidden_size": 640, "intermediate_size": 1728,
                  "num_hidden_layers": 8, "num_attention_heads": 10, "tie_word_embeddings": True},
    "llama-342m": {"model_type": LLAMA, "vocab_size": 32_768, "hidden_size": 1024, "intermediate_size": 2816,
                   "num_hidden_layers": 24, "num_attention_heads": 16, "tie_word_embeddings": True},
    "qwen2-494m": {"model_type": QWEN2, "vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864,
                   "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
                   "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "tie_word_embeddings": True},
}
# Of the lab in bf16 on an H100 or H200: milliseconds of a token of all rows and of an update, GiB at the peak.
TOKEN, UPDATE, PEAK = "decoding, ms a token", "update, ms", "peak, GiB"
GOALS = {"llama-60m": {TOKEN: 0.8, UPDATE: 60.0}, "llama-342m": {TOKEN: 2.5, UPDATE: 300.0, PEAK: 12.0}}
CONTEXT, MERGED = 4096, 8192  # tokens of a prompt and its completion; tokens that are learnt from the prompts
# Prompts of a step, completions of each, new tokens of each.
BATCHES = {"llama-1m": (4, 4, 16), "llama-60m": (16, 8, 128), "llama-342m": (16, 8, 256), "qwen2-494m": (8, 8, 256)}
COPIED, COPIES = {"cuda": 2**30, "mps": 2**28, "cpu": 2**28}, 10  # bytes, times


@dataclass(frozen=True)
class Floor:
    """What decoding takes at least where memory is all that counts: each token reads the weights, and the keys and
    values of all rows. An estimate: from the mean length of the prompts, and with every row going on to the limit.

    `weights` and `cached` (of one token) are numbers, not bytes; `width` are tokens of a prompt, `bandwidth` bytes/s.
    """

    weights: int
    cached: int
    width: float
    bandwidth: float

    def token_seconds(self, rows: int, new_tokens: int, dtype: str) -> float:
        """Seconds for a token of every row, half of the completions being there."""
        read = self.weights + rows * (self.width + new_tokens / 2) * self.cached
        return read * {"bf16": 2, "fp32": 4}[dtype] / self.bandwidth


def measured(phases: Mapping[str, float], peak: float, new_tokens: int) -> dict[str, float]:
    """The quantities that have goals, from the seconds of the phases and the peak, MiB. Without phases the peak."""
    found = {PEAK: peak / 1024}
    if phases:
        found[TOKEN] = 1e3 * phases["decoding"] / max(1, new_tokens - 1)  # the first one is the prompts' own
        found[UPDATE] = 1e3 * (phases["gradients"] + phases["optimizer"])
    return found


def problems(file: str, knobs: Mapping[str, Any] = MappingProxyType({"verifier": "numeric"})) -> Any:
    """The task of the user's own prompts with these knobs."""
    from labcore.catalog.kinds import task
    from labcore.runs.spec.run_spec import make
    from labcore.tasks.task import make_task

    filled = make(algorithm_key="grpo", task_key="prompts", data=file, knobs=knobs).knobs
    return make_task(task("prompts"), filled, file)


def save_weights(model: str, file: str, folder: Path) -> None:
    """Write the Hugging Face folder that every contender starts from."""
    import torch

    from labcore.llm.nets.model import save

    tokenizer = tokenizer_of(MODELS[model]["vocab_size"], file)
    torch.manual_seed(0)
    save(_network(model, tokenizer), tokenizer, folder)


def floor(model: str, file: str, device: str) -> Floor:
    """Count the model on no memory, and measure the device."""
    import torch

    tokenizer = tokenizer_of(MODELS[model]["vocab_size"], file)
    with torch.device("meta"):
        network = _network(model, tokenizer)
    config = network.config
    head_size = config.hidden_size // config.num_attention_heads
    width = mean(map(len, tokenizer([row.prompt for row in problems(file).rows])["input_ids"]))
    return Floor(sum(weight.numel() for weight in network.parameters()),
                 2 * config.num_hidden_layers * config.num_key_value_heads * head_size, width, bandwidth(device))


def bandwidth(device: str) -> float:
    """Bytes a second, read and written, of the fastest of some large copies on the device."""
    import torch

    source = torch.zeros(COPIED[device], dtype=torch.uint8, device=device)
    copy = torch.empty_like(source)

    def seconds() -> float:
        begun = time.perf_counter()
        copy.copy_(source)
        if device != "cpu":
            getattr(torch, device).synchronize()
        return time.perf_counter() - begun
    return 2 * COPIED[device] / min(seconds() for _ in range(COPIES))


def tokenizer_of(vocabulary: int, file: str) -> Any:
    """See the module. Pad and end are ids 0 and 1."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from labcore.llm.nets.tokenizer import EOS, PAD

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.train_from_iterator([row.prompt for row in problems(file).rows], trainers.BpeTrainer(
        vocab_size=min(vocabulary, MERGED), special_tokens=[PAD, EOS], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    learnt = json.loads(backend.to_str())["model"]
    unused = {f"<{number}>": number for number in range(len(learnt["vocab"]), vocabulary)}
    backend.model = models.BPE(learnt["vocab"] | unused, [tuple(pair) for pair in learnt["merges"]])
    # No byte is unknown. But where no token is named for that, a tokenizer's class such as Qwen2's adds one, with an id
    # beyond the model's vocabulary.
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=PAD, eos_token=EOS, unk_token=EOS,
                                   padding_side="left", model_input_names=["input_ids", "attention_mask"])


def _network(model: str, tokenizer: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {**MODELS[model], "max_position_embeddings": CONTEXT, "pad_token_id": tokenizer.pad_token_id,
                "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
    network.generation_config.pad_token_id = tokenizer.pad_token_id
    network.generation_config.eos_token_id = tokenizer.eos_token_id
    network.generation_config.do_sample = True
    return network
