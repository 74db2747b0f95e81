"""The prompts of the user's own preference pairs, for RL to answer: the chosen sides stand as the answers."""

from __future__ import annotations

import json

from labcore.runs.files import uploads
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.task import make_task

NAME = "prompts_of_pairs.jsonl"


def of_pairs(spec: RunSpec) -> str:
    """The path of an upload with each prompt of the pairs of `spec` once. Raises LabError where a file is unfit."""
    whole = {**spec.knobs, "held_out": 0.0, "held_out_file": ""}  # the run on the prompts holds its own share out
    rows = getattr(make_task(spec.task_row, whole, spec.data), "rows", ())
    answers = {row.prompt: row.chosen for row in reversed(rows)}
    lines = [json.dumps({"prompt": row.prompt, "answer": row.chosen}, ensure_ascii=False)
             for row in rows if answers.pop(row.prompt, None) is not None]
    return str(uploads.keep(NAME, "".join(f"{line}\n" for line in lines).encode()))
