"""A tiny instruct model as a Hugging Face folder, built on the spot: a chat template, two end tokens, and an embedding
with more rows than its tokenizer has tokens. And files of conversations to learn from."""

import json
from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from tests.llm.tokenizers import byte_level

PADDED = 7  # rows of the embedding that no token has


def chat_folder(folder: Path, tokenizer: PreTrainedTokenizerBase | None = None, seed: int = 0) -> Path:
    """The model in `folder`; it ends its answers with the tokenizer's end or with </s>."""
    tokenizer = tokenizer or byte_level()
    ends = [int(tokenizer.eos_token_id), int(tokenizer.convert_tokens_to_ids("</s>"))]
    config = LlamaConfig(vocab_size=len(tokenizer) + PADDED, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
                         tie_word_embeddings=True, initializer_range=0.3, bos_token_id=None, eos_token_id=ends,
                         pad_token_id=tokenizer.pad_token_id)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def turns(*said: str, system: str = "") -> list[dict[str, str]]:
    """A conversation: the user and the assistant in turn, behind a system turn where there is one."""
    first = [{"role": "system", "content": system}] if system else []
    return first + [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(said)]


TALKS = [turns("2 and 3?", "5", "and 6?", "11"), turns("a or b?", "b", "or c?", "c", system="One word."),
         turns("Hello", "Yes"), turns("No?", "Yes", "Yes?", "No")]
PAIRS = [{"prompt": talk[:-1], "chosen": [{"role": "assistant", "content": talk[-1]["content"]}],
          "rejected": [{"role": "assistant", "content": "What?"}]} for talk in TALKS]
SINGLES = [{"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
           for pair in PAIRS for side in ("chosen", "rejected")]


def written(file: Path, rows: list) -> str:
    """The rows as a file of JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)
