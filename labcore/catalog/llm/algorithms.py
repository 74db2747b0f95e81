"""The table of language-model algorithms: read by the page, the command line, the loops and the tests."""

from __future__ import annotations

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.llm import online, preference, reward_model, sft

ALGORITHMS: dict[str, Algorithm] = {
    row.key: row for row in (*online.ROWS, *preference.ROWS, *reward_model.ROWS, *sft.ROWS)}
