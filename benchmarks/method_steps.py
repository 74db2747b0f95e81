"""One optimizer step of RLOO, DPO, a reward model and SFT, ours beside TRL's: `python -m benchmarks.method_steps`.

Measured: the wall time from one optimizer step to the next, as in `grpo_step`, of a run as a user has it, with what
the lab logs on its way. Both sides start from the same Hugging Face folder (random weights) and read the same kind of
text: prompts such as "47+85=" (six tokens) and sums of two or three digits with an end token.

    rloo           32 prompts × 8 sampled completions of at most 8 tokens, β = 0.05, one update
    dpo            64 pairs, a right sum and a wrong one, with a reference
    reward_model   64 such pairs
    sft            64 prompts with their sums

Gradient checkpointing, TRL's default, is off: that is the faster TRL. The lab's regular measurements by sampling,
which TRL has not, are off too. How the times are taken is said in `turns`.

Left out: start-up, the worker's store and checkpoints, learning, and prompts of unequal length.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import turns
from benchmarks.grpo_step import ENDLESS, GROUP_SIZE, LEARNING_RATE, NEW_TOKENS, PROMPTS, check_installed
from benchmarks.turns import Turn

BETA, BATCH, ROWS = 0.05, 64, 4096
BATCHES = {"rloo": f"{PROMPTS} prompts × {GROUP_SIZE} completions of {NEW_TOKENS} tokens", "dpo": f"{BATCH} pairs",
           "reward_model": f"{BATCH} pairs", "sft": f"{BATCH} sequences"}
_RARELY = {"eval_every": 1_000_000, "eval_prompts": 1}
KNOBS: dict[str, dict[str, Any]] = {
    "rloo": {"beta": BETA, "prompts_per_step": PROMPTS, "group_size": GROUP_SIZE, "max_new_tokens": NEW_TOKENS,
             "updates_per_batch": 1},
    "dpo": {"beta": BETA, "pairs_per_step": BATCH, "pairs": "dataset", **_RARELY},
    "reward_model": {"pairs_per_step": BATCH, "pairs": "dataset", "eval_every": 1_000_000},
    "sft": {"sequences_per_step": BATCH, "sft_target": 1.0, **_RARELY},
}


def lab(method: str, folder: Path, dtype: str, threads: int, turn: Turn) -> None:
    """Our run as the worker drives it: `LlmSession.run` with everything that it logs."""
    from labcore.llm.session import LlmSession
    from labcore.runs.spec.run_spec import make

    knobs, data = KNOBS[method], None
    if "pairs" in knobs:
        data = folder / f"{method}-{dtype}.jsonl"
        data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs()), "utf-8")
    spec = make(algorithm_key=method, task_key="preferences" if data else "add", model=str(folder), device="cpu",
                threads=threads, steps=ENDLESS, data=str(data) if data else None,
                knobs={**knobs, "learning_rate": LEARNING_RATE, "dtype": dtype})
    session = LlmSession.start(spec)
    turn.ready()
    for record in session.run():
        if record is not None:
            turn.step_done()


def trl(method: str, folder: Path, dtype: str, threads: int, turn: Turn) -> None:
    """TRL's trainer of the method on the same weights, tokenizer and texts."""
    from transformers import AutoTokenizer, TrainerCallback
    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # names that the next version will drop

    class Stepwise(TrainerCallback):
        def on_step_end(self, *_args, **_kwargs) -> None:
            turn.step_done()

    # The trainers write the end token into the text: it has to be read as one token, not as five characters.
    tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=False)
    shared = {"output_dir": str(folder / "trl"), "learning_rate": LEARNING_RATE, "max_grad_norm": 1.0,
              "gradient_checkpointing": False, "bf16": dtype == "bf16", "use_cpu": True, "max_steps": ENDLESS,
              "save_strategy": "no", "logging_strategy": "no", "report_to": "none", "disable_tqdm": True, "seed": 0}
    trainer = TRAINERS[method](folder, shared, processing_class=tokenizer, callbacks=[Stepwise()])
    turn.ready()
    trainer.train()


def rloo_trainer(folder: Path, shared: dict[str, Any], **rest: Any) -> Any:
    from datasets import Dataset
    from trl import RLOOConfig, RLOOTrainer

    add, found = problems()

    def reward(completions: list[str], answer: list[str], **_) -> list[float]:
        from labcore.tasks.task import Problem

        return [add.score(Problem("", right), text).reward for text, right in zip(completions, answer, strict=True)]

    config = RLOOConfig(per_device_train_batch_size=PROMPTS * GROUP_SIZE, num_generations=GROUP_SIZE,
                        max_completion_length=NEW_TOKENS, beta=BETA, num_iterations=1, **shared)
    rows = Dataset.from_list([{"prompt": each.prompt, "answer": each.answer} for each in found])
    return RLOOTrainer(_model(folder), reward, config, train_dataset=rows, **rest)


def dpo_trainer(folder: Path, shared: dict[str, Any], **rest: Any) -> Any:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    config = DPOConfig(per_device_train_batch_size=BATCH, beta=BETA, **shared)
    return DPOTrainer(_model(folder), ref_model=_model(folder), args=config, train_dataset=Dataset.from_list(pairs()),
                      **rest)


def reward_model_trainer(folder: Path, shared: dict[str, Any], **rest: Any) -> Any:
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype="float32")
    config = RewardConfig(per_device_train_batch_size=BATCH, center_rewards_coefficient=0.01, **shared)
    return RewardTrainer(model, config, train_dataset=Dataset.from_list(pairs()), **rest)


def sft_trainer(folder: Path, shared: dict[str, Any], **rest: Any) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(per_device_train_batch_size=BATCH, **shared)
    rows = Dataset.from_list([{"prompt": each.prompt, "completion": each.answer} for each in problems()[1]])
    return SFTTrainer(_model(folder), config, train_dataset=rows, **rest)


TRAINERS = {"rloo": rloo_trainer, "dpo": dpo_trainer, "reward_model": reward_model_trainer, "sft": sft_trainer}


def problems() -> tuple[Any, list[Any]]:
    """The task "add", and the sums that TRL's side is given."""
    import numpy as np

    from labcore.catalog.kinds import task
    from labcore.tasks.task import make_task

    add = make_task(task("add"), {"digits": 2, "reward_shape": "exact"})
    return add, add.problems(ROWS, np.random.default_rng(0))


def pairs() -> list[dict[str, str]]:
    """A right sum and one that is off by one, for each prompt."""
    return [{"prompt": each.prompt, "chosen": each.answer, "rejected": str(int(each.answer) + 1)}
            for each in problems()[1]]


def _model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--methods", nargs="+", choices=BATCHES, default=list(BATCHES))
    options, rest = parser.parse_known_args(arguments)
    title = f"{__doc__.partition(chr(10))[0]} --methods: {', '.join(BATCHES)} (all)."
    for method in options.methods:
        sides = {"trl": partial(trl, method), "lab": partial(lab, method)}
        print(f"{method}: ", end="", flush=True)
        if status := turns.main("method_steps", title, BATCHES[method], sides, ("trl-fp32", "lab-fp32"),
                                check_installed, rest):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
