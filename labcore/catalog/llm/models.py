"""The built-in language models: their sizes. Anything else is a Hugging Face folder or hub id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelSize:
    """A small Llama on a character tokenizer; `context` is the longest prompt + completion in tokens."""

    key: str
    label: str
    hidden: int
    layers: int
    heads: int
    intermediate: int
    parameters: str
    context: int = 2048


MODELS: dict[str, ModelSize] = {
    size.key: size
    for size in (
        ModelSize("tiny", "tiny (0.1 M parameters)", hidden=64, layers=2, heads=4, intermediate=176,
                  parameters="0.1 M"),
        ModelSize("small", "small (0.8 M parameters)", hidden=128, layers=4, heads=4, intermediate=352,
                  parameters="0.8 M"),
        ModelSize("medium", "medium (4.9 M parameters)", hidden=256, layers=6, heads=4, intermediate=704,
                  parameters="4.9 M"),
    )
}
