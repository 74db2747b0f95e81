"""`answer` and `batch`: let trained models answer, and compare online algorithms on one batch."""

from __future__ import annotations

import argparse
import json
from typing import Any

from labcore.analysis.compare.statistics import interval
from labcore.catalog.amounts import percent
from labcore.cli.adding import Add
from labcore.cli.comparing import lay_out
from labcore.cli.terminal import computed
from labcore.errors import LabError
from labcore.runs.models import spec_of
from labcore.runs.spec.model_names import parse

_MODEL = ("the id of a run, id@step, id@best (by held-out rows), base:id (the model that it started from) or "
          "start:id (the untrained weights)")


def add_to(add: Add) -> None:
    """Add both commands to the parser by its `add(name, command, help)`."""
    ask = add("answer", answer, "let models answer a prompt, or questions of their task, with the same random numbers")
    ask.add_argument("models", nargs="+", metavar="MODEL", help=_MODEL)
    what = ask.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="the prompt; --json adds the log-probs of each token, also under the base")
    what.add_argument("--questions", type=int, metavar="N", help="ask N problems of the runs' task instead")
    ask.add_argument("--answer", help="the right answer, for the verifier of the runs' task")
    ask.add_argument("--count", type=int, default=4, help="number of answers to the prompt")
    ask.add_argument("--temperature", type=float, default=1.0, help="0: greedy")
    ask.add_argument("--top-k", type=int, default=0, dest="top_k")
    ask.add_argument("--top-p", type=float, default=1.0, dest="top_p")
    ask.add_argument("--max-new-tokens", type=int, dest="max_new_tokens", help="default: the first run's")
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--json", action="store_true", help="print JSON")

    one = add("batch", batch, "compare the gradients and steps of online algorithms on one batch of a model")
    one.add_argument("model", metavar="MODEL", help=_MODEL)
    one.add_argument("--algorithms", metavar="KEY[,KEY…]", help="the algorithms to compare (default: all online ones)")
    one.add_argument("--prompts", type=int, default=16)
    one.add_argument("--group-size", type=int, default=8, dest="group_size")
    one.add_argument("--updates", type=int, default=0, help="updates on the batch before it is measured (μ > 1)")
    one.add_argument("--stepper", metavar="ALGORITHM", help="the algorithm of these updates (default: the run's own)")
    one.add_argument("--eval-prompts", type=int, default=512, dest="eval_prompts",
                     help="number of prompts on which the effect of a step is measured")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--json", action="store_true", help="print JSON, with the push on every token")


def answer(options: argparse.Namespace) -> int:
    """Print what the models answer."""
    if options.questions is not None and options.answer is not None:
        raise LabError("--answer needs --prompt: the task's own questions already have answers.")
    limit = options.max_new_tokens or int(spec_of(parse(options.models[0]).run).knobs["max_new_tokens"])
    shared = {"models": [parse(name).pinned.name for name in options.models], "temperature": options.temperature,
              "top_k": options.top_k, "top_p": options.top_p, "max_new_tokens": limit, "seed": options.seed}
    if options.questions is None:
        found = computed({"job": "answer", **shared, "prompt": options.prompt, "answer": options.answer,
                          "count": options.count})
        text = "\n".join(lay_out([["model", "", "log π", "log π/π_base", "answer"], *(
            [column["model"], mark(each), f"{each['logprob']:z.2f}", f"{each['logprob'] - each['base_logprob']:+z.2f}",
             repr(each["text"])] for column in found["columns"] for each in column["answers"])]))
    else:
        found = computed({"job": "quiz", **shared, "count": options.questions})
        text = "\n".join(lay_out([["model", "right", "share [95 %]"], *map(_share, found["columns"])]))
    print(json.dumps(found, ensure_ascii=False, indent=2) if options.json else text)
    return 0


def mark(each: dict[str, Any]) -> str:
    """Right, wrong, or nothing where nobody judged."""
    return "" if each["exact"] is None else "right" if each["exact"] else "wrong"


def _share(column: dict[str, Any]) -> list[str]:
    judged = [each["exact"] for each in column["answers"] if each["exact"] is not None]
    if not judged:
        return [column["model"], "–", "no verifier for this task"]
    low, high = interval(sum(judged), len(judged))
    return [column["model"], f"{sum(judged)} of {len(judged)}", f"{sum(judged) / len(judged):z.3f} "
                                                                f"[{low:z.3f}, {high:z.3f}]"]


def batch(options: argparse.Namespace) -> int:
    """Print cosines, norms and effects."""
    spec_of(parse(options.model).run)  # said here, before torch is brought in
    spec = {"job": "one_batch", **{key: getattr(options, key) for key in (
        "prompts", "group_size", "updates", "eval_prompts", "seed")}, "model": parse(options.model).pinned.name}
    spec |= {"stepper": options.stepper} if options.stepper else {}
    spec |= {"algorithms": options.algorithms.split(",")} if options.algorithms else {}
    found = computed(spec)
    print(json.dumps(found, ensure_ascii=False, indent=2) if options.json else "\n\n".join(_pages(found)))
    return 0


def _pages(found: dict[str, Any]) -> list[str]:
    rows, about = found["algorithms"], found["batch"]
    head = (f"{found['model']}: {about['prompts']} prompts × {about['group_size']}, {about['tokens']} tokens, mean "
            f"reward {about['reward']:z.3f}")
    if found["updates"]:
        head += f", after {found['updates']} update{'s' if found['updates'] > 1 else ''} by {found['stepper']}"
    cosines = lay_out([["cosine", *(row["key"] for row in rows), "norm", "loss", "clipped tokens"], *(
        [row["key"], *(_number(value) for value in line), f"{row['norm']:z.4f}", f"{row['loss']:+z.4f}",
         percent(row["clipped_frac"])]
        for row, line in zip(rows, found["cosines"], strict=True))], right=True)
    before = found["before"]["reward"]
    effects = lay_out([["one step", "length", "KL, nats/token", "Δ reward, resampled", "Δ reward, weighted"], *(
        [f"{row['key']} {kind}", f"{found['step_length'] if kind == 'equal' else effect['length']:z.4f}",
         *(f"{effect[key]['mean']:+z.4f} ± {effect[key]['se']:z.4f}" for key in ("kl", "resampled", "weighted"))]
        for row in rows for kind, effect in found["effects"][row["key"]].items() if effect)], right=True)
    return [head, "\n".join(cosines), "\n".join([
        f"reward before {before['mean']:z.4f} ± {before['se']:z.4f} (mean ± standard error over "
        f"{found['before']['prompts']} other prompts); equal: all steps have one length, own: the algorithm's own "
        "optimizer", *effects])]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:z.3f}"
