"""The user's file and its conversations as Python that stands alone: what a script brings where the run's model has a
chat template, or its file another layout than one line with prompt and answer.

The layouts are the lab's own module, copied; so a script reads a file as the run did.
"""

from __future__ import annotations

from pathlib import Path

from labcore.exports.handover.plan import Plan, learns_answers
from labcore.exports.handover.sources import source
from labcore.runs.files.untrusted import json_of
from labcore.tasks import layouts, reward_call, task
from labcore.tasks.layouts import names_of

READER = "class Entry:"  # a line of the code that reads a file, which needs these:
IMPORTED = ("csv", "gzip", "json")
FROM = ("from collections.abc import Iterable, Mapping, Sequence", "from dataclasses import dataclass, field, replace",
        "from itertools import islice", "from typing import Any, NamedTuple")
GIVEN_OTHERWISE = tuple(sorted(reward_call.HIDDEN))  # fields of a row that no reward function gets as a column
_AROUND = '''

class LabError(SystemExit):
    """A row that cannot be used: the script ends with the sentence."""


def quoted(value: Any) -> str:
    return repr(value)[:80]

'''
_ROWS = '''

DATA = {data!r}  # your file
NAMES = {names!r}  # which of its fields is which, where they are called otherwise


def rows() -> list[Entry]:
    """The rows of your file, read as the lab reads them."""
    kind = Path(DATA.removesuffix(".gz")).suffix
    if kind == ".parquet":
        import pandas

        found = json.loads(pandas.read_parquet(DATA).to_json(orient="records"))
    else:
        with (gzip.open if DATA.endswith(".gz") else open)(DATA, "rt", encoding="utf-8-sig", newline="") as file:
            if kind in (".csv", ".tsv"):
                found = [*csv.DictReader(file, delimiter="," if kind == ".csv" else "\\t")]
            else:
                text = file.read()
                whole = text.lstrip().startswith("[")
                found = json.loads(text) if whole else [json.loads(line) for line in text.split("\\n") if line.strip()]
    read = [replace(entry(row, f"row {{number}} of {{DATA}}", NAMES, {labelled}), columns=row)
            for number, row in enumerate(found, start=1)]
    return [each for row in read for each in answers(row)]


def answers(row: Entry) -> list[Entry]:
    """The row, of a whole conversation once for each answer that is learnt."""
    said = [place for place, turn in enumerate(row.turns) if turn.role == "assistant" and place] if {every} else []
    before = [replace(row, turns=row.turns[:place], answer=row.turns[place].content) for place in said if row.whole]
    return [*before, row]


def asked(row: Entry) -> str | list[dict[str, str]]:
    """A prompt: a text, or the turns of a conversation."""
    return [turn._asdict() for turn in row.turns] or row.prompt


def drawn(found: list, count: int, seed: int) -> list:
    """`count` of them at random: none twice while there are enough."""
    rng = random.Random(seed)
    return rng.sample(found, count) if count <= len(found) else rng.choices(found, k=count)


def problems(count: int, seed: int = 0) -> list[dict]:
    """Prompts of your file with their answers, and its other columns for reward functions."""
    found = {kept}
    others = dict.fromkeys(name for row in found for name in row.columns if name not in {hidden!r})
    return [{{**{{name: row.columns.get(name) for name in others}}, "prompt": asked(row), "answer": {answer}}}
            for row in drawn(found, count, seed)]
'''
_PAIRS = '''

def pairs(count: int, seed: int = 0) -> list[dict]:
    """Pairs of your file, or single completions with their labels."""
    return [{"prompt": asked(row), **{key: getattr(row, key) for key in ("chosen", "rejected", "completion", "label")
                                      if getattr(row, key) is not None},
             **{key: float(row.columns[key]) for key in ("margin",) if key in row.columns}}
            for row in drawn(rows(), count, seed)]
'''
_ANSWER = '"reference": own_answer(renamed(row.columns, DATA, NAMES), DATA)'  # learnt beside both sides
_TURNS = '''

SYSTEM = {system!r}  # in front of conversations that have no system turn of their own; empty: none
TEMPLATE_ARGUMENTS = {arguments!r}


def turns(prompt: str | list[dict[str, str]]) -> list[dict[str, str]]:
    """A prompt as the model's chat template takes it."""
    found = [{{"role": "user", "content": prompt}}] if isinstance(prompt, str) else prompt
    return [{{"role": "system", "content": SYSTEM}}, *found] if SYSTEM and found[0]["role"] != "system" else found


def conversational(rows: list[dict]) -> list[dict]:
    """Prompts and completions as turns; the model's chat template writes them, with the end of each."""
    def told(key: str, value):
        if key == "prompt":
            return turns(value)
        return [{{"role": "assistant", "content": value}}] if key in {sides!r} else value

    more = {{"chat_template_kwargs": TEMPLATE_ARGUMENTS}} if TEMPLATE_ARGUMENTS else {{}}
    return [{{**{{key: told(key, value) for key, value in row.items()}}, **more}} for row in rows]
'''


def reads_layouts(plan: Plan) -> bool:
    """Whether a script must read the user's file as the lab does: no line with prompt and answer will do."""
    if not plan.spec.task_row.data or plan.spec.task_row.source.endswith(":Text"):
        return False
    return plan.chat or bool(plan.get("fields")) or not _simple(Path(str(plan.spec.data)))


def _simple(file: Path) -> bool:
    """Whether the first line of a file has texts under the usual names; one that is not here counts as such."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            first = json_of(next(lines)) if file.suffix == ".jsonl" else {}
    except (OSError, ValueError, StopIteration):
        return file.suffix == ".jsonl"
    return isinstance(first, dict) and isinstance(first.get("prompt", first.get("question")), str) and not any(
        isinstance(first.get(name), list) for name in ("answer", "completion", "chosen", "rejected"))


def code(plan: Plan, every_answer: bool, labelled: bool) -> str:
    """The code that reads the user's file. `every_answer`: each answer of a whole conversation becomes a row of its
    own."""
    verifiable = plan.spec.task_row.verifiable
    body = _AROUND + source(task, "Turn", "Turns") + source(layouts) + _ROWS.format(
        data=Path(str(plan.spec.data)).name, names=names_of(plan.spec.knobs), every=every_answer and verifiable,
        labelled=not verifiable, kept="rows()" if verifiable else "[row for row in rows() if row.label is not False]",
        hidden=GIVEN_OTHERWISE,
        answer='row.answer or ""' if verifiable else "row.chosen if row.chosen is not None else row.completion")
    more = f", {_ANSWER}" if learns_answers(plan) else ""
    return body + (_PAIRS.replace('"prompt": asked(row)', f'"prompt": asked(row){more}') if labelled else "")


def turns_code(plan: Plan, arguments: bool = False) -> str:
    """The code that turns rows into conversations; with `arguments`, those of the template go with every row."""
    sides = ("chosen", "rejected", "completion", "reference") if plan.loop != "online" else ()  # online: columns
    return _TURNS.format(system=plan.get("system_prompt", ""), sides=sides,
                         arguments=thinking(plan) if arguments else {})


def thinking(plan: Plan) -> dict[str, bool]:
    """The argument by which templates switch thinking; empty where that is theirs to say."""
    return {"on": {"enable_thinking": True}, "off": {"enable_thinking": False}}.get(str(plan.get("thinking")), {})
