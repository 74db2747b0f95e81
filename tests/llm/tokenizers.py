"""Tokenizers that have what real ones have, built on the spot: a BOS that the post-processor adds, chat templates of
several kinds, SentencePiece's space in front, several end tokens, an end that pads."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

WORDS = ["What", "is", "the", "sum", "of", "2", "3", "and", "?", "5", "6", "system", "user", "assistant", "model", "Be",
         "brief", "Hello", "\n", ".", "<think>", "</think>", "Yes", "No"]
SPECIAL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>"]
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
         "{% endif %}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role'])"
         " + '\n' + m['content'] + '<end_of_turn>\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}")
THINKING = CHATML.removesuffix("{% endif %}") + ("{% if enable_thinking is defined and not enable_thinking %}"
                                                 "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}")


def byte_level(template: str | None = CHATML, bos: bool = False, end: str = "<|im_end|>",
               pad: str = "<pad>") -> PreTrainedTokenizerFast:
    """Every byte is a token, as GPT-2, Qwen and SmolLM begin; with `bos` each text begins with <s>, as Llama's."""
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    if bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _wrapped(backend, template, end, pad)


def sentencepiece(template: str | None = None) -> PreTrainedTokenizerFast:
    """A space before every text, as Llama 2 and Mistral have it, and a BOS."""
    pieces = ["<unk>", *SPECIAL, "▁", *(f"▁{word}" for word in WORDS), *map(chr, range(33, 127))]
    backend = Tokenizer(models.Unigram([(piece, (place - len(pieces)) / 1e3) for place, piece in enumerate(pieces)],
                                       unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    backend.add_special_tokens(SPECIAL)
    begin = ("<s>", pieces.index("<s>"))
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[begin])
    return _wrapped(backend, template, "</s>", "<pad>")


def _wrapped(backend: Tokenizer, template: str | None, end: str, pad: str) -> PreTrainedTokenizerFast:
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token=end, pad_token=pad,
                                   padding_side="left", clean_up_tokenization_spaces=False)
    made.chat_template = template
    return made


class Model:
    """All that is asked of a model: its generation_config."""

    def __init__(self, eos: int | list[int] | None = None):
        self.generation_config = GenerationConfig(eos_token_id=eos)
