"""One optimizer step of GRPO, ours beside TRL's: `python -m benchmarks.grpo_step`.

Measured: the wall time from one optimizer step to the next, all that happens in between included, of a run as a user
has it: sampling, decoding, rewards, reference log-probs, forward, backward, clip, AdamW, and the metrics, samples and
surrogate lines that the lab logs on its way. Both sides start from the same Hugging Face folder (random weights),
read the same kind of prompt ("47+85=", six tokens), sample 32 prompts × 8 completions of at most 8 tokens and reward
them by the same function, with β = 0.04: the share of right digits, so that random weights earn something and groups
have signal, as in a run that learns. Gradient checkpointing, TRL's default, is off: that is the faster TRL.

    --device cuda --models llama-60m llama-342m qwen2-494m --prompts FILE

measures stock classes of that size instead (see `stock`) on the prompts of a JSONL file. A completion is right where
its last digit is below 5, which random weights earn half of the time: so every step has an update and a reference pass.
TRL samples with `generate`, without vLLM. Beside the ratios it says tokens per second, which share of the step the
memory would need to decode as many tokens at its own speed (an estimate, see `stock.Floor`), the peak memory of tensors
on the device, the phases of the lab's step, and whether it meets its goals. `--json FILE` writes all of that.
`--gradient-checkpointing` is for where TRL does not fit without. `--batch 32 64 64` is another batch: 32 prompts × 64
completions of at most 64 tokens. `--after-sft 60` starts both sides from weights that made 60 steps of SFT on the same
sums, as a run of the lab does: completions of a prompt then begin alike more often than those of random weights.

How the times are taken is said in `turns`.

Left out: start-up, the worker's store and checkpoints, learning (the learning rate is too small for it),
prompts of unequal length, and more than one machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks import stock, turns
from benchmarks.phases import timed
from benchmarks.turns import Row, Turn
from labcore import machine
from labcore.errors import LabError

PEERS = ("trl", "accelerate", "datasets")
BETA, LEARNING_RATE, PROMPTS, GROUP_SIZE, NEW_TOKENS = 0.04, 1e-6, 32, 8, 8
SUMS = {"digits": 2, "reward_shape": "shaped"}
ENDLESS = 10_000_000  # steps: the driver says when it is enough


@dataclass(frozen=True)
class Job:
    """What both sides do: the task with its batch, and where. `file` None: sums of two numbers, two digits each; else
    prompts, in the folder of the weights or elsewhere, with these `knobs`."""

    prompts: int = PROMPTS
    group_size: int = GROUP_SIZE
    new_tokens: int = NEW_TOKENS
    file: str | None = None
    device: str = "cpu"
    checkpointing: bool = False  # of TRL
    knobs: Mapping[str, Any] = field(default_factory=lambda: {"verifier": "regex", "pattern": r"[0-4][^0-9]*$"})

    def task(self, folder: Path) -> Any:
        from labcore.catalog.kinds import task
        from labcore.tasks.task import make_task

        if self.file:
            return stock.problems(str(folder / self.file), self.knobs)
        return make_task(task("add"), SUMS)

    def __str__(self) -> str:
        return f"{self.prompts} prompts × {self.group_size} completions of {self.new_tokens} tokens"


def lab(folder: Path, dtype: str, threads: int, turn: Turn, job: Job = Job()) -> None:
    """Our run as the worker drives it: `LlmSession.run` with everything that it logs."""
    from labcore.llm.session import LlmSession
    from labcore.runs.spec.run_spec import make

    spec = make(algorithm_key="grpo", task_key="prompts" if job.file else "add", model=str(folder), device=job.device,
                threads=threads, steps=ENDLESS, data=str(folder / job.file) if job.file else None,
                knobs={"beta": BETA, "learning_rate": LEARNING_RATE, "prompts_per_step": job.prompts, "dtype": dtype,
                       "group_size": job.group_size, "max_new_tokens": job.new_tokens, "updates_per_batch": 1,
                       **(job.knobs if job.file else SUMS)})
    before, session = 0, LlmSession.start(spec)
    with timed(turn.phase_done) if session.device.type == "cuda" else nullcontext():
        turn.ready()
        for record in session.run():
            if record is not None:
                turn.step_done(record.tokens - before)
                before = record.tokens


def trl(folder: Path, dtype: str, threads: int, turn: Turn, job: Job = Job(), callbacks: Sequence[Any] = (),
        settings: Mapping[str, Any] = MappingProxyType({})) -> None:
    """TRL's GRPOTrainer on the same weights, tokenizer, prompts and reward; with more callbacks and settings."""
    import numpy as np
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    from labcore.tasks.task import Problem

    logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # names that the next version will drop
    task, sampled = job.task(folder), []
    problems = task.problems(4096, np.random.default_rng(0))

    def reward(completions: list[str], answer: list[str], completion_ids: list[list[int]], **_) -> list[float]:
        sampled.append(sum(map(len, completion_ids)))
        return [task.score(Problem("", right), text).reward for text, right in zip(completions, answer, strict=True)]

    class Stepwise(TrainerCallback):
        def on_step_end(self, *_args, **_kwargs) -> None:
            turn.step_done(sampled.pop())

    usual: dict[str, Any] = {
        "output_dir": str(folder / "trl"), "per_device_train_batch_size": job.prompts * job.group_size,
        "num_generations": job.group_size, "max_completion_length": job.new_tokens, "beta": BETA,
        "learning_rate": LEARNING_RATE, "num_iterations": 1, "max_grad_norm": 1.0,
        "gradient_checkpointing": job.checkpointing, "bf16": dtype == "bf16", "use_cpu": job.device == "cpu",
        "max_steps": ENDLESS, "save_strategy": "no", "logging_strategy": "no", "report_to": "none",
        "disable_tqdm": True, "seed": 0}
    config = GRPOConfig(**usual | dict(settings))
    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), reward, config,
        train_dataset=Dataset.from_list([{"prompt": each.prompt, "answer": each.answer} for each in problems]),
        processing_class=AutoTokenizer.from_pretrained(folder), callbacks=[Stepwise(), *callbacks])
    turn.ready()
    trainer.train()


