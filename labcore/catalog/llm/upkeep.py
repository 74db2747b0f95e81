"""Knobs of a run's probes, of the disk space of its checkpoints, and of its share of a GPU.

No metric depends on them, but for rounding where the share changes how a batch is cut.
"""

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
GPU_SHARE = Knob(
    "gpu_share", "Share of the GPU", 0.5, "Share of the GPU's memory that this run may take. 0.5: two runs fit on one "
    "GPU. Higher: room for a larger model or batch. Lower: room for more runs. On a processor: no effect.", low=0.05,
    high=1.0, safe=(0.25, 0.9), unit="share", advanced=True, forkable=True, group="memory")

UPKEEP = {"online": (PROBES, LADDER, GPU_SHARE), "preference": (PROBES, LADDER, GPU_SHARE),
          "sft": (PROBES, LADDER, GPU_SHARE),
          **dict.fromkeys(("prm", "reward_model"), (LADDER, GPU_SHARE))}  # a reward model has no probes
EVERY = (PROBES, LADDER, GPU_SHARE)
