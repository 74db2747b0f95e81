"""Knobs of a run's probes and of the disk space of its checkpoints.

No metric depends on them.
"""

from __future__ import annotations

from labcore.catalog.knob import Knob

PROBES = Knob(
    "probes", "Probes", True, "On: some steps record the surrogate line, the watched prompts and samples token by "
    "token. On a model above 6 M parameters, this takes at most 10 % of the run's time. Off: the run records metrics "
    "only; they are the same.", "next batch", advanced=True, group="evaluation")
LADDER = Knob(
    "ladder_mb", "Disk space for checkpoints", 4000, "Maximum disk space for the checkpoints between the first and the "
    "newest two; you can fork the run from each. Higher: more checkpoints, closer together. Lower: fewer. 0: "
    "none.", low=0,
    high=10_000_000, safe=(0, 20_000), unit="MB", advanced=True, forkable=True, group="memory")

UPKEEP = {"online": (PROBES, LADDER), "preference": (PROBES, LADDER), "sft": (PROBES, LADDER),
          "reward_model": (LADDER,)}  # a reward model has no probes
EVERY = (PROBES, LADDER)
