"""Ids of prompts and of examples are those of TRL 1.16 for the same rows, made by `tests.golden.trl_ids`.

Different on purpose:

* A plain text for a model with a chat template is a user's turn in the lab, unless template=off; TRL leaves it so.
* Where a template has no place for a system turn, TRL's run ends with the template's error; the lab puts the text
  before the user's.
* Of a template without marks that TRL does not know, TRL learns no answers alone; the lab does.
"""

import json
from functools import cache
from pathlib import Path

import torch

from labcore.llm.rendering import Rendering, encode_answers, encode_examples, encode_prompts
from labcore.tasks.preferences import Preferences
from labcore.tasks.prompts import Prompts
from labcore.tasks.task import Pair, Problem, Single
from tests.every import every
from tests.llm.tokenizers import TOKENIZERS, Model
from tests.references import golden

GOLDEN = golden("trl_ids")
CPU, CONTEXT = torch.device("cpu"), 10_000
KNOBS = {"verifier": "length", "length_low": 0, "length_high": 9}
CASES = {(tokenizer, kind, name): made for tokenizer, kinds in GOLDEN["ids"].items() for kind, rows in kinds.items()
         for name, made in rows.items()}
REFUSED = {case for case, made in CASES.items() if "refused" in made}


def rendering(tokenizer: str, name: str, **knobs) -> Rendering:
    return of(made(tokenizer), name, **knobs)


def of(tokenizer, name: str, **knobs) -> Rendering:
    return Rendering.of(tokenizer, Model(), {"template": "off" if name.startswith("text") else "auto", **knobs})


@cache
def made(tokenizer: str):
    return TOKENIZERS[tokenizer]()


def read(folder: Path, kind: str, row: dict) -> Problem | Pair | Single:
    """The row as the lab reads it from a file."""
    file = folder / "rows.jsonl"
    lines = [row, {**row, "label": not row["label"]}] if "label" in row else [row]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = Preferences({}, file) if kind in ("pair", "single") else Prompts(KNOBS, file)
    return task.rows[0]


def listed(ids, mask) -> list[int]:
    return ids[0][mask[0]].tolist()


def made_by_the_lab(found: Rendering, kind: str, row: Problem | Pair | Single) -> dict:
    """What the loops learn from, as the golden file has it."""
    if kind == "prompt":
        prompts = encode_prompts(found, [row], CONTEXT, CPU)
        return {"ids": listed(prompts.ids, prompts.mask)}
    if kind in ("completion", "messages"):
        examples = encode_examples(found, [row], CONTEXT, CPU)
        prompt, answers = listed(examples.prompts.ids, examples.prompts.mask), examples.answers
        return {"ids": [*prompt, *answers.ids[0].tolist()],
                "learnt": [*[0] * len(prompt), *answers.mask[0].int().tolist()]}
    sides = {"pair": ("chosen", "rejected"), "single": ("completion",)}[kind]
    prompts, answers = encode_answers(found, [row], [getattr(row, side) for side in sides], CONTEXT, CPU)
    return {"prompt": listed(prompts.ids, prompts.mask), **{
        side: answers.ids[at][answers.mask[at]].tolist() for at, side in enumerate(sides)}}


@every("tokenizer, kind, name", [case for case in CASES if case not in REFUSED])
def test_ids_and_loss_masks_are_those_of_trl(tmp_path, tokenizer, kind, name):
    expected = CASES[tokenizer, kind, name]
    row = read(tmp_path, kind, GOLDEN["rows"][kind][name])
    compare(rendering(tokenizer, name), kind, row, expected)
    if kind == "prompt":
        found = made_by_the_lab(rendering(tokenizer, name, thinking="off"), kind, row)
        assert found["ids"] == expected["without thinking"]


def compare(found: Rendering, kind: str, row: Problem | Pair | Single, expected: dict) -> None:
    ours = made_by_the_lab(found, kind, row)
    assert ours == {key: expected[key] for key in ours}
    if kind == "pair":
        assert [ours["prompt"] + ours[side] for side in ("chosen", "rejected")] == expected["scored"]


def test_what_trl_refuses_the_lab_can_learn_from(tmp_path):
    assert {(tokenizer, kind if name == "system" else "messages") for tokenizer, kind, name in REFUSED} == {
        *(("no system", kind) for kind in ("prompt", "completion", "messages", "pair")),
        ("strips thinking", "messages")}
    for tokenizer, kind, name in REFUSED:
        row = read(tmp_path, kind, GOLDEN["rows"][kind][name])
        assert made_by_the_lab(rendering(tokenizer, name), kind, row)
