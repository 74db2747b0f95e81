"""Problems with at most 10,000 completions of each prompt."""

from __future__ import annotations

from collections.abc import Mapping

from labcore.catalog.knob import Knob, Value
from labcore.catalog.task import Task


def _row(key: str, label: str, help: str, name: str, example: str, letters: int = 3, prompts: int = 3,
         defaults: Mapping[str, Value] | None = None, right: str = "Exact match") -> Task:
    return Task(key, label, help, f"labcore.tasks.enumerable:{name}", ("online", "preference"), (
        Knob("vocabulary", "Letters", letters, "Letters that completions are made of; the end token comes on top. "
             "More: many more completions. Fewer: a smaller problem.", low=2, high=6),
        Knob("prompt_count", "Prompts", prompts, "Different prompts, each of them a letter. More: more to learn. "
             "Fewer: less noise between prompts; exact values are means over all of them.", low=1, high=4),
    ), pairs=True, example=example, right=right,
        # A step is cheap, and a table's entry moves only where its prefix was sampled.
        defaults={"max_new_tokens": 3, "learning_rate": 3e-3, "max_grad_norm": 10.0, **(defaults or {})})


TASKS: dict[str, Task] = {row.key: row for row in (
    _row("sorted", "Sorted, graded", "The share of neighbouring letters that are in order, the prompt's letter first: "
         "a reward for every step in the right direction.", "Sorted", "b → bbc", right="All in order"),
    _row("one_winner", "One winner", "One completion in many is right, and nothing else is worth anything.",
         "OneWinner", "a → bca"),
    _row("free_length", "Free length", "Right is the prompt's letter and then the end; wrong answers may be longer.",
         "FreeLength", "a → a", defaults={"max_new_tokens": 4}),
    _row("two_modes", "Two modes", "Two completions far from each other are nearly as good: 1 and 0.9.", "TwoModes",
         "a → aaa", right="Best completion"),
)}