SIDES = {"trl": trl, "lab": lab}


def save_taught(steps: int, size: str, folder: Path) -> None:
    """Write the weights that both sides start from: random ones after `steps` of SFT on sums."""
    turns.save_weights(size, folder)
    if not steps:
        return
    from labcore.llm.nets.model import save
    from labcore.llm.session import LlmSession
    from labcore.runs.spec.run_spec import make

    session = LlmSession.start(make(algorithm_key="sft", task_key="add", model=str(folder), steps=steps,
                                    knobs={**SUMS, "sft_target": 1.0}))
    for _ in session.run():
        pass
    save(session.policy, session.tokenizer, folder)


def check_installed() -> None:
    """Raise LabError where the peer's packages are missing."""
    missing = [peer for peer in PEERS if find_spec(peer) is None]
    if missing:
        raise LabError(f"The benchmark needs {', '.join(missing)}, which the lab itself does without: "
                       "pip install -r requirements-bench.txt.")


def by_model(options: argparse.Namespace) -> None:
    """A table for each stock model, with what memory alone would allow."""
    if not options.prompts:
        raise LabError("Stock models need prompts: give --prompts FILE, JSONL with prompt (or question) and answer.")
    file, found = str(Path(options.prompts).resolve()), {}
    for model in options.models:
        job = Job(*(options.batch or stock.BATCHES[model]), file, options.device, options.gradient_checkpointing)
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # keeps torch out of this process
            floor, device = pool.apply(_floor_and_device, (model, file, options.device))
        report = turns.contest(options, f"{model} on {device}, {job}", partial(stock.save_weights, model, file),
                               {name: partial(side, job=job) for name, side in SIDES.items()})
        print(f"Copies on {device}: {floor.bandwidth / 1e9:.0f} GB/s. What decoding takes where memory is all that "
              "counts, an estimate:")
        for row in report:
            seconds = floor.token_seconds(job.prompts * job.group_size, job.new_tokens, row.name.partition("-")[2])
            share = job.new_tokens * seconds / row.seconds
            print(f"{row.name:10}{1e3 * seconds:.2f} ms a token, {share:.1%} of the step", flush=True)
        goals = [_told(model, row, job) for row in report if row.name == "lab-bf16"]
        print(*goals, sep="\n", end="\n" * bool(goals), flush=True)
        found[model] = {"device": device, "batch": [job.prompts, job.group_size, job.new_tokens],
                        "rows": [asdict(row) for row in report], "goals": stock.GOALS.get(model, {})}
        if options.json:  # after each model, so that nothing is lost where the next one fails
            Path(options.json).write_text(json.dumps(found, indent=1), "utf-8")


def _told(model: str, row: Row, job: Job) -> str:
    """The phases of our step, and its goals on a GPU with how they are met."""
    measured = stock.measured(row.phases, row.peak, job.new_tokens)
    lines = ["".join(f"{name} {1e3 * seconds:.0f} ms  " for name, seconds in row.phases.items())]
    lines += [f"{name}: {measured[name]:.2f}, goal {goal:g}: {'met' if measured[name] <= goal else 'not met'}"
              for name, goal in stock.GOALS.get(model, {}).items() if name in measured]
    return "\n".join(lines)


def _floor_and_device(model: str, file: str, device: str) -> tuple[stock.Floor, str]:
    import torch

    turns.set_threads(1)
    name = torch.cuda.get_device_name() if device == "cuda" else machine.processor() if device == "cpu" else device
    return stock.floor(model, file, device), name


def main(arguments: Sequence[str] | None = None) -> int:
    parser = turns.parser("grpo_step", __doc__.partition("\n")[0], SIDES, ("trl-fp32", "lab-fp32", "lab-bf16"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", nargs="+", choices=stock.MODELS, default=[], help="stock classes in place of sizes")
    parser.add_argument("--prompts", metavar="FILE", help="for --models: JSONL with prompt (or question) and answer")
    parser.add_argument("--json", metavar="FILE", help="for --models: write the numbers there")
    parser.add_argument("--batch", nargs=3, type=int, metavar=("PROMPTS", "GROUP", "TOKENS"),
                        help="prompts, completions of each, new tokens (each of --models has its own)")
    parser.add_argument("--after-sft", type=int, default=0, metavar="STEPS",
                        help="SFT of the weights beforehand; not for --models")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="for --models: TRL's")
    options = parser.parse_args(arguments)

    def run() -> None:
        if options.models:
            by_model(options)
        if options.sizes or not options.models:
            job = Job(*(options.batch or ()), device=options.device)
            turns.by_size(options, str(job), {name: partial(side, job=job) for name, side in SIDES.items()},
                          partial(save_taught, options.after_sft))
    return turns.reported(run, options, check_installed)


if __name__ == "__main__":
    sys.exit(main())
