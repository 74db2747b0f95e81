"""The built-in language models with their sizes, and small models of the Hugging Face hub to begin with."""

from __future__ import annotations

from dataclasses import dataclass

from labcore.catalog.amounts import size


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


# ---------------------------------------------------------------- models of the hub

@dataclass(frozen=True)
class HubModel:
    """A model of the hub. `megabytes` is about what is downloaded, 10^6 bytes each: two bytes for each weight of its
    file, and the files of its tokenizer; `gated`: its terms must be accepted on its page first."""

    key: str
    parameters: str
    megabytes: int
    licence: str
    good_for: str
    gated: bool = False

    @property
    def size(self) -> str:
        """The size of the download, with its unit."""
        return size(1e6 * self.megabytes)


HUB_MODELS: dict[str, HubModel] = {
    model.key: model
    for model in (
        HubModel("HuggingFaceTB/SmolLM2-135M-Instruct", "135 M", 270, "Apache 2.0",
                 "a first try, also without a GPU"),
        HubModel("google/gemma-3-270m-it", "270 M", 575, "Gemma terms of use",
                 "following instructions", gated=True),
        HubModel("HuggingFaceTB/SmolLM2-360M-Instruct", "360 M", 730, "Apache 2.0",
                 "short answers, also without a GPU"),
        HubModel("Qwen/Qwen2.5-0.5B-Instruct", "0.5 B", 1000, "Apache 2.0",
                 "arithmetic and school maths"),
        HubModel("Qwen/Qwen3-0.6B", "0.6 B", 1520, "Apache 2.0", "reasoning: it thinks before it answers"),
        HubModel("meta-llama/Llama-3.2-1B-Instruct", "1.2 B", 2480, "Llama 3.2 community licence",
                 "the most able of these, on a GPU or with LoRA", gated=True),
    )
}
