"""`cost`: the models that algorithms hold, their bytes, the time of their steps, and whether they fit on this machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from textwrap import wrap

from labcore.catalog import kinds
from labcore.catalog.amounts import duration, milliseconds
from labcore.catalog.amounts import size as in_bytes
from labcore.catalog.knob import suggestion
from labcore.cli.adding import Add
from labcore.cli.commands import assignments
from labcore.cli.terminal import computed
from labcore.errors import LabError, listed, quoted
from labcore.llm.sizing import cost, memory, step_time, ways
from labcore.llm.sizing.cost import Row
from labcore.llm.sizing.memory import Estimate, Sizes
from labcore.runs import jobs
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import RunSpec, default_threads, knobs_of, make

HEADS = ("Algorithm", "Models held", "Batch", "Weights", "Gradients + optimizer", "Activations", "Step", "× PPO")
WIDTH = 110  # of a line of words
NOTES = ("Counted, 4 bytes a number: weights (shared weights once), gradients, and AdamW's two moments.",
         "Measured: activations (peak memory for the backward pass), and the fastest of a few steps",
         "without evaluations, in processor time with one thread. × is the number of updates in a step. No algorithm",
         "holds an old policy: its log-probs are kept with the batch.")


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("cost", costs, "the models in memory, their bytes, and the time of a step on this machine, for each "
                             "algorithm")
    sub.add_argument("algorithms", nargs="*", metavar="ALGORITHM", help=f"default: {', '.join(cost.USUAL)}")
    sub.add_argument("--task", help="see: python -m labcore list")
    sub.add_argument("--model", help="tiny, small, medium, a Hugging Face folder or hub id, or RUN")
    sub.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="knobs",
                     help="a knob of all algorithms that have it; may be repeated")
    sub.add_argument("--threads", type=int, help="torch threads (default: 1 for the built-in models, else all cores)")
    sub.add_argument("--again", action="store_true", help="repeat existing measurements")
    sub.add_argument("--counted", action="store_true", help="measure nothing: print existing measurements")
    sub.add_argument("--json", action="store_true", help="print JSON")


def costs(options: argparse.Namespace) -> int:
    """Measure what was not yet, each in a process of its own, and print the table."""
    specs = _specs(options)
    held = computed(cost.held_asked(specs))["held"]
    if not options.counted:
        for row in cost.rows(specs, held):
            if row.held and (options.again or not row.measured):
                print(f"measuring {row.label} …", file=sys.stderr, flush=True)
                _measure(row.spec)
    rows = cost.rows(specs, held)
    needs = _needs(specs)
    if options.json:
        print(json.dumps({"rows": [{**cost.as_json(row, rows), "memory": memory.as_json(need)}
                                   for row, need in zip(rows, needs, strict=True)]}, ensure_ascii=False, indent=2))
    else:
        print("\n\n".join([table(rows), memory_table(needs), *filter(None, [times(specs)])]))
    return 0


def _specs(options: argparse.Namespace) -> list[RunSpec]:
    """A run of each algorithm. Raises LabError where one cannot be, or has none of the knobs."""
    usual = kinds.kind("llm")
    task_row = kinds.task(options.task or usual.task)
    keys = options.algorithms or [key for key in cost.USUAL if usual.algorithms[key].learns(task_row)]
    model, given = options.model and model_of_name(options.model), assignments(options.knobs)
    known = {key: [knob.key for knob in knobs_of(kinds.algorithm(key), task_row)] for key in keys}
    for knob in given:
        if not any(knob in own for own in known.values()):
            every = dict.fromkeys(key for own in known.values() for key in own)
            raise LabError(f"None of {listed(keys)} has a knob {quoted(knob)}: {suggestion(knob, list(every))}")
    threads = default_threads(model) if options.threads is None else options.threads
    return [make(algorithm_key=key, task_key=task_row.key, model=model, threads=threads,
                 knobs={knob: value for knob, value in given.items() if knob in known[key]}) for key in keys]


def _needs(specs: Sequence[RunSpec]) -> list[Estimate]:
    """The memory that the runs will need, and where one may not fit what to change."""
    found = computed(memory.asked(specs))["sizes"]
    needs = [memory.estimate(spec, sizes) for spec, sizes in zip(specs, found, strict=True)]
    return [ways.with_ways(need, computed(memory.asked([*ways.others(need.spec).values()]))["sizes"])
            if need.sure is False else need for need in needs]


def _measure(spec: RunSpec) -> None:
    """Have a process of its own measure a run, and wait for it."""
    asked = cost.cost_asked(spec)
    jobs.forget(jobs.job_id(asked))
    job = jobs.put(asked)
    forks = sys.platform == "linux"
    context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
    process = context.Process(target=jobs.perform, args=(job,))
    process.start()
    process.join()
    if not jobs.ended(job):
        jobs.fail(job, f"The process that measured it ended without a message (exit code {process.exitcode}): there "
                       "may "
                       "be too little memory, so try a smaller model or batch.")


def table(rows: Sequence[Row]) -> str:
    """The rows as text, and the meaning of the numbers."""
    text = _aligned([HEADS, *(_cells(row, rows) for row in rows)], words=3)
    faults = [f"{row.label}: {row.fault}" for row in rows if row.fault]
    return "\n".join([*text, "", *NOTES, *(["", *faults] if faults else [])])


def memory_table(needs: Sequence[Estimate]) -> str:
    """The memory that the runs need, a column each, and whether they fit."""
    there = [need for need in needs if need.parts]
    rows = zip(*(need.parts for need in there), strict=True)
    lines = [("Memory, estimated", "", *(need.spec.row.label for need in there)),
             *((row[0].name, row[0].when, *(in_bytes(part.size or None) for part in row)) for row in rows
               if any(part.size for part in row)),
             ("Peak", "", *(in_bytes(need.peak) for need in there))]
    said = [f"{need.spec.row.label}: {need.fault or f'{need.verdict()} {need.advice()}'.rstrip()}" for need in needs]
    return "\n".join([*_aligned(lines, words=2), "", *wrap(memory.ABOUT, WIDTH), "", *said])


def times(specs: Sequence[RunSpec]) -> str:
    """The estimated time of a step, and with which settings less; empty for the models that come with the lab."""
    told = [_time(spec) for spec in specs if step_time.asks(spec)]
    return "\n".join(["Estimated time of a step with completions of full length:", *told]) if told else ""


def _time(spec: RunSpec) -> str:
    lora = [other for way, other in step_time.alternatives(spec).items() if way[0][0] == "lora_rank"]
    found = [None if isinstance(size, str) else Sizes(**size)
             for size in computed(memory.asked([spec, *lora]))["sizes"]]
    if found[0] is None:
        return f"{spec.row.label}: unknown"
    asked = step_time.speed_asked(spec, found[0])
    if not jobs.ended(jobs.job_id(asked)):
        print(f"measuring the speed of this machine for {spec.row.label} …", file=sys.stderr, flush=True)
    speed = computed(asked)
    need = step_time.need(spec, found[0], speed)
    lighter = step_time.lighter(spec, found[0], found[1] if lora else None, speed)
    return "\n".join([f"{spec.row.label}: {duration(need.seconds)}, {spec.steps:,} steps: "
                      f"{duration(need.seconds * spec.steps)}", *(
                          f"  with {way.options}: {duration(way.need.seconds)} and at most {in_bytes(way.need.bytes)}"
                          for way in lighter)])


def _aligned(lines: Sequence[Sequence[str]], words: int) -> list[str]:
    """The lines as columns: the first ones are words and stand on the left, numbers on the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) if place < words else cell.rjust(width)
                      for place, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip() for line in lines]


def _cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    times = cost.times(row, rows)
    return (row.label, row.names(), row.batch, in_bytes(row.weights), in_bytes(row.learning),
            in_bytes(row.activations), milliseconds(row.seconds), "–" if times is None else f"{times:z.2f}")
