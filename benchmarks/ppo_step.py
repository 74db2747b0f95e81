"""One optimizer step of PPO, ours beside TRL's: `python -m benchmarks.ppo_step`.

The peer is the PPOTrainer of TRL 1.12.0, the last one to have it. It is kept apart from the TRL of `grpo_step`:

    pip install -r requirements-bench.txt
    pip install --no-deps --target build/trl-1.12 -r requirements-bench-ppo.txt

Measured: the wall time from one optimizer step to the next, as in `grpo_step`. Both sides start from the same Hugging
Face folder (random weights), read the same kind of prompt ("47+85=", six tokens), sample 256 completions of at most 8
tokens and take one step (one epoch, one mini-batch) of the policy and of a critic of the same size, with the KL in the
reward. "lab" asks for one completion of each prompt, as the PPOTrainer does; "groups" for eight, whose prompt the lab
computes once. Gradient checkpointing, TRL's default, is off, and it rolls out all 256 at once: that is the faster
TRL. Its reward is a network by design; here it gets one that computes next to nothing.

How the times are taken is said in `turns`. Left out: start-up, the worker's store and checkpoints, and learning.
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

PEERS = ("accelerate", "datasets", "pandas")
TRL = Path(__file__).parents[1] / "build" / "trl-1.12"
KL, LEARNING_RATE, COMPLETIONS, NEW_TOKENS = 0.05, 1e-6, 256, 8
ENDLESS = 10_000_000  # steps: the driver says when it is enough


def lab(folder: Path, dtype: str, threads: int, turn: Turn, group_size: int = 1) -> None:
    """Our run as the worker drives it: `LlmSession.run` with everything that it logs."""
    from labcore.llm.session import LlmSession
    from labcore.runs.spec.run_spec import make

    spec = make(algorithm_key="ppo", task_key="add", model=str(folder), device="cpu", threads=threads, steps=ENDLESS,
                knobs={"beta": KL, "learning_rate": LEARNING_RATE, "critic_learning_rate": LEARNING_RATE,
                       "prompts_per_step": COMPLETIONS // group_size, "group_size": group_size, "updates_per_batch": 1,
                       "mini_batches": 1, "max_new_tokens": NEW_TOKENS, "dtype": dtype})
    session = LlmSession.start(spec)
    turn.ready()
    for record in session.run():
        if record is not None:
            turn.step_done()


def groups(folder: Path, dtype: str, threads: int, turn: Turn) -> None:
    """The same with eight completions of each prompt."""
    lab(folder, dtype, threads, turn, group_size=8)


def trl(folder: Path, dtype: str, threads: int, turn: Turn) -> None:
    """TRL's PPOTrainer on the same weights, tokenizer and prompts."""
    sys.path.insert(0, str(TRL))
    warnings.simplefilter("ignore")  # that it is experimental
    import numpy as np
    import torch
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
        PrinterCallback,
        TrainerCallback,
    )
    from transformers.modeling_outputs import BaseModelOutput
    from transformers.utils import logging
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    from labcore.catalog.kinds import task
    from labcore.tasks.task import make_task

    logging.disable_progress_bar()

    class Cheapest(torch.nn.Module):
        """A reward model of no layers: the reward is that of the last token's id."""

        base_model_prefix = "backbone"

        def __init__(self) -> None:
            super().__init__()
            self.score = torch.nn.Identity()

        def backbone(self, input_ids: torch.Tensor, **_) -> BaseModelOutput:
            return BaseModelOutput(hidden_states=(input_ids[..., None] / 100,))

    class Stepwise(TrainerCallback):
        def on_step_end(self, *_args, **_kwargs) -> None:
            turn.step_done()

    tokenizer = AutoTokenizer.from_pretrained(folder)
    problems = make_task(task("add"), {"digits": 2, "reward_shape": "exact"}).problems(4096, np.random.default_rng(0))
    prompts = Dataset.from_list([{"input_ids": tokenizer(each.prompt)["input_ids"]} for each in problems])
    config = PPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=COMPLETIONS, num_mini_batches=1, num_ppo_epochs=1,
        local_rollout_forward_batch_size=COMPLETIONS, response_length=NEW_TOKENS, stop_token="eos", temperature=1.0,
        kl_coef=KL, learning_rate=LEARNING_RATE, total_episodes=COMPLETIONS * ENDLESS, num_sample_generations=0,
        gradient_checkpointing=False, bf16=dtype == "bf16", use_cpu=True, save_strategy="no", report_to="none",
        disable_tqdm=True, seed=0)
    policy, reference = (AutoModelForCausalLM.from_pretrained(folder, dtype="float32") for _ in range(2))
    critic = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype="float32")
    trainer = PPOTrainer(config, tokenizer, policy, reference, Cheapest(), prompts, critic,
                         eval_dataset=prompts.select(range(8)), callbacks=[Stepwise()])
    trainer.remove_callback(PrinterCallback)
    turn.ready()
    trainer.train()


def check_installed() -> None:
    """Raise LabError where the peer's packages are missing."""
    if any(find_spec(peer) is None for peer in PEERS) or not (TRL / "trl").is_dir():
        raise LabError("The benchmark needs TRL 1.12, which the lab itself does without: pip install -r "
                       "requirements-bench.txt, then pip install --no-deps --target build/trl-1.12 -r "
                       "requirements-bench-ppo.txt.")


def main(arguments: Sequence[str] | None = None) -> int:
    return turns.main("ppo_step", __doc__.partition("\n")[0], f"{COMPLETIONS} completions of {NEW_TOKENS} tokens",
                      {"trl": trl, "lab": lab, "groups": groups},
                      ("trl-fp32", "lab-fp32", "lab-bf16", "groups-fp32", "groups-bf16"), check_installed, arguments)


if __name__ == "__main__":
    sys.exit(main())
