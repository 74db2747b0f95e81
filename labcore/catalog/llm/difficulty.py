"""The knobs of difficulty: a pool of prompts that a run draws from again and again, and which of them it draws.

Off by default: prompts are then drawn as the task draws them.
"""

from __future__ import annotations

from collections.abc import Mapping

from labcore.catalog.choice import Rule
from labcore.catalog.knob import Knob, Value

UNIFORM, BAND, LEARNABLE, EASY_FIRST, BY_LEVEL = PROMPT_CHOICES = (
    "uniform", "band", "learnable", "easy_first", "by_level")

DIFFICULTY = (
    Knob("prompt_pool", "Prompt pool", 0, "Number of different prompts that the run draws its batches from. The run "
         "keeps the pass rate of each. Higher: more varied prompts, each tried less often. Lower: pass rates are known "
         "sooner. 0: no pool; the task draws the "
         "prompts.", low=0, high=20_000, safe=(0, 2000), unit="prompts", advanced=True, group="sampling",
         before=0, aliases="difficulty curriculum buffer data_sampler"),
    Knob("prompt_choice", "Choice of prompts", UNIFORM, "How prompts are drawn from the pool. uniform: all with equal "
         "probability. band: prompts with a pass rate within the band, and new prompts. learnable: in proportion to p "
         "(1 − p), where p is the pass rate. easy first: the easiest prompts by pass rate, then more and more of the "
         "pool. by level: the lowest level, then higher "
         "levels.", "next batch", choices=PROMPT_CHOICES, advanced=True, group="sampling", before=UNIFORM,
         aliases="difficulty curriculum online_difficulty_filtering"),
    Knob("band_low", "Lowest pass rate", 0.2, "Prompts with a lower pass rate are outside the band. Higher: hard "
         "prompts are left out sooner. Lower: hard prompts are drawn "
         "too.", "next batch", 0.0, 1.0, (0.0, 0.5), unit="share", advanced=True,
         group="sampling", before=0.2, aliases="hard_threshold"),
    Knob("band_high", "Highest pass rate", 0.8, "Prompts with a higher pass rate are outside the band. Higher: easy "
         "prompts are drawn too. Lower: easy prompts are left out sooner.", "next batch", 0.0, 1.0, (0.5, 1.0),
         unit="share", advanced=True, group="sampling", before=0.8, aliases="easy_threshold"),
    Knob("curriculum_steps", "Steps of the curriculum", 50, "Steps after which a curriculum draws from the whole pool. "
         "Higher: more steps on easy prompts. Lower: hard prompts sooner.", "next batch", 1, 10_000_000, (10, 500),
         unit="steps", advanced=True, group="sampling", before=50),
    Knob("explore_share", "Share of other prompts", 0.1, "Share of a batch that is drawn from the rest of the pool, so "
         "that the pass rates of these prompts stay up to date. Higher: more recent pass rates. Lower: more prompts by "
         "the choice of "
         "prompts.", "next batch", 0.0, 1.0, (0.0, 0.3), unit="share", advanced=True, group="sampling", before=0.1),
)
EASIEST = Knob(
    "easiest", "Easiest level", 0, "Prompts have levels from this one to the size set above, in equal numbers. Higher: "
    "harder prompts. Lower: some easy prompts. 0: all prompts have the size set "
    "above.", low=0, high=20, before=0, group="task",
    advanced=True, aliases="difficulty level curriculum")


def by_difficulty(knobs: Mapping[str, Value]) -> bool:
    """True if prompts of a pool are chosen by their difficulty: two steps then have different prompts, and a reward
    that falls may only mean harder ones."""
    return bool(knobs.get("prompt_pool")) and knobs.get("prompt_choice", UNIFORM) != UNIFORM


def _unless(*kept: str) -> tuple[str, ...]:
    return tuple(each for each in PROMPT_CHOICES if each not in kept)


RULES = (
    Rule(tuple(knob.key for knob in DIFFICULTY[1:]), {"prompt_pool": (0,)}, "there is no prompt pool"),
    Rule(("band_low", "band_high"), {"prompt_choice": _unless(BAND)}, "the choice of prompts has no band"),
    Rule(("curriculum_steps",), {"prompt_choice": _unless(EASY_FIRST, BY_LEVEL)},
         "the choice of prompts is not a curriculum"),
    Rule(("explore_share",), {"prompt_choice": (UNIFORM,)}, "all prompts have the same probability"),
)
