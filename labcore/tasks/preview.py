"""Describe the user's data before a run: name the job that reads the data, and put its result into sentences. Imports
no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labcore.catalog.llm.knobs import PROMPT
from labcore.catalog.llm.tasks import HELD_OUT, ORDER, WITHOUT_ANSWERS
from labcore.runs import jobs
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.tasks.usable import CUT, SKIP, lines_named

JOB = "data_preview"
GOOD, NOTE, WARNING = "good", "note", "warning"
FITS = {"numeric": "numeric: every answer is a whole plain number, or ends in one",
        "math": "math: some answers have TeX or are fractions", "choice": "choice: every answer is a letter, A to J",
        "exact": "exact: no other verifier reads every answer"}


@dataclass(frozen=True)
class Said:
    """A sentence of how much weight, and what it is about: the page knows by that which buttons it gets."""

    level: str
    about: str
    text: str


def asked(spec: RunSpec) -> jobs.Spec:
    """The job that looks at the data of a run: of its settings only those that its prompts depend on are asked."""
    counting = {"max_new_tokens"} | {knob.key for knob in (*PROMPT, *spec.task_row.knobs)} - {
        knob.key for knob in (*HELD_OUT, ORDER)}
    sft = next(row.key for row in spec.kind_row.algorithms.values() if row.loop == "sft")
    plain = make(kind=spec.kind, algorithm_key=sft, task_key=spec.task, model=spec.model, data=spec.data,
                 knobs={key: value for key, value in spec.knobs.items() if key in counting})
    return {"job": JOB, "spec": plain.to_json()}


def findings(result: Mapping[str, Any], spec: RunSpec) -> list[Said]:
    """Findings on the data, the most important first."""
    found = [*_template(result)]
    if "rows" in result:
        found += [*_rows(result, spec), *_long(result, spec), *_lengths(result)]
    return sorted(found, key=lambda said: (WARNING, NOTE, GOOD).index(said.level))


def of_answers(result: Mapping[str, Any], spec: RunSpec) -> list[Said]:
    """The notes of the page on a file by itself: which prompts are repeated, and which verifier reads its answers."""
    found, judged = [], spec.task_row.verifiable
    if repeated := result["repeated"]:
        other = f", {result['disagreeing']:,} with another answer" if judged and result["disagreeing"] else ""
        found.append(Said(WARNING if other else NOTE, "repeated", f"{_counted(repeated, 'prompt')} "
                          f"{'repeats' if repeated == 1 else 'repeat'} an earlier one{other}."))
    if judged and result["answered"]:
        found.append(Said(NOTE, "verifier", f"The verifier that fits is {FITS[result['fits']]}."))
    return found


def _template(result: Mapping[str, Any]) -> Iterator[Said]:
    if result["has_template"] and result["template"] == "none":
        yield Said(WARNING, "template off", "The model has a chat template, but the chat template is off, so it reads "
                   "plain text, unlike its training.")
    if result["template"] == "chatml" and not result["has_template"]:
        yield Said(NOTE, "chatml", "The model has no chat template of its own: prompts are written in ChatML, on which "
                   "it may not have been trained.")
    if (count := result.get("conversations")) and result["template"] == "none":
        some = (f"{count:,} of {result['rows']:,} prompts {_are(count)} a conversation" if count < result["rows"]
                else "Every prompt is a conversation")
        yield Said(WARNING, "no template", f"{some}, and no chat template is in use to write it.")
    if result.get("folds"):
        yield Said(NOTE, "folds", "The chat template has no system turn, so the system text stands at the beginning of "
                   "the first turn of the user.")


def _rows(result: Mapping[str, Any], spec: RunSpec) -> Iterator[Said]:
    layouts = result["layouts"]
    if len(layouts) == 1:
        yield Said(GOOD, "layout", f"{_counted(result['rows'], 'row')} in the layout “{layouts[0][0]}”.")
    else:
        each = "; ".join(f"“{name}” {_counted(count, 'row')}, from line {line:,}" for name, count, line in layouts)
        yield Said(WARNING, "layout", f"The file mixes {len(layouts)} layouts: {each}. Check that this is intended.")
    if result["columns"]:
        used = "are not used" if spec.task_row.pairs else "are available to reward functions"
        yield Said(NOTE, "columns", f"Other fields {used}: {', '.join(result['columns'][:12])}.")
    skips = spec.knobs.get("unusable_rows") == SKIP
    for key, cannot in (("left_out", "cannot be read"), ("refused", "cannot be rendered")):
        if (count := result[key]["count"]) and not (key == "refused" and result["template"] == "none"):
            end = f" and {_are(count)} left out" if skips else ", so the run does not start"
            yield Said(NOTE if skips else WARNING, "unusable", f"{_counted(count, 'row')} {cannot}{end}: "
                       f"{_lines(result[key])}. {result[key]['why']}")
    if not result["answered"]:
        yield Said(NOTE, "answers", f"No row has an answer: choose a verifier that needs none ({WITHOUT_ANSWERS}), "
                   "also beside a judge, a reward model or functions of your own.")
    elif count := result["unjudged"]["count"]:
        yield Said(WARNING, "unjudged", f"{_counted(count, 'answer')} cannot be used by the verifier "
                   f"{spec.knobs['verifier']}: {_lines(result['unjudged'])}. The first {result['unjudged']['why']}.")
    if count := result["out_of_order"]["count"]:
        yield Said(NOTE, "order", f"{_counted(count, 'conversation')} {'has' if count == 1 else 'have'} turns in an "
                   f"unusual order: {_lines(result['out_of_order'])} ({result['out_of_order']['why']}).")


def _long(result: Mapping[str, Any], spec: RunSpec) -> Iterator[Said]:
    long, limit = result["long"], int(spec.knobs["max_new_tokens"])
    if not (count := long["count"]):
        return
    how = spec.knobs.get("long_prompts")
    done = {SKIP: f"{_are(count)} left out", CUT: f"{'loses its' if count == 1 else 'lose their'} beginning"}.get(
        str(how), f"keep{'s' if count == 1 else ''} the run from starting")
    yield Said(NOTE if how in (SKIP, CUT) else WARNING, "long", f"{_counted(count, 'prompt')} of more than the "
               f"{result['room']:,} tokens that the context leaves beside a completion of {limit:,} {done}: "
               f"{_lines(long)}; the longest has {long['longest']:,} tokens.")


def _lengths(result: Mapping[str, Any]) -> Iterator[Said]:
    if not (prompt := result["lengths"]["prompt"]["quantiles"]):
        return
    whole = result["lengths"]["whole"]
    more = f"; with their answers {_range(whole['quantiles'])}" if whole else ""
    part = f" (measured on {result['measured']:,} rows)" if result["measured"] < result["rows"] else ""
    yield Said(GOOD, "lengths", f"Prompts have {_range(prompt)}{more}{part}. The context holds {result['context']:,} "
               "tokens.")


def _range(quantiles: list[int]) -> str:
    """
    >>> _range([54, 88, 123, 218]), _range([5, 5, 5, 5])
    ('54 to 218 tokens (median 88, 90 % up to 123)', '5 tokens each')
    """
    low, middle, most, high = quantiles
    if low == high:
        return f"{low:,} token{'s' if low != 1 else ''} each"
    return f"{low:,} to {high:,} tokens (median {middle:,}, 90 % up to {most:,})"


def _lines(named: Mapping[str, Any]) -> str:
    return lines_named(named["lines"], named["count"])


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"
