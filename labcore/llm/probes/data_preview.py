"""Preview the user's data as the model will read it: render and tokenise the first rows, and compute statistics of all
rows. No weights are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from labcore.catalog.knob import Value
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError, cut, first_line
from labcore.llm.fitting import Misfit, misfits, system_in_user_turn
from labcore.llm.nets.folder import config_of, find
from labcore.llm.nets.tokenizer import character_tokenizer, check_end, load_tokenizer
from labcore.llm.rendering import ASSISTANT, SYSTEM, USER, Rendering
from labcore.llm.templates import own_template
from labcore.runs.files import storage
from labcore.runs.files.adapters import base_of, is_adapter
from labcore.runs.files.rows import read_rows
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.file_statistics import statistics_of_rows
from labcore.tasks.layout_names import Described, described
from labcore.tasks.layouts import names_of
from labcore.tasks.task import Pair, Problem, Single, TextTask, make_task
from labcore.tasks.usable import OWN, SKIP, OfFile
from labcore.tasks.verifiers import answer_fault

# ---------------------------------------------------------------- reader
# Load what a run needs to write its prompts, without the weights: tokenizer, chat template and context length.


@dataclass(frozen=True)
class Reader:
    """`context` is the tokens that a prompt and its completion may take together."""

    rendering: Rendering
    context: int


@dataclass(frozen=True)
class _Ends:
    generation_config: Any


def reader_of(model: str, task: TextTask, knobs: Mapping[str, Any]) -> Reader:
    """The reader of a run of `model` on `task` with these knobs: the same ids as its session. Raises LabError if there
    is no such model, or its tokenizer or its configuration cannot be used."""
    if model in MODELS:
        tokenizer: PreTrainedTokenizerBase = character_tokenizer(task.characters)
        return Reader(Rendering.of(tokenizer, _Ends(None), knobs), MODELS[model].context)
    folder = find(model, weights=False)
    if is_adapter(folder):
        folder = find(base_of(folder), weights=False)
    tokenizer = load_tokenizer(folder)
    check_end(tokenizer, folder)
    config = _config(folder)
    context = getattr(config.get_text_config(), "max_position_embeddings", None) or tokenizer.model_max_length
    return Reader(Rendering.of(tokenizer, _Ends(_generation(folder, config)), knobs), int(context))


def _config(folder: Path) -> Any:
    config_of(folder)  # says in words what is wrong with the file
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise LabError(f"The configuration in {folder} cannot be used ({first_line(error)[:200]}): copy the model "
                       "again.") from error


def _generation(folder: Path, config: Any) -> GenerationConfig:
    """As `from_pretrained` of a model has it."""
    with suppress(OSError, ValueError, TypeError):  # a damaged one is none there either
        return GenerationConfig.from_pretrained(folder, local_files_only=True)
    return GenerationConfig.from_model_config(config)


# ---------------------------------------------------------------- pieces
# A rendered prompt as the pieces of text that its tokens stand for, to be looked at.
#
# Special tokens, the template's own text and what the file says are told apart. Tokens that are parts of one character,
# as byte-level tokenizers have them, are one piece.

SPECIAL, TEMPLATE, TEXT, GAP = "special", "template", "text", "gap"
FIRST, LAST = 180, 60  # pieces of a text that are shown
Piece = tuple[str, list[int], str]  # the text, the ids of its tokens, and its kind


def pieces(rendering: Rendering, text: str, contents: Sequence[str], skip: int = 0) -> list[Piece]:
    """The pieces of a rendered `text` without its first `skip` tokens; `contents` are the texts of its turns, in order.
    """
    tokenizer = rendering.tokenizer
    ids = rendering.encoded(text)
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {*tokenizer.all_special_ids, *(token for token, about in added.items() if about.special)}
    spans = _spans(text, contents)
    found: list[Piece] = []
    end = 0
    for place, (token, (start, stop)) in enumerate(zip(ids, _offsets(rendering, text, ids), strict=True)):
        if place < skip:
            end = max(end, stop)
            continue
        if found and start < end and token not in special:  # a further byte of the same character
            found[-1][1].append(token)
            continue
        kind = (SPECIAL if token in special or start == stop
                else TEXT if any(first <= start < last for first, last in spans) else TEMPLATE)
        found.append((text[max(start, end):stop] if stop > start else str(tokenizer.convert_ids_to_tokens(token)),
                      [token], kind))
        end = max(end, stop)
    return found


def shortened(found: Sequence[Piece]) -> list[Piece]:
    """The first and the last pieces, and between them how many tokens are not shown."""
    if len(found) <= FIRST + LAST:
        return [*found]
    between = sum(len(ids) for _, ids, _ in found[FIRST:-LAST])
    return [*found[:FIRST], (f"{between:,} tokens", [], GAP), *found[-LAST:]]


def _offsets(rendering: Rendering, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Where each token stands in the text; of a tokenizer that does not say it, as far as its tokens' texts tell."""
    tokenizer: Any = rendering.tokenizer
    if tokenizer.is_fast:
        given = tokenizer(text, return_offsets_mapping=True, **rendering.encoding)
        return [(int(start), int(stop)) for start, stop in given["offset_mapping"][:len(ids)]]
    places, end = [], 0
    for token in ids:
        said = tokenizer.decode([token])
        at = text.find(said, end) if said else -1
        places.append((at, at + len(said)) if at >= 0 else (end, end))
        end = max(end, places[-1][1])
    return places


