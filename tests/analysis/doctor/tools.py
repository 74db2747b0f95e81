"""Rows of made-up runs, and what the doctor finds in them."""

from collections.abc import Callable

from labcore.analysis.doctor.doctor import course
from labcore.analysis.doctor.finding import Finding
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.rows import Step

Row = dict[str, float]


def spec_of(algorithm: str = "grpo", **knobs) -> RunSpec:
    return make(algorithm_key=algorithm, task_key="sort", steps=300, knobs=knobs)


def steps(row: Callable[[int], Row], count: int = 60) -> list[Step]:
    return [Step(at, 10 * at, 0, float(at), row(at)) for at in range(1, count + 1)]


def found(spec: RunSpec | None, row: Callable[[int], Row], count: int = 60) -> dict[str, Finding]:
    """What holds after `count` steps, by rule."""
    return {each.rule: each for each in course(spec, steps(row, count))[0].findings}


def well(at: int) -> Row:
    """A run of GRPO that learns, and has far to go still."""
    return {"reward": 0.3 + 0.005 * at, "reward_std": 0.45, "exact_match": 0.3 + 0.005 * at, "kl": 0.001 * at,
            "frac_reward_zero_std": 0.2, "entropy": 1 - 0.005 * at, "clip_frac/region": 0.05, "grad_norm": 0.5,
            "loss": 0.02, "completions/mean_length": 7.0, "completions/truncated_frac": 0.05, "ratio/max": 1.5}


def pairs(at: int) -> Row:
    """A run of DPO that learns; it is measured by sampling at every tenth step."""
    row = {"rewards/accuracies": min(0.95, 0.5 + 0.02 * at), "logps/chosen": -1.5, "logps/rejected": -12 - 0.1 * at,
           "entropy": 0.9, "loss": 0.5, "grad_norm": 2.0}
    return row | ({"exact_match": 0.4 + 0.001 * at, "reward": 0.4 + 0.001 * at} if at == 1 or at % 10 == 0 else {})


def flat(**values: float) -> Callable[[int], Row]:
    """`well` with other values."""
    return lambda at: well(at) | values


def grows(key: str, start: float, by: float, row: Callable[[int], Row] = well, **values: float) -> Callable[[int], Row]:
    """A row in which one metric moves by `by` a step."""
    return lambda at: row(at) | values | {key: start + by * at}


def drops(key: str, before: float, after: float, at_step: int = 40, **values: float) -> Callable[[int], Row]:
    """`well`, in which one metric is another one from a step on."""
    return lambda at: well(at) | values | {key: before if at < at_step else after}


def measured(start: float, by: float, row: Callable[[int], Row] = pairs) -> Callable[[int], Row]:
    """`row` with this exact match where it is measured."""
    return lambda at: row(at) | ({"exact_match": start + by * at} if "exact_match" in row(at) else {})


def held_out(start: float, by: float, row: Callable[[int], Row] = well, rows: int = 256,
             key: str = "held_out/accuracy") -> Callable[[int], Row]:
    """`row` with a metric of held-out rows before training and at every fifth step, which moves by `by` a step."""
    return lambda at: row(at) | ({key: start + by * at, "held_out/rows": rows} if at == 1 or at % 5 == 0 else {})


def taught(at: int) -> Row:
    """A run of SFT that learns."""
    return {"loss": 1 - 0.01 * at, "mean_token_accuracy": 0.3 + 0.005 * at, "grad_norm": 1.0, "entropy": 1.0}


STUCK = {"reward": 0.4, "exact_match": 0.4}  # not learning, and far from solved
TINY = {"clip_frac/region": 0.0, "ratio/max": 1.01}
ONE = {"updates_per_batch": 1, "mini_batches": 1}
