"""Makes `trl_prm.json`: rows with step labels by TRL's own PRMTrainer, and the loss and its gradient that transformers'
token classification has on the labels.

Run it where the last TRL that has this trainer is installed beside the lab (`pip install trl==1.13.0`):
`python -m tests.golden.trl_prm`. Rows are encoded by the lab's character tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from transformers.loss.loss_utils import ForTokenClassification
from trl.experimental.prm import PRMTrainer

from labcore.llm.nets.tokenizer import character_tokenizer

ROWS = [{"prompt": "2+3?", "completions": ["2+2=4", "so 5"], "labels": [True, False]},
        {"prompt": "a", "completions": ["b"], "labels": [False]},
        {"prompt": "long prompt", "completions": ["x", "yy", "zzz"], "labels": [True, True, True]}]


class _Config:
    num_labels = 2


def made() -> dict[str, Any]:
    tokenizer, cases = character_tokenizer(), []
    for separator, last in (("\n", False), ("; ", False), ("\n", True)):
        rows = [PRMTrainer.tokenize_row(row, tokenizer, separator, None, None, last, False) for row in ROWS]
        labels = torch.tensor([label for row in rows for label in row["labels"]])
        generator = torch.Generator().manual_seed(7)
        logits = torch.randn(len(labels), 2, generator=generator, dtype=torch.float32).requires_grad_()
        loss = ForTokenClassification(logits, labels, _Config())
        there = labels != -100
        cases.append({"separator": separator, "last_step_only": last, "rows": rows, "logits": logits[there].tolist(),
                      "labels": labels[there].tolist(), "loss": loss.item(),
                      "gradient": torch.autograd.grad(loss, logits)[0][there].tolist()})
    return {"meta": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
            "rows": ROWS, "cases": cases}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made()) + "\n", "utf-8")
