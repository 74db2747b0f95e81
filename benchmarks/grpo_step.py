"""One optimizer step of GRPO, ours beside TRL's: `python -m benchmarks.grpo_step`.

Measured: the wall time from one optimizer step to the next, all that happens in between included, of a run as a user
has it: sampling, decoding, rewards, reference log-probs, forward, backward, clip, AdamW, and the metrics, samples and
surrogate lines that the lab logs on its way. Both sides start from the same Hugging Face folder (random weights),
read the same kind of prompt ("47+85=", six tokens), sample 32 prompts × 8 completions of at most 8 tokens and reward
them by the same function, with β = 0.04. Gradient checkpointing, TRL's default, is off: that is the faster TRL.

How the times are taken is told in `turns`.

Left out: start-up, the worker's store and checkpoints, learning (both sides learn nothing from random weights),
prompts of unequal length, and more than one machine.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks import turns
from benchmarks.turns import Turn
from labcore.errors import LabError

PEERS = ("trl", "accelerate", "datasets")
BETA, LEARNING_RATE, PROMPTS, GROUP_SIZE, NEW_TOKENS = 0.04, 1e-6, 32, 8, 8
ENDLESS = 10_000_000  # steps: the driver says when it is enough


def lab(folder: Path, dtype: str, threads: int, turn: Turn) -> None:
    """Our run as the worker drives it: `LlmSession.run` with everything that it logs."""
    from labcore.llm.session import LlmSession
    from labcore.spec.run_spec import make

    spec = make(algorithm_key="grpo", task_key="add", model=str(folder), device="cpu", threads=threads, steps=ENDLESS,
                knobs={"beta": BETA, "learning_rate": LEARNING_RATE, "prompts_per_step": PROMPTS, "dtype": dtype,
                       "group_size": GROUP_SIZE, "max_new_tokens": NEW_TOKENS, "updates_per_batch": 1})
    for record in LlmSession.start(spec).run():
        if record is not None:
            turn.step_done()


def trl(folder: Path, dtype: str, threads: int, turn: Turn) -> None:
    """TRL's GRPOTrainer on the same weights, tokenizer, prompts and reward."""
    import numpy as np
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    from labcore.catalog.kinds import task
    from labcore.tasks.task import Problem, make_task

    logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # names that the next version will drop
    add = make_task(task("add"), {"digits": 2, "reward_shape": "exact"})
    problems = add.problems(4096, np.random.default_rng(0))

    def reward(completions: list[str], answer: list[str], **_) -> list[float]:
        return [add.score(Problem("", right), text).reward for text, right in zip(completions, answer, strict=True)]

    class Stepwise(TrainerCallback):
        def on_step_end(self, *_args, **_kwargs) -> None:
            turn.step_done()

    config = GRPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=PROMPTS * GROUP_SIZE, num_generations=GROUP_SIZE,
        max_completion_length=NEW_TOKENS, beta=BETA, learning_rate=LEARNING_RATE, num_iterations=1, max_grad_norm=1.0,
        gradient_checkpointing=False, bf16=dtype == "bf16", use_cpu=True, max_steps=ENDLESS, save_strategy="no",
        logging_strategy="no", report_to="none", disable_tqdm=True, seed=0)
    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), reward, config,
        train_dataset=Dataset.from_list([{"prompt": each.prompt, "answer": each.answer} for each in problems]),
        processing_class=AutoTokenizer.from_pretrained(folder), callbacks=[Stepwise()])
    trainer.train()


def check_installed() -> None:
    """Raise LabError where the peer's packages are missing."""
    missing = [peer for peer in PEERS if find_spec(peer) is None]
    if missing:
        raise LabError(f"The benchmark needs {', '.join(missing)}, which the lab itself does without: "
                       "pip install -r requirements-bench.txt.")


def main(arguments: Sequence[str] | None = None) -> int:
    return turns.main("grpo_step", __doc__.partition("\n")[0],
                      f"{PROMPTS} prompts × {GROUP_SIZE} completions of {NEW_TOKENS} tokens",
                      {"trl": trl, "lab": lab}, ("trl-fp32", "lab-fp32", "lab-bf16"), check_installed, arguments)


if __name__ == "__main__":
    sys.exit(main())
