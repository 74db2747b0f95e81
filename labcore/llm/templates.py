"""The chat template of a tokenizer, and the tokens with which a completion ends."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

CHATML_END = "<|im_end|>"
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


class Ending(Protocol):
    """All that is asked of a model: its generation_config, which may name more end tokens."""

    @property
    def generation_config(self) -> Any: ...


def ends_of(tokenizer: PreTrainedTokenizerBase, model: Ending) -> tuple[int, ...]:
    """The ids that end a completion: the tokenizer's end token, and the end tokens in the model's generation_config."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    more = [] if named is None else [named] if isinstance(named, int) else named
    return tuple(dict.fromkeys((int(tokenizer.eos_token_id), *more)))


def own_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The tokenizer's chat template; of several the one without tools."""
    found = getattr(tokenizer, "chat_template", None)
    return (found.get("default") or next(iter(found.values()))) if isinstance(found, dict) else found


def chatml(tokenizer: PreTrainedTokenizerBase) -> str:
    """ChatML; where its end is no token, that of the tokenizer takes its place, so that answers can end."""
    return CHATML if CHATML_END in tokenizer.get_vocab() else CHATML.replace(CHATML_END, str(tokenizer.eos_token))
