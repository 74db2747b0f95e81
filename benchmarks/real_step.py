"""One step of GRPO on a real model, ours beside TRL's: `python -m benchmarks.real_step --model DIR`.

Both sides start from the same Hugging Face folder, sample completions of the same prompts and give them the same
reward. The prompts are sums, written by the model's own chat template where it has one. The folder is given an end
token that no model samples, so every completion has the full length. Measured, by the clock and in processor time:

    first      the first step of the run, without start-up
    ordinary   the median of the later steps
    mean       of all steps, the first one included: here count the lab's probes, which wait until the run's time pays
               for them, so a short run has few
    peak       memory of the process

The lab logs all that it logs in a run, probes included. TRL samples with `generate`; its gradient checkpointing, the
default, is off, since that is the faster TRL. How the times are taken is said in `turns`.

Left out: start-up, the worker's store and checkpoints, and learning (the learning rate is too small for it).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import turns
from benchmarks.grpo_step import SIDES, Job, check_installed
from benchmarks.turns import Times
from labcore import machine
from labcore.errors import LabError
from labcore.runs.files import atomic

PROMPTS_FILE, ROWS = "prompts.jsonl", 512
REWARD = {"verifier": "contains", "pattern": "1", "template": "off",  # about half of the completions: groups differ
          "held_out": 0.0}  # TRL's trainer evaluates nothing before its first step
WITH_END = ("config.json", "generation_config.json")
THREADS = (1, 2)  # a table for each, where none is chosen
BATCH = (4, 8, 32)  # prompts, completions of each, tokens of each


def save(model: str, folder: Path) -> None:
    """Write the folder that both sides start from: the model's files as links, another end token, and the prompts."""
    from transformers import AutoTokenizer

    for path in Path(model).iterdir():
        if path.is_file():
            atomic.link(path.resolve(), folder / path.name)
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = [{"prompt": _prompt(tokenizer, f"What is {10 + n % 83} + {10 + 7 * n % 89}? Answer with a number."),
             "answer": str(20 + n % 83 + 7 * n % 89)} for n in range(ROWS)]
    (folder / PROMPTS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    end = _unused(tokenizer, rows[0]["prompt"])
    for name in WITH_END:
        _set(folder / name, {"eos_token_id": tokenizer.convert_tokens_to_ids(end)})
    _set(folder / "tokenizer_config.json", {"eos_token": end})


def _prompt(tokenizer: Any, text: str) -> str:
    if not tokenizer.chat_template:
        return text
    written: str = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                                 add_generation_prompt=True)
    return written


def _unused(tokenizer: Any, prompt: str) -> str:
    """A token that is not sampled: a special one that neither prompts nor the model's turns have, or the last one."""
    special = [token for token in tokenizer.all_special_tokens if token not in prompt and token != tokenizer.eos_token]
    last: str = tokenizer.convert_ids_to_tokens(len(tokenizer) - 1)
    return special[-1] if special else last


def _set(path: Path, values: Mapping[str, Any]) -> None:
    """Change a JSON file of the folder, which is a link to the model's own until then."""
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    atomic.write_text(path, json.dumps({**content, **values}))


def cpu_times(times: Times) -> Times:
    """The same turn with the processor's time in place of the clock's."""
    return replace(times, wall=times.cpu)


def table(first: Mapping[str, Times], rounds: Mapping[str, Sequence[Times]]) -> str:
    """The report for the eye; ratios are to the first contender, of seconds how many times faster."""
    found = {name: _row(first[name], turns_of) for name, turns_of in rounds.items()}
    base = next(iter(found.values()))
    lines = [f"{'':10}" + "".join(f"{key:>19}" for key in base)]
    for name, row in found.items():
        cells = [f"{row[key]:,.0f} MB ({row[key] / base[key]:.2f})" if key == "peak" else
                 f"{row[key]:.2f} s ({base[key] / row[key]:.2f}×)" for key in row]
        lines.append(f"{name:10}" + "".join(f"{cell:>19}" for cell in cells))
    return "\n".join(lines)


def _row(first: Times, rounds: Sequence[Times]) -> dict[str, float]:
    later = [seconds for turn in rounds for seconds in turn.wall]
    return {"first": first.wall[0], "ordinary": median(later), "mean": mean([*first.wall, *later]),
            "peak": max(turn.peak for turn in (first, *rounds))}


def contest(options: Any) -> None:
    """Measure and print a table for each number of threads."""
    if not options.model or not Path(options.model).is_dir():
        raise LabError("Give --model DIR: the folder of a Hugging Face model.")
    job = Job(*options.batch, PROMPTS_FILE, knobs=REWARD)
    sides = {name: partial(side, job=job) for name, side in SIDES.items()}
    for threads in [options.threads] if options.threads else THREADS:
        print(f"{Path(options.model).name} on {machine.processor()}, {job}, {options.rounds} rounds of {options.steps} "
              f"steps after the first, {threads} thread(s)", flush=True)
        first: dict[str, Times] = {}
        rounds = turns.measure(partial(save, options.model), sides, options.contenders, options.rounds, options.steps,
                               threads, warm_up=1, first=first)
        print(table(first, rounds), flush=True)
        print("in processor time, which other programs on the machine disturb less:", flush=True)
        print(table({name: cpu_times(turn) for name, turn in first.items()},
                    {name: [cpu_times(turn) for turn in each] for name, each in rounds.items()}), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = turns.parser("real_step", __doc__.partition("\n")[0], SIDES, ("trl-fp32", "lab-fp32"))
    parser.set_defaults(rounds=4, steps=5, threads=None)
    parser.add_argument("--model", metavar="DIR", help="the folder of a Hugging Face model, such as an instruct model")
    parser.add_argument("--batch", nargs=3, type=int, default=BATCH, metavar=("PROMPTS", "GROUP", "TOKENS"))
    options = parser.parse_args(arguments)
    return turns.reported(partial(contest, options), options, check_installed)


if __name__ == "__main__":
    sys.exit(main())
