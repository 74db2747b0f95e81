"""The knobs of stale data: what samples the completions that an update learns from, and how long ago.

All are off by default: the policy itself has then sampled every completion right before the update.
"""

from labcore.catalog.conditions import SAME_DTYPE
from labcore.catalog.knob import Knob

IN_ORDER, MIXED = "in_order", "mixed"
DTYPES = (SAME_DTYPE, "bf16", "fp16", "int8")

STALENESS = (
    Knob("staleness", "Staleness", 0, "Steps between sampling a batch and learning from it, as in asynchronous "
         "training. Higher: older completions, so ratios differ from 1 before the first update. The first step samples "
         "all batches that the queue holds. 0: each batch is sampled right before its updates.", "next batch", 0, 64,
         (0, 8), "k", "steps", advanced=True, group="sampling", reach=(0, 32), before=0,
         aliases="async asynchronous off-policy max_staleness max_async_level max_head_offpolicyness async_queue_size"),
    Knob("staleness_order", "Order of the queue", IN_ORDER, "in order: a step learns from the oldest groups of the "
         "queue, which are all k steps old. mixed: a step takes groups at random, so ages vary around a mean of k "
         "steps, as if some completions took longer than "
         "others.", "next batch", choices=(IN_ORDER, MIXED), advanced=True,
         group="sampling", before=IN_ORDER),
    Knob("replay_share", "Replay share", 0.0, "Share of a batch's groups that earlier steps have already learnt from. "
         "The other groups are new. Higher: fewer new completions per step, older data. Lower: more sampling. 0: no "
         "replay.", "next batch", 0.0, 0.9, (0.0, 0.5), unit="share", advanced=True, group="sampling", before=0.0,
         aliases="experience replay buffer"),
    Knob("replay_steps", "Replay buffer", 8, "Size of the replay buffer, in batches. Higher: older groups are used "
         "again. Lower: only recent "
         "groups.", "next batch", 1, 64, (2, 16), unit="steps", advanced=True, group="sampling",
         before=8),
    Knob("sampler_dtype", "Precision of the sampler", SAME_DTYPE, "Precision to which the policy's weights are rounded "
         "while it samples. bf16 and fp16: 8 and 11 significant bits. int8: 255 levels for each row of a matrix. same: "
         "the weights of the trainer.", "next batch", choices=DTYPES, advanced=True, group="sampling",
         before=SAME_DTYPE, aliases="quantized rollout quantization mismatch"),
)
