"""The two sides of `grpo_step`, each in a process of its own that takes its steps when it is told to.

A contender trains as its library does and calls `Turn.step_done` after every optimizer step; the call reports the
time and blocks until the next turn, so that while one side is timed the other one waits.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from labcore.catalog.models import MODELS

PEERS = ("trl", "accelerate", "datasets")
SIZES = {"0.8": MODELS["small"], "4.9": MODELS["medium"]}  # millions of parameters
BETA, LEARNING_RATE, PROMPTS, GROUP_SIZE, NEW_TOKENS = 0.04, 1e-6, 32, 8, 8
ENDLESS = 10_000_000  # steps: the driver says when it is enough


@dataclass(frozen=True)
class Times:
    """Seconds of each step of a turn, by the clock and of the processor, and the process's peak memory so far, MB."""

    wall: list[float]
    cpu: list[float]
    peak_rss: float


class Turn:
    """The contender's end of the pipe. A turn is the number of steps to take; 0 ends the process."""

    def __init__(self, pipe: Connection):
        self.pipe = pipe
        self._wait()

    def step_done(self) -> None:
        now, cpu = time.perf_counter(), time.process_time()
        self.wall.append(now - self.at[0])
        self.cpu.append(cpu - self.at[1])
        if len(self.wall) == self.steps:
            unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux KiB
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
            self.pipe.send(Times(self.wall, self.cpu, peak))
            self._wait()
        else:
            self.at = now, cpu

    def _wait(self) -> None:
        self.steps: int = self.pipe.recv()
        if not self.steps:
            raise SystemExit
        self.wall, self.cpu = [], []
        self.at = time.perf_counter(), time.process_time()


def enter(name: str, folder: Path, threads: int, pipe: Connection) -> None:
    """The child process of contender `name`, such as "lab-bf16"."""
    set_threads(threads)
    side, dtype = name.split("-")
    contender: Callable[[Path, str, int, Turn], None] = {"lab": lab, "trl": trl}[side]
    contender(folder, dtype, threads, Turn(pipe))


def set_threads(threads: int) -> None:
    """Before torch is imported, so that no pool of another size is ever made."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch

    torch.set_num_threads(threads)


def save_weights(size: str, folder: Path) -> None:
    """Write the Hugging Face folder that every contender starts from."""
    from labcore.llm.model import build, save
    from labcore.llm.tokenizer import character_tokenizer

    tokenizer = character_tokenizer()
    save(build(SIZES[size], tokenizer, seed=0), tokenizer, folder)


def lab(folder: Path, dtype: str, threads: int, turn: Turn) -> None:
    """Our run as the worker drives it: `Session.run` with everything that it logs."""
    from labcore.llm.session import Session
    from labcore.runs.spec import make

    spec = make(algorithm_key="grpo", task_key="add", model=str(folder), device="cpu", threads=threads, steps=ENDLESS,
                knobs={"beta": BETA, "learning_rate": LEARNING_RATE, "prompts_per_step": PROMPTS, "dtype": dtype,
                       "group_size": GROUP_SIZE, "max_new_tokens": NEW_TOKENS})
    for record in Session.start(spec).run():
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
    from labcore.worlds.task import Problem, make_task

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
