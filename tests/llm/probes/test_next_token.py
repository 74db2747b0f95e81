"""The next token's distribution: by the model's own forward pass, and its entropy at each temperature."""

from unittest.mock import patch

import pytest
import torch

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.nets.model import load
from labcore.llm.probes.next_token import TEMPERATURES, TOP, next_token
from labcore.runs import jobs
from labcore.runs.files.paths import run_folder
from tests.llm.runs_on_disk import saved
from tests.llm.tools import TINIER


@pytest.fixture
def run():
    with patch.dict(MODELS, {"tiny": TINIER}):
        yield saved("grpo-sort-aaaa")


def test_it_is_what_the_model_says_after_the_prompt(run):
    found = jobs.do({"job": "next_token", "model": run, "prompt": "dbca="})
    model, tokenizer = load(run_folder(run) / "checkpoints" / "step-000002" / "policy")
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer("dbca=", add_special_tokens=False)["input_ids"]])).logits[0, -1].double()
    assert found["model"] == f"{run}@2" and found["vocabulary"] == len(logits)
    assert [each["temperature"] for each in found["tempered"]] == list(TEMPERATURES)
    ids = [tokenizer.get_vocab()[token] for token in found["tokens"]]
    assert len(ids) == min(TOP, len(logits)) and ids == logits.topk(len(ids)).indices.tolist()
    for row in found["tempered"]:
        p = (logits / row["temperature"]).softmax(-1)
        assert row["entropy"] == pytest.approx(float(torch.special.entr(p).sum()), abs=2e-5)
        assert row["top"] == pytest.approx(p[ids].tolist(), abs=2e-5)
        assert row["rest"] == pytest.approx(1 - float(p[ids].sum()), abs=2e-5)
    entropies = [row["entropy"] for row in found["tempered"]]
    assert entropies == sorted(entropies) and entropies[0] < entropies[-1]

    for prompt, sentence in (("", "is empty"), ("dé=", "does not know 'é'"), ("ab" * 400, "has room for")):
        with pytest.raises(LabError, match=sentence):
            next_token({"model": run, "prompt": prompt})
