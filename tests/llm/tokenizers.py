"""Tokenizers that have what real ones have, built on the spot: a BOS that the post-processor adds, chat templates of
several kinds, SentencePiece's space in front, several end tokens, an end that pads."""

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
ENDED = "{% if m['role'] == 'assistant' %}{% generation %}CONTENT{% endgeneration %}{% else %}CONTENT{% endif %}"
CHATML_MARKED = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
                 + ENDED.replace("CONTENT", "{{ m['content'] + '<|im_end|>\n' }}") + "{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
GEMMA_MARKED = GEMMA.replace(" + '\n' + m['content'] + '<end_of_turn>\n' }}", " + '\n' }}" + ENDED.replace(
    "CONTENT", "{{ m['content'] + '<end_of_turn>\n' }}"))
LLAMA = ("{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n\n' + m['content'] | trim + '"
         "<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}")
LLAMA_MARKED = LLAMA.replace(" + '\n\n' + m['content'] | trim + '<|im_end|>' }}", " + '\n\n' }}" + ENDED.replace(
    "CONTENT", "{{ m['content'] | trim + '<|im_end|>' }}"))
# Qwen3's: only answers after the last question have a place for thoughts, those before lose it.
STRIPS = ("{% set seen = namespace(last=0) %}{% for m in messages %}{% if m['role'] == 'user' %}"
          "{% set seen.last = loop.index0 %}{% endif %}{% endfor %}"
          "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
          "{% if loop.index0 > seen.last and '</think>' not in m['content'] %}"
          "{{ '<think>\n\n</think>\n\n' }}{% endif %}"
          "{{ m['content'] if loop.index0 > seen.last else m['content'].split('</think>')[-1].lstrip('\n') }}"
          "{% else %}{{ m['content'] }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}"
          "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}")
# DeepSeek-R1's: the generation prompt begins a thought that no answer of the data has.
OPENS = CHATML.replace("assistant\n'", "assistant\n<think>\n'")
THINKING = CHATML.removesuffix("{% endif %}") + ("{% if enable_thinking is defined and not enable_thinking %}"
                                                 "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}")

# What TRL's trainer takes in their place to learn from answers alone: the same text, with marks.
TRAINING = {CHATML: CHATML_MARKED, GEMMA: GEMMA_MARKED, LLAMA: LLAMA_MARKED,
            OPENS: CHATML_MARKED.replace("assistant\n' }}{% endif", "assistant\n<think>\n' }}{% endif"),
            THINKING: THINKING.replace(CHATML.partition("{% endfor")[0], CHATML_MARKED.partition("{% endfor")[0])}


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


def merging() -> PreTrainedTokenizerFast:
    """Byte pairs that merge across the place where a prompt ends and its answer begins."""
    made = byte_level()
    vocabulary, pairs = made.get_vocab(), [("Ġ", "4"), ("Ġ", "5"), ("\u010a", "5"), ("a", "n")]
    for pair in pairs:
        vocabulary["".join(pair)] = len(vocabulary)
    made.backend_tokenizer.model = models.BPE(vocabulary, pairs)
    return made


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


# One of each kind of real tokenizer, by what is special about it.
TOKENIZERS = {
    "bos": lambda: byte_level(None, bos=True), "llama": lambda: byte_level(LLAMA, bos=True),
    "system": byte_level, "marked": lambda: byte_level(CHATML_MARKED), "no system": lambda: byte_level(GEMMA, bos=True),
    "strips thinking": lambda: byte_level(STRIPS), "opens thinking": lambda: byte_level(OPENS),
    "switches thinking": lambda: byte_level(THINKING), "dummy prefix": lambda: sentencepiece(),
    "dummy prefix, chat": lambda: sentencepiece(CHATML), "merges": lambda: merging(),
    "pad is end": lambda: byte_level(pad="<|im_end|>"), "other end": lambda: byte_level(end="</s>")}


class Model:
    """All that is asked of a model: its generation_config."""

    def __init__(self, eos: int | list[int] | None = None):
        self.generation_config = GenerationConfig(eos_token_id=eos)
