"""Makes `pure.json`: rewards of steps by PURE's own code.

    python -m tests.golden.pure PURE/openrlhf/utils/utils.py

of github.com/CJReinforce/PURE (41f9363). It is not installed: the function is cut out of its file and executed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.golden.verl_rows import functions

STEPS = [[True, True, True, True], [True, True, False, False], [True, False, False, False]]


def made(path: str) -> dict[str, Any]:
    find = functions(path, {"torch": torch}, "turn_process_reward_logits_to_reward")[
        "turn_process_reward_logits_to_reward"]
    logits = 2 * torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    steps, cases = torch.tensor(STEPS), []
    for temperature in (0.1, 0.02, 1.0):
        rewards, outcome = find(logits, steps, return_outcome_reward=True, temperature=temperature)
        cases.append({"temperature": temperature, "logits": logits.tolist(), "steps": STEPS,
                      "rewards": rewards.tolist(), "outcome": outcome.tolist()})
    return {"meta": {"pure": "41f9363", "torch": torch.__version__}, "cases": cases}


if __name__ == "__main__":
    Path(__file__).with_suffix(".json").write_text(json.dumps(made(sys.argv[1])) + "\n", "utf-8")
