"""Plans of every algorithm, and a folder with a model that knows the letters of the built-in tasks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.tasks import TASKS
from labcore.exports.handover.plan import Plan
from labcore.runs.spec.run_spec import make

SUMS = [{"prompt": "1+2=", "answer": "3"}, {"question": "2+2=", "answer": 4}, {"prompt": "3+2=", "answer": "5"}]
PAIRS = [{"prompt": "ab=", "chosen": "ab", "rejected": "ba"}, {"prompt": "cb=", "chosen": "bc", "rejected": "cb"}]


FILES = {"prompts": "sums.jsonl", "preferences": "pairs.jsonl", "text": "book.txt"}


def written(folder: Path) -> None:
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in SUMS))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    (folder / "book.txt").write_text("abc=" * 100)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The user's files, in the working directory that the scripts are started in."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    return FILES


def plan(algorithm: str, task: str = "sort", files: dict[str, str] | None = None, **more) -> Plan:
    """A plan as `plan_of` makes it; `files` are the user's."""
    knobs = more.pop("knobs", {})
    if task == "text":
        knobs = {"verifier": "contains", "pattern": "b", "prompt_length": 4, "piece_length": 12} | knobs
    spec = make(algorithm_key=algorithm, task_key=task, knobs=knobs, data=(files or {}).get(TASKS[task].data), **more)
    return Plan(f"{algorithm}-{task}-ab12", spec)


# What the engine does otherwise than by itself, as on a large model.
ENGINE = {"gradient_checkpointing": True, "optimizer": "adamw_8bit", "compile": True, "dtype": "bf16",
          "lora_rank": 8, "rollouts": "vllm", "importance_cap": 2.0}


def switched(each: Plan, **knobs) -> Plan:
    """The same with other knobs, as far as it has them; also where this machine could not run it."""
    return replace(each, spec=replace(each.spec, knobs=each.spec.knobs | {
        key: value for key, value in knobs.items() if key in each.spec.knobs}))


@pytest.fixture(scope="session")
def planned(tmp_path_factory) -> tuple[Path, list[Plan]]:
    folder = tmp_path_factory.mktemp("files")
    written(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = [plan(algorithm, task, FILES) for algorithm, task in fitting()]
        return folder, made + [replace(switched(each, **ENGINE), run=f"{each.run}-engine") for each in made]


@pytest.fixture
def plans(planned, monkeypatch) -> list[Plan]:
    """The plans of all that `fitting` names, as they are and with ENGINE, made once, in the working directory with the
    user's files."""
    folder, made = planned
    monkeypatch.chdir(folder)
    return made


def fitting() -> list[tuple[str, str]]:
    """Every algorithm with a task, and every task with an algorithm of each loop that learns it: a knob belongs to the
    one or the other, and what a task says of knobs it says to a loop. One task with turns, with an online algorithm."""
    there = [(row, task) for row in ALGORITHMS.values() for task in TASKS.values()
             if row.learns(task) and not task.has_turns]
    by_row, by_loop = ({key(row, task): (row.key, task.key) for row, task in reversed(there)} for key in (
        lambda row, task: row.key, lambda row, task: (row.loop, task.key)))
    found = {*by_row.values(), *by_loop.values()}
    return [*(pair for row, task in there if (pair := (row.key, task.key)) in found), ("grpo", "guess")]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A tiny model as an export holds it, untrained."""
    from labcore.catalog.llm.models import MODELS
    from labcore.llm.nets.model import build, save
    from labcore.llm.nets.tokenizer import character_tokenizer

    tokenizer = character_tokenizer("abcdefghijklmnopqrstuvwxyz0123456789+=")
    folder = tmp_path_factory.mktemp("model") / "checkpoint"
    save(build(MODELS["tiny"], tokenizer, 0), tokenizer, folder)
    return folder