def _spans(text: str, contents: Sequence[str]) -> list[tuple[int, int]]:
    """The position of each content in the rendered text; a template may strip the whitespace around a content."""
    spans, end = [], 0
    for content in contents:
        inner = content if text.find(content, end) >= 0 else content.strip()
        if inner and (at := text.find(inner, end)) >= 0:
            end = at + len(inner)
            spans.append((at, end))
    return spans


# ---------------------------------------------------------------- data preview

SHOWN, NAMED = 5, 20  # rows that are shown, and at most so many lines that are named
MEASURED = 4096  # rows at most whose lengths in tokens are counted
AT_ONCE = 256  # of them
BINS = 16
LONGEST_COLUMN = 60  # characters of a text that is shown
# All rows are looked at, held out or not, and those that a run would refuse.
LENIENT: dict[str, Value] = {"unusable_rows": SKIP, "verifier": "length", "held_out": 0.0, "held_out_file": ""}
Row = Problem | Pair | Single


def data_preview(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job for `spec`, a RunSpec as JSON. A task without a file shows only some of its own prompts. Raises LabError
    if the model's tokenizer or the file cannot be used."""
    run = RunSpec.from_json(str(spec["spec"]))
    task = make_task(run.task_row, run.knobs if run.data is None else {**run.knobs, **LENIENT}, run.data)
    reader = reader_of(run.model, task, run.knobs)
    room = max(1, reader.context - int(run.knobs["max_new_tokens"]))
    about = {"context": reader.context, "room": room, "template": _template(reader.rendering),
             "has_template": own_template(reader.rendering.tokenizer) is not None}
    if not isinstance(task, OfFile):
        some = task.problems(min(SHOWN, task.size or SHOWN), np.random.default_rng(run.seed))
        return about | {"shown": [_shown(reader.rendering, row) for row in some]}
    assert run.data
    each = _layouts(storage.fetch(Path(run.data)), run)
    unjudged = [(row.line or 0, fault) for row in task.every.rows
                if isinstance(row, Problem) and (fault := answer_fault(run.knobs, row.answer))]
    return about | _whole(task, reader, room, each) | {
        "unjudged": _named(unjudged), "answered": any(_answers(row) for row in task.every.rows),
        "shown": [_shown(reader.rendering, row) | _of_layout(each[row.line or 0], row)
                  for row in task.every.rows[:SHOWN]]}


def _template(rendering: Rendering) -> str:
    own = own_template(rendering.tokenizer)
    return "none" if rendering.template is None else "own" if rendering.template == own else "chatml"


def _layouts(path: Path, run: RunSpec) -> dict[int, Described]:
    """The layout of each usable row, by its line."""
    names, labelled = names_of(run.knobs), run.task_row.pairs

    def read(value: Mapping[str, Any], line: int) -> tuple[int, Described]:
        return line, described(value, f"line {line} of {path.name}", names, labelled)
    return dict(read_rows(path, read, []))


# ---- all rows --------------------------------------------------------------------------------------------------


def _whole(task: OfFile, reader: Reader, room: int, each: Mapping[int, Described]) -> dict[str, Any]:
    """The numbers of all rows of the file."""
    rows: Sequence[Row] = task.every.rows
    seen = statistics_of_rows(rows)
    found = misfits(reader.rendering, rows, room)
    faults, long = [each for each in found if each.fault], [each for each in found if each.tokens]
    refused = {id(misfit.row) for misfit in faults}
    good = [row for row in rows if id(row) not in refused]
    some = good[::max(1, -(-len(good) // MEASURED))]  # spread over the file
    layouts: dict[str, list[int]] = {}
    for row in rows:
        layouts.setdefault(each[row.line or 0].layout, []).append(row.line or 0)
    return {
        "rows": len(rows), "layouts": [[name, len(lines), lines[0]] for name, lines in layouts.items()],
        "left_out": _named(task.left_out.get(OWN, [])),
        "refused": _named([(_line(each), each.fault) for each in faults]),
        "long": {"count": len(long), "lines": [_line(each) for each in long[:NAMED]],
                 "longest": max((each.tokens for each in long), default=0)},
        "out_of_order": _named([(row.line or 0, said) for row in rows if (said := out_of_order(row))]),
        "lengths": _lengths(reader.rendering, some), "measured": len(some),
        "folds": system_in_user_turn(reader.rendering, rows), "conversations": sum(bool(row.turns) for row in rows),
        "repeated": seen.repeated if seen else 0, "disagreeing": seen.disagreeing if seen else 0,
        "fits": seen.fits if seen else "", "columns": list(dict.fromkeys(
            name for described in each.values() for name in described.columns))}


def _named(faults: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """The number of rows, the first of their lines, and the reason of the first one."""
    return {"count": len(faults), "lines": [line for line, _ in faults[:NAMED]], "why": faults[0][1] if faults else ""}


def _line(misfit: Misfit) -> int:
    return misfit.row.line or 0


def out_of_order(row: Row) -> str:
    """The first turn of a conversation that does not follow the one before it as usual; empty where all do.

    >>> from labcore.tasks.task import Turn
    >>> out_of_order(Problem("b", "", 1, (Turn("user", "a"), Turn("user", "b"))))
    'turn 2 is by the user, after the user'
    """
    roles = [turn.role for turn in row.turns]
    talk = roles[roles[:1] == [SYSTEM]:]
    first = len(roles) - len(talk) + 1
    if talk and talk[0] != USER:
        return f"turn {first} is by the {talk[0]}, and the user begins a conversation"
    for number, (before, after) in enumerate(pairwise(talk), start=first + 1):
        alternate = (after == ASSISTANT) != (before == ASSISTANT) and after != SYSTEM
        if not alternate and (before, after) != ("tool", "tool"):
            return f"turn {number} is by the {after}, after the {before}"
    return ""


def _lengths(rendering: Rendering, rows: Sequence[Row]) -> dict[str, Any]:
    """Tokens of the prompts, and of the prompts with their answers; of a pair with the longer side."""
    prompts: list[int] = []
    wholes: list[int] = []
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start: start + AT_ONCE]
        asked = [len(ids) for ids in rendering.whole_prompts(some)]
        prompts += asked
        wholes += _with_answers(rendering, some, asked)
    answered = [length for length in wholes if length]
    return {"prompt": _summary(prompts), "whole": _summary(answered) if answered else None}


def _with_answers(rendering: Rendering, rows: Sequence[Row], asked: Sequence[int]) -> Iterator[int]:
    """Tokens of each prompt with its answer; 0 where it has none."""
    given = [(row, _answers(row)) for row in rows]
    texts = [(row, text) for row, answers in given for text in answers]
    _, ids = rendering.answers([row for row, _ in texts], [text for _, text in texts], [True] * len(texts)
                               ) if texts else ([], [])
    lengths = iter(map(len, ids))
    for (_, answers), prompt in zip(given, asked, strict=True):
        yield prompt + max(next(lengths) for _ in answers) if answers else 0


def _answers(row: Row) -> list[str]:
    if isinstance(row, Pair):
        return [row.chosen, row.rejected]
    said = row.completion if isinstance(row, Single) else row.answer
    return [said] if said else []


def _summary(lengths: Sequence[int]) -> dict[str, Any]:
    """Quantiles and a histogram of some lengths."""
    if not lengths:
        return {"quantiles": [], "edges": [], "counts": []}
    counts, edges = np.histogram(lengths, bins=min(BINS, max(1, max(lengths) - min(lengths))))
    found = np.percentile(lengths, (0, 50, 90, 100), method="lower")
    return {"quantiles": [int(each) for each in found], "edges": [float(each) for each in edges],
            "counts": [int(each) for each in counts]}


# ---- the rows that are shown -----------------------------------------------------------------------------------


def _shown(rendering: Rendering, row: Row) -> dict[str, Any]:
    """A row as the model reads it; `fault` where the template refuses it."""
    made: dict[str, Any] = {"line": row.line, "turns": [[turn.role, cut(turn.content)] for turn in row.turns]}
    contents = rendering.contents(row)
    try:
        prompt = pieces(rendering, rendering.text(row), contents)
    except LabError as error:
        return made | {"fault": str(error), "prompt": [], "tokens": 0, "answers": []}
    tokens = sum(len(ids) for _, ids, _ in prompt)
    single = "completion" if isinstance(row, Single) else "answer"
    labels = ["chosen", "rejected"] if isinstance(row, Pair) else [single]
    answers = [_answer(rendering, row, label, text) for label, text in zip(labels, _answers(row), strict=False)]
    return made | {"prompt": shortened(prompt), "tokens": tokens, "answers": answers,
                   **({"label": row.label} if isinstance(row, Single) else {})}


def _answer(rendering: Rendering, row: Row, label: str, text: str) -> dict[str, Any]:
    """An answer with its end, from where it differs from its prompt."""
    (prompt,), (ids,) = rendering.answers([row], [text], [True])
    whole = rendering.with_answer(row, text)
    found = pieces(rendering, whole, [*rendering.contents(row), text], skip=len(prompt))
    if rendering.template is None:
        end = rendering.ends[0]
        found.append((str(rendering.tokenizer.convert_ids_to_tokens(end)), [end], "special"))
    return {"label": label, "tokens": len(ids), "pieces": shortened(found)}


def _of_layout(layout: Described, row: Row) -> dict[str, Any]:
    columns = getattr(row, "columns", {})
    return {"layout": layout.layout, "fields": dict(layout.fields),
            "columns": [[name, _short(columns[name])] for name in layout.columns if name in columns]}


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_COLUMN else f"{text[:LONGEST_COLUMN - 1]}…"
