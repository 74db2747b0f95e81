"""The commands `lessons` and `lesson`: the list with the reader's progress, and a lesson run without a browser."""

from __future__ import annotations

import argparse
import json
import sys

from labcore.analysis.lessons import course as courses
from labcore.analysis.lessons import folders, progress
from labcore.analysis.lessons.verdict import Verdict, margin_text
from labcore.cli.adding import Add
from labcore.errors import LabError
from labcore.runs.store.store import Store
from labcore.runs.titles import title

SAYS = {"holds": "the claim holds", "fails": "the claim does not hold", "close": "too close to call"}


def add_to(add: Add) -> None:
    """Add both commands to the parser by its `add(name, command, help)`."""
    every = add("lessons", lessons, "the lessons of the page Lessons, with their verdicts")
    every.add_argument("--json", action="store_true", help="print JSON")

    one = add("lesson", lesson, "run a lesson here, and print the verdict with its numbers")
    one.add_argument("lesson", metavar="LESSON")
    one.add_argument("--short", action="store_true", help="fewer steps: a quick try")
    one.add_argument("--json", action="store_true", help="print one JSON object at the end")


def lessons(options: argparse.Namespace) -> int:
    """List the lessons. Faults of a teacher's files are printed to standard error."""
    there, faults = folders.lessons()
    attempts = progress.attempts()
    rows = [{"lesson": each.name, "title": each.title, "claim": each.claim, "own": each.own,
             "verdict": next((a.says for a in reversed(attempts.get(each.name, [])) if a.says), None)}
            for each in there]
    if options.json:
        print(json.dumps({"lessons": rows, "faults": faults}, ensure_ascii=False, indent=2))
        return 0
    for row in rows:
        print(f"{row['lesson']:<20} {SAYS.get(str(row['verdict']), 'not done'):<24} {row['title']}")
    for fault in faults:
        print(f"labcore: {fault}", file=sys.stderr)
    return 0


def lesson(options: argparse.Namespace) -> int:
    """Run a lesson to its verdict. Returns 0 where there is one, whichever it is."""
    from labcore.workers.worker import drive  # brings torch in, which the list does without

    found = folders.find(options.lesson)
    if options.short:
        found = next(each for each in folders.lessons(short=True)[0] if each.name == found.name)
    store = Store()
    sweep = courses.start(store, found, mine=True)
    rows = courses.course(store, found, sweep).rows
    for row in rows.values():
        print(f"run {row.id} ({title(row)}), seed {row.spec.seed}", file=sys.stderr)
        if (state := drive(store, row.id)) != "finished":
            raise LabError(f"The run {row.id} is {state}, so there is no verdict: {store.run(row.id).message}")
    verdict = courses.verdict(store, courses.course(store, found, sweep))
    assert verdict is not None, "all runs have finished"
    if options.json:
        print(json.dumps({"lesson": found.name, "sweep": sweep, **described(verdict)}, ensure_ascii=False, indent=2))
        return 0
    print(f"{found.title}\n{found.claim}\n")
    for sentence, part in zip(found.sentences or found.check.comparisons, verdict.parts, strict=True):
        read = "".join(f"    {text}: {sum(values) / len(values):z.4g}\n" for text, values in part.read)
        print(f"{sentence}: {SAYS[part.says].removeprefix('the claim ')}\n{read}"
              f"    {part.text}\n    margin, 95 % interval: {margin_text(part, '{:z.4g}'.format)}")
    print(f"\nOver {verdict.seeds} seeds: {SAYS[verdict.says]}.")
    return 0


def described(verdict: Verdict) -> dict[str, object]:
    """A verdict as plain data. `difference` is left less right with its interval; where both sides are `logarithms`, it
    is the logarithm of a factor."""
    return {"verdict": verdict.says, "seeds": verdict.seeds, "comparisons": [
        {"text": part.text, "read": dict(part.read), "left": part.left, "right": part.right,
         "logarithms": part.logarithms, "difference": part.mean, "low": part.low, "high": part.high,
         "says": part.says} for part in verdict.parts]}
