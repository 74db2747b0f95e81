"""The knobs of the optimizer that every loop of language models shares: how the rate moves, and AdamW's own numbers."""

from labcore.catalog.knob import Knob

CONSTANT, LINEAR, COSINE = "constant", "linear", "cosine"

SCHEDULE = Knob(
    "schedule", "Learning rate schedule", CONSTANT, "Schedule of the learning rates after the warm-up. constant: no "
    "change. linear: a straight line to 0 after the last step. cosine: half a cosine to 0 after the last step. A fork "
    "with another number of steps follows the schedule of its own length.",
    "live", choices=(CONSTANT, LINEAR, COSINE), advanced=True, group="optimisation")
WARMUP_STEPS = Knob(
    "warmup_steps", "Warm-up", 0, "Steps over which learning rates rise linearly from 0. More: gentler first updates, "
    "less learnt early on. Fewer: the full rate sooner. 0: no warm-up.", "live", 0, 10_000_000, (0, 50), unit="steps",
    advanced=True, group="optimisation")

OPTIMIZER = (
    SCHEDULE, WARMUP_STEPS,
    Knob("weight_decay", "Weight decay", 0.0, "Each update multiplies the weights by 1 − learning rate × this value; "
         "biases and norms are excluded, as in transformers' Trainer. Higher: smaller weights, less drift. Lower: "
         "larger weights. 0: off.", "live", 0.0, 10.0, (0.0, 0.1), advanced=True, group="optimisation"),
    Knob("adam_beta1", "Adam β₁", 0.9, "Decay rate of the running mean of the gradient. Higher: smoother updates that "
         "turn more slowly. Lower: follows each batch.", "live", 0.0, 0.9999, (0.8, 0.95), advanced=True,
         group="optimisation"),
    Knob("adam_beta2", "Adam β₂", 0.999, "Decay rate of the running mean of the squared gradient. Higher: a steadier "
         "step size. Lower: adapts faster when gradients change size; 0.95 is usual in pretraining.",
         "live", 0.0, 0.999999, (0.9, 0.999), advanced=True, group="optimisation"),
    Knob("adam_epsilon", "Adam ε", 1e-8, "Added to the root of the mean squared gradient. Higher: weights with tiny "
         "gradients move less. Lower: all weights move by similar amounts.",
         "live", 1e-16, 1.0, (1e-10, 1e-5), scale="log", advanced=True, group="optimisation"),
)
