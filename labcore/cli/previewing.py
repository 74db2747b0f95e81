"""The command `data`: preview the user's file as a model will read it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from labcore.catalog import kinds
from labcore.catalog.llm.tasks import VERIFIERS
from labcore.cli.adding import Add
from labcore.cli.commands import assignments
from labcore.cli.data_files import kept_data
from labcore.cli.terminal import computed
from labcore.runs.files.paths import path_of
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.tasks import preview
from labcore.tasks.file_kinds import kinds_of
from labcore.tasks.layouts import names_of

SHORT = 400  # characters of a text that is printed


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("data", preview_data, "your data as a model will read it: layout, rendered prompts, lengths in tokens, "
                                    "and rows that do not fit")
    sub.add_argument("data", metavar="FILE_OR_DATASET", help="JSONL, JSON, CSV or Parquet, also gzipped; or a dataset "
                     "of the Hugging Face hub: org/name or org/name:split")
    sub.add_argument("--model", default="tiny", help="tiny, small, medium, a Hugging Face folder or hub id, or RUN")
    sub.add_argument("--task", choices=("prompts", "preferences"), help="default: detected from the file")
    sub.add_argument("--map", metavar="NAME=FIELD[,…]", help="the file's names of the fields prompt, answer, chosen, "
                     "rejected, completion, label and system")
    sub.add_argument("--verifier", choices=VERIFIERS)
    sub.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="knobs", help="such as "
                     "template=chatml, system_prompt=TEXT or long_prompts=skip; may be repeated")
    sub.add_argument("--json", action="store_true", help="print JSON, including token ids")


def preview_data(options: argparse.Namespace) -> int:
    """Print what the job finds."""
    spec = _spec(options)
    result = computed(preview.asked(spec))
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        print("\n".join(_printed(result, spec)))
    return 0


def _spec(options: argparse.Namespace) -> RunSpec:
    knobs = assignments(options.knobs)
    knobs |= {"fields": options.map} if options.map else {}
    knobs |= {"verifier": options.verifier} if options.verifier else {}
    kept = kept_data(path_of(options.data))
    task = options.task or next(iter(kinds_of(kept, names_of(knobs))), "prompts")
    sft = next(row.key for row in kinds.kind("llm").algorithms.values() if row.loop == "sft")
    return make(algorithm_key=sft, task_key=task, model=model_of_name(options.model), knobs=knobs, data=str(kept))


def _printed(result: Mapping[str, Any], spec: RunSpec) -> Iterator[str]:
    for said in (*preview.findings(result, spec), *preview.of_answers(result, spec)):
        yield f"{'! ' if said.level == preview.WARNING else '  '}{said.text}"
    for row in result["shown"]:
        yield ""
        fields = ", ".join(f"{name} is the {what}" if name != what else name for name, what in row["fields"].items())
        yield f"Line {row['line']:,}: {fields}."
        if row.get("fault"):
            yield f"  {row['fault']}"
            continue
        yield f"  prompt, {_tokens(row['tokens'])}: {_text(row['prompt'])}"
        for answer in row["answers"]:
            yield f"  {answer['label']}, {_tokens(answer['tokens'])}: {_text(answer['pieces'])}"
        if "label" in row:
            yield f"  label: {'desired' if row['label'] else 'not desired'}"
        for name, value in row["columns"]:
            yield f"  {name}: {value}"


def _tokens(count: int) -> str:
    return f"{count:,} token{'s' if count != 1 else ''}"


def _text(pieces: list[list[Any]]) -> str:
    """Pieces as one line; line breaks are written out."""
    text = "".join(f" … {text} … " if kind == "gap" else text for text, _, kind in pieces)
    short = text if len(text) <= SHORT else f"{text[:SHORT // 2]} … {text[-SHORT // 2:]}"
    return short.replace("\n", "\\n")
