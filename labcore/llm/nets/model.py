"""Language models: build a small Llama, load any causal LM in the Hugging Face format, save either.

Left out on purpose: weights in pickle files and models that bring code of their own; both could run anything.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from labcore.catalog.llm.models import ModelSize
from labcore.errors import LabError, first_line
from labcore.llm.nets import lora
from labcore.llm.nets.folder import check_folder, find
from labcore.llm.nets.tokenizer import check_end, load_tokenizer, with_padding
from labcore.runs.files.adapters import is_adapter
from labcore.runs.spec.activity import report

# What Hugging Face has to say about a folder reaches the user as our sentence, not as a warning on the console.
logging.set_verbosity_error()
logging.disable_progress_bar()


def build(size: ModelSize, tokenizer: PreTrainedTokenizerBase, seed: int, dtype: torch.dtype = torch.float32,
          ) -> LlamaForCausalLM:
    """A Llama of `size` with random weights that depend on `seed` only; on the cpu. Global chance is left alone."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=size.hidden, intermediate_size=size.intermediate,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, max_position_embeddings=size.context,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True)
    # Not model.to(dtype): that would round the rotary frequencies too, which from_pretrained keeps in float32.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype
    return model


def load(name_or_path: str | Path, dtype: torch.dtype = torch.float32,
         ) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of a Hugging Face folder or hub id, on the cpu; of an adapter its base with it merged.

    Raises:
        LabError: there is no such model, or it cannot be used; the message says what to do.
    """
    folder = find(name_or_path)
    if is_adapter(folder):
        return lora.load_adapted(folder, lambda base: load(base, dtype))
    check_folder(folder)
    report("loading the model")
    tokenizer = load_tokenizer(folder)
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True,
            output_loading_info=True)
    # A configuration can break a model's own code in any way.
    except Exception as error:
        # On the cpu torch says "allocate" where memory is out, which is not the folder's fault.
        if isinstance(error, MemoryError) or "allocate" in str(error):
            raise
        raise LabError(f"The model in {folder} cannot be loaded ({first_line(error)[:300]}): check that its files are "
                       "whole and belong together.") from error
    if info["missing_keys"]:
        raise LabError(f"The weights in {folder} lack {len(info['missing_keys'])} of the model's tensors, such as "
                       f"{min(info['missing_keys'])}: use a folder saved by a causal language model.")
    rows, largest = model.get_input_embeddings().weight.shape[0], max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise LabError(f"The model in {folder} knows {rows:,} tokens, but its tokenizer has ids up to {largest:,}: "
                       "use the tokenizer that the model was trained with.")
    check_end(tokenizer, folder)
    with_padding(tokenizer, rows)
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    # Sampling settings without do_sample, as many folders carry them, are refused when the model is saved again.
    model.generation_config.do_sample = True
    return model.eval(), tokenizer


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a folder that AutoModelForCausalLM and AutoTokenizer load with no code of ours."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def export_merged(policy: Path, folder: Path) -> None:
    """Write the adapter in `policy` and its base as one model, which AutoModelForCausalLM loads without `peft`."""
    save(*load(policy), folder)
