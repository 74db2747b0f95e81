"""Small models of the Hugging Face hub that are good to begin with. Any other causal language model there works too."""

from __future__ import annotations

from dataclasses import dataclass


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
        return f"{self.megabytes:,} MB" if self.megabytes < 1000 else f"{self.megabytes / 1000:.1f} GB"


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
