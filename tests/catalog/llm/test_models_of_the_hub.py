"""The sizes of the listed models of the hub, counted by hand from their configurations."""

import pytest

from labcore.catalog.llm.models import HUB_MODELS

# Layers, hidden, heads, key-value heads, numbers of a head, inner, vocabulary; matrices of the vocabulary's size in the
# file; megabytes of the tokenizer's files.
SHAPES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": ((30, 576, 9, 3, 64, 1536, 49_152), 1, 3),
    "google/gemma-3-270m-it": ((18, 640, 4, 1, 256, 2048, 262_144), 1, 38),
    "HuggingFaceTB/SmolLM2-360M-Instruct": ((32, 960, 15, 5, 64, 2560, 49_152), 1, 3),
    "Qwen/Qwen2.5-0.5B-Instruct": ((24, 896, 14, 2, 64, 4864, 151_936), 1, 12),
    "Qwen/Qwen3-0.6B": ((28, 1024, 16, 8, 128, 3072, 151_936), 2, 16),
    "meta-llama/Llama-3.2-1B-Instruct": ((16, 2048, 32, 8, 64, 8192, 128_256), 1, 9)}


@pytest.mark.parametrize("name", HUB_MODELS)
def test_what_is_downloaded_is_its_weights_in_two_bytes_each_and_its_tokenizer(name):
    (layers, hidden, heads, groups, head, inner, vocabulary), matrices, tokenizer = SHAPES[name]
    layer = 2 * hidden * head * (heads + groups) + 3 * hidden * inner
    weights = layers * layer + matrices * vocabulary * hidden
    row = HUB_MODELS[name]
    assert row.megabytes == pytest.approx(2 * weights / 1e6 + tokenizer, rel=0.01)
    said = row.parameters.split()
    counted = layers * layer + vocabulary * hidden
    assert float(said[0]) * {"M": 1e6, "B": 1e9}[said[1]] == pytest.approx(counted, rel=0.04)
    assert row.gated == (name.split("/")[0] in ("google", "meta-llama"))
