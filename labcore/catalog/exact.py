"""The rows of language models on problems that can be enumerated: every online and every preference row, as it is.

Left out are the rows of SFT and of the reward model: neither moves a policy by a reward, so no exact value belongs to
them. Left out of the others are the knobs of a base that SFT makes and of adapters on it, since a run starts from a
table or random weights. The length limit is part of the problem, so it is fixed. All rows that hold to a reference have
one β, so that they have one optimum π*, which is the teacher of the rows that learn from one. Pairs are the task's own,
with labels that depend on the reward.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from labcore.catalog import choices
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.algorithms import ALGORITHMS as OF_LANGUAGE_MODELS
from labcore.catalog.llm.difficulty import DIFFICULTY
from labcore.catalog.llm.knobs import ENGINE, LORA, PROMPT, SFT_STEPS, SFT_TARGET
from labcore.catalog.llm.optimizer import OPTIMIZER
from labcore.catalog.llm.upkeep import EVERY as UPKEEP
from labcore.catalog.task import Task

OPTIMUM = "optimum"  # the teacher of a run that learns from one: π* at BETA
BETA = 0.2  # the reward of a right answer is 1: the optimum is e^5 times as sure of it as the reference
LONGEST = 6  # tokens
SAFE = {"beta": (0.05, 2.0), "learning_rate": (1e-4, 3e-2)}
STORY = ("reward", "kl", "exact_distance", "exact_objective", "exact_gradient", "exact_kl")
_GONE = {"rollouts", "context_share"} | {knob.key for knob in (
    *DIFFICULTY, *LORA, *ENGINE, *OPTIMIZER, *PROMPT, *UPKEEP, SFT_STEPS, SFT_TARGET)}
_OWN_BETA = re.compile(r" β is \d.*$")  # what a row says of the value that it has in the LLM lab


def _row(row: Algorithm) -> Algorithm:
    usual = {knob.key: knob.default for knob in row.knobs}
    penalised = usual.get("kl_placement", "loss") != "off" and "reference" in row.models
    own: dict[str, Value] = {}
    if penalised:
        own["beta"] = BETA
    if "teacher" in usual:
        own["teacher"], penalised = OPTIMUM, True
    if "teacher_context" in usual:
        own["teacher_context"] = "nothing"
    if usual.get("pairs") == "reference_once":
        own["pairs"] = "dataset"
    if not all(source.known for source in choices.chosen(choices.REWARD, usual)):
        own["reward_source"] = "step_verifier"
    panels = tuple(panel for panel in STORY if penalised or panel != "exact_distance")
    knobs = tuple(_fitted(knob).with_default(own[knob.key]) if knob.key in own else _fitted(knob) for knob in row.knobs
                  if knob.key not in _GONE)
    return replace(row, knobs=knobs, watch=_OWN_BETA.sub("", row.watch),
                   panels=(*panels, *(panel for panel in row.panels if panel not in panels)))


def _fitted(knob: Knob) -> Knob:
    """The length limit as a part of the problem, and sliders with room around what small problems take."""
    if knob.key == "max_new_tokens":
        return replace(knob, effect="restart", high=LONGEST, advanced=False)
    if knob.key == "teacher":
        return replace(knob, choices=(OPTIMUM,), forkable=False, help="The policy learns from the optimum π*, the "
                       f"policy with the highest reward − {BETA:g} × KL to the reference. So the objective is the same "
                       "as that of RL.")
    if knob.key == "teacher_context":
        return replace(knob, choices=("nothing",), help="The optimum needs no context, and a table cannot read one.")
    return replace(knob, safe=SAFE[knob.key]) if knob.key in SAFE else knob


ALGORITHMS: dict[str, Algorithm] = {row.key: _row(row) for row in OF_LANGUAGE_MODELS.values()
                                    if row.loop in ("online", "preference")}


# ---------------------------------------------------------------- tasks
# Problems with at most 10,000 completions of each prompt.

def _task(key: str, label: str, help: str, name: str, example: str, letters: int = 3, prompts: int = 3,
          goal: str = "must write {answer}, and earns 1 if exact", defaults: Mapping[str, Value] | None = None,
          right: str = "Exact match", graded: bool = False) -> Task:
    return Task(key, label, help, f"labcore.tasks.enumerable:{name}", ("online", "preference"), (
        Knob("vocabulary", "Letters", letters, "Letters of the vocabulary, in addition to the end token. More: many "
             "more completions. Fewer: a smaller problem.", low=2, high=6, group="task"),
        Knob("prompt_count", "Prompts", prompts, "Number of prompts, each a different letter. More: more to learn. "
             "Fewer: less noise between prompts. Exact values are means over all "
             "prompts.", low=1, high=4, group="task"),
    ), pairs=True, example=example, right=right, goal={"": goal},
        graded=("",) * graded,
        # A step is cheap, and a table's entry moves only where its prefix was sampled.
        defaults={"max_new_tokens": 3, "learning_rate": 3e-3, "max_grad_norm": 10.0, **(defaults or {})})


TASKS: dict[str, Task] = {row.key: row for row in (
    _task("sorted", "Sorted, graded", "The share of neighbouring letters that are in order, starting with the prompt's "
          "letter: partial credit.", "Sorted", "b → bbc", right="All in order", graded=True,
          goal="must continue with letters in order, such as {answer}, and earns the share of neighbouring letters in "
               "order"),
    _task("one_winner", "One winner", "A single completion is right; every other completion gets reward 0.",
          "OneWinner", "a → bca"),
    _task("free_length", "Free length", "The right completion is the prompt's letter and the end token; wrong "
          "completions may be longer.",
          "FreeLength", "a → a", goal="must write {answer} and then end, and earns 1 if exact",
          defaults={"max_new_tokens": 4}),
    _task("two_modes", "Two modes", "Two very different completions have similar rewards: 1 and 0.9.", "TwoModes",
          "a → aaa", goal="earns 1 for {answer} and 0.9 for the next letter in every place",
          right="Best completion", graded=True),
)}
