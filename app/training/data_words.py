"""Findings about the user's own file before a run, in sentences with their remedies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app import naming
from labcore.catalog import kinds
from labcore.catalog.knob import Value
from labcore.catalog.llm.models import MODELS
from labcore.catalog.right import check
from labcore.runs.spec.run_spec import RunSpec, base_spec, every_knob
from labcore.tasks import cautions
from labcore.tasks.file_statistics import FileStatistics

MOST = 0.8  # of the answers that look alike, from where a setting is proposed
SFT_STEPS = 400  # that are proposed
CUT = 0.25  # of the completions: from there a longer limit is proposed
_FITS = {"numeric": "All answers are numbers. The numeric verifier also accepts “The answer is 5.” and 5.0.",
         "math": "Some answers have TeX or are fractions. The math verifier also accepts 0.75 for 3/4.",
         "choice": "All answers are letters of a choice. The choice verifier also accepts “The answer is (B).”"}


@dataclass(frozen=True)
class Proposal:
    """A button: other fields or knobs of the draft."""

    label: str
    knobs: tuple[tuple[str, Value], ...] = ()
    model: str = ""
    algorithm: str = ""


@dataclass(frozen=True)
class Finding:
    """A sentence. `level` is "good", "warning" or "note"."""

    level: str
    text: str
    proposals: tuple[Proposal, ...] = ()


def of_file(look: FileStatistics, spec: RunSpec) -> list[Finding]:
    """Statistics of the lines of a file of prompts or pairs in words, for the settings of `spec`."""
    of = "pair" if spec.task_row.pairs else "prompt"
    low, middle, high = look.answers
    varied = f"{low:,} to {high:,} characters, median {middle:,}"
    sizes = varied if low < high else f"{_counted(high, 'character')} each"
    found = [Finding("good", f"{_counted(look.lines, of)}; answers have {sizes}.")]
    more = _verifier(look, spec), _cut(look, spec), _empty(look, spec), _repeated(look)
    return found + [finding for finding in more if finding]


def _verifier(look: FileStatistics, spec: RunSpec) -> Finding | None:
    """The verifier that reads every answer, where the answers are compared as texts."""
    if spec.knobs.get("verifier") != "exact" or look.fits == "exact":
        return None
    use = Proposal(f"Use the {look.fits} verifier", (("verifier", look.fits),))
    if look.marked >= MOST * look.lines:
        return Finding("warning", f"{look.marked:,} of {look.lines:,} answers end in “#### number”, but the verifier "
                       "is exact: only the whole solution, letter by letter, counts as right.", (use,))
    return Finding("note", _FITS[look.fits], (use,))


def _cut(look: FileStatistics, spec: RunSpec) -> Finding | None:
    """A warning where a built-in model cannot write the answers within the length limit; pairs are not written."""
    longer, wanted = cautions.cut(look, spec), cautions.enough(look)
    if not longer:
        return None
    limit, knob = int(spec.knobs["max_new_tokens"]), every_knob()["max_new_tokens"]
    room = min(MODELS[spec.model].context - look.longest, int(knob.high or wanted))
    use = (Proposal(f"Length limit {wanted:,}", (("max_new_tokens", wanted),)),) if limit < wanted <= room else ()
    return Finding("warning", f"{cautions.too_long(longer, look, spec)}.", use)


def _empty(look: FileStatistics, spec: RunSpec) -> Finding | None:
    if not look.empty:
        return None
    if look.empty == look.lines:
        if spec.row.loop != "sft" and not base_spec(spec):
            return Finding("note", "No line has an answer.")
        use = () if spec.row.loop == "sft" else (Proposal("No SFT", (("sft_steps", 0),)),)
        return Finding("warning", "No line has an answer, so SFT has nothing to learn and does not start.", use)
    return Finding("warning", f"{_counted(look.empty, 'line')} {'has' if look.empty == 1 else 'have'} no answer.")


def _repeated(look: FileStatistics) -> Finding | None:
    if not look.repeated:
        return None
    other = f", {look.disagreeing:,} with another answer" if look.disagreeing else ""
    return Finding("warning" if look.disagreeing else "note",
                   f"{_counted(look.repeated, 'prompt')} {'repeats' if look.repeated == 1 else 'repeat'} an earlier "
                   f"one{other}.")


def of_trial(result: Mapping[str, Any], spec: RunSpec, taught: bool) -> list[Finding]:
    """The results of the prompts that the model answered. `taught`: by the base that SFT has made already."""
    answers, found = result["answers"], list[Finding]()
    if not answers:
        return [Finding("warning", "No prompt was tried, because none fits into the model's context beside a "
                        f"completion of {int(spec.knobs['max_new_tokens']):,} tokens.")]
    causes = [cause for cause in (_untemplated(result, spec), _limited(result, spec, taught)) if cause]
    found += causes
    right, count = sum(answer["exact"] for answer in answers), len(answers)
    sft = None if taught else base_spec(spec)
    passed = f" ({check(spec.task_row, spec.knobs)})" if right else ""
    said = f"{_model(spec)} answered {right} of {count}{passed}{' before SFT' if sft else ''}"
    if right == count:
        found.append(Finding("note", f"{said}, so there is nothing left to learn from these prompts."))
    elif right:
        found.append(Finding("good", f"{said}: some answers are right and some wrong, so there is something to "
                             "reinforce."))
    elif len({answer["reward"] for answer in answers}) > 1:
        mean = sum(answer["reward"] for answer in answers) / count
        found.append(Finding("good", f"{said}, but the rewards differ (mean {mean:.2f}): there is something to "
                             "reinforce."))
    elif causes:
        found.append(Finding("warning", f"{said}. Apply the suggestions above first, then try again."))
    else:
        found.append(_nothing(said, spec, sft))
    return found


def _untemplated(result: Mapping[str, Any], spec: RunSpec) -> Finding | None:
    """An instruct model that is asked in plain text."""
    if not result.get("has_template") or result["templated"]:
        return None
    return Finding("warning", f"{_model(spec)} has a chat template, but the template is off, so it reads the prompts "
                   "as plain text, unlike the prompts of its training.", (Proposal("Use the chat template", (
                       ("template", "auto"),)),))


def _limited(result: Mapping[str, Any], spec: RunSpec, taught: bool) -> Finding | None:
    """Completions that the length limit cut. An untrained built-in model does not know how to end."""
    cut, count = sum(bool(each.get("truncated")) for each in result["answers"]), len(result["answers"])
    if cut < CUT * count or (spec.model in MODELS and not taught):
        return None
    limit, knob = int(spec.knobs["max_new_tokens"]), every_knob()["max_new_tokens"]
    wanted = min(limit * (4 if 2 * cut >= count else 2), result["context"] - result["longest"], int(knob.high or limit))
    use = (Proposal(f"Length limit {wanted:,}", (("max_new_tokens", wanted),)),) if wanted > limit else ()
    room = "" if use else " The context has no room for longer ones."
    return Finding("warning", f"{cut} of {count} completions were cut at the length limit of {limit:,} tokens, perhaps "
                   f"before the answer.{room}", use)


def _nothing(said: str, spec: RunSpec, sft: RunSpec | None) -> Finding:
    if spec.row.loop == "sft":
        return Finding("note", f"{said}: SFT teaches it the answers of the file.")
    ways = _ways(spec)
    advice = f": choose {_either([way for way, _ in ways])}." if ways else "."
    first = f". SFT of at most {sft.steps} steps comes first. If" if sft else "; with"
    none = " it still answers none, there is nothing to reinforce" if sft else (
        " no right answer there is nothing to reinforce")
    return Finding("warning", f"{said}{first}{none}{advice}", tuple(use for _, use in ways))


def _ways(spec: RunSpec) -> list[tuple[str, Proposal]]:
    """Remedies for a model without a right answer: (in words, what changes)."""
    ways = []
    larger = dict(pairwise(MODELS)).get(spec.model)
    if larger:
        ways.append(("a larger model", Proposal(f"Choose {larger} ({MODELS[larger].parameters})", model=larger)))
    if spec.model in MODELS and int(spec.knobs.get("sft_steps", 0)) < SFT_STEPS:
        more = "more SFT" if spec.knobs.get("sft_steps") else "SFT first"
        ways.append((more, Proposal(f"{SFT_STEPS} SFT steps first", (("sft_steps", SFT_STEPS),))))
    else:
        key = next(row.key for row in kinds.kind(spec.kind).algorithms.values() if row.loop == "sft")
        ways.append(("SFT first", Proposal("Switch to SFT", algorithm=key)))
    shape = next((knob for knob in spec.task_row.knobs if "shaped" in knob.choices), None)
    if shape and spec.knobs[shape.key] != "shaped":
        ways.append(("a shaped reward", Proposal("Use the shaped reward", ((shape.key, "shaped"),))))
    elif spec.knobs.get("verifier") == "exact":
        use = Proposal("Use the contains verifier", (("verifier", "contains"),))
        ways.append(("a verifier that accepts more", use))
    return ways


def _model(spec: RunSpec) -> str:
    return f"This {MODELS[spec.model].parameters} model" if spec.model in MODELS else naming.model(spec.model)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def _either(ways: list[str]) -> str:
    """
    >>> _either(["a", "b", "c"]), _either(["a"])
    ('a, b or c', 'a')
    """
    return f"{', '.join(ways[:-1])} or {ways[-1]}" if ways[1:] else ways[0]
