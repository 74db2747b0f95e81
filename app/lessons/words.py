"""States, verdicts and predictions of lessons in plain words. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.status import bar
from app.theme import number
from labcore.analysis.lessons.course import Course
from labcore.analysis.lessons.expression import FEW
from labcore.analysis.lessons.lesson import Lesson
from labcore.analysis.lessons.progress import Attempt
from labcore.analysis.lessons.verdict import Compared, Verdict, margin_text
from labcore.catalog.metrics import METRICS

MOST_COMPLETIONS = 8  # that are shown
UNBROKEN = "\N{NO-BREAK SPACE}"
# verdict: (colour of its dot, what is said of the claim)
SAYS = {"holds": ("#009E73", "The claim holds in these runs."),
        "fails": ("#D55E00", "The claim does not hold in these runs."),
        "close": ("#E69F00", "Too close to call")}
# what a check computes of a run, as the page says it; {} is the metric of a run, {n} the number that was given
HOW = {"first": "{}, mean of the first {n} values", "last": "{}, mean of the last {n} values", "mean": "mean of {}",
       "max": "largest {}", "min": "smallest {}", "slope": "slope of {} per step", "at": "{} at step {n}"}
CALL = re.compile(rf"({'|'.join(HOW)})\((\w+), '([^']+)'(?:, (\d+))?\)")
SIGN, SUM = re.compile("[<>=≠≤≥]"), re.compile("[0-9.,+− ]+")
PART = {"holds": "holds", "fails": "does not hold", "close": "too close to call"}


def state(attempts: Sequence[Attempt]) -> tuple[str, str]:
    """(colour of the dot, words) of a lesson in the list."""
    counted = [each for each in attempts if each.says or not each.closed]
    if not counted:
        return "#8A939D", "Not started"
    last = counted[-1]
    if not last.says:
        return ("#56B4E9", "Runs started") if last.sweep else ("#8A939D", "Prediction made")
    if last.says == "close":
        return SAYS["close"][0], f"Too close to call with {last.seeds} seeds"
    came = {True: ", as you predicted", False: ", contrary to your prediction", None: ""}[last.right]
    return SAYS[last.says][0], f"The claim {PART[last.says]}{came}"


def done(attempts: Sequence[Attempt]) -> bool:
    """True if any attempt at a lesson has a verdict."""
    return any(each.says in ("holds", "fails") for each in attempts)


def size(lesson: Lesson) -> str:
    """The runs of a lesson: "2 runs × 3 seeds, 20 steps and 80 updates each"."""
    many = f"{len(lesson.setups)} runs" if len(lesson.setups) > 1 else "1 run"
    said = _range([setup.spec.steps for setup in lesson.setups], "steps")
    if any(setup.updates != setup.spec.steps for setup in lesson.setups):
        said += f" and {_range([setup.updates for setup in lesson.setups], 'updates')}"
    return f"{many} × {len(lesson.seeds)} seeds, {said} each"


def _range(counts: Sequence[int], unit: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,} {unit}" if low == high else f"{low:,} to {high:,} {unit}"


def headline(verdict: Verdict, course: Course) -> str:
    """The verdict as HTML."""
    colour, said = SAYS[verdict.says]
    if verdict.says == "close":
        said += f" with {verdict.seeds} seeds: " + (
            "one more seed may decide." if course.next_seed is not None else "it is a tie at this scale.")
    return (f'<div class="rl-status" role="status"><span class="rl-dot" style="background:{colour}"></span>'
            f"<b>{said}</b></div>")


def prediction_correct(lesson: Lesson, verdict: Verdict, predicted: Attempt) -> bool | None:
    """True if the chosen answer is the lesson's own; None where the runs do not confirm that."""
    if verdict.says != "holds" or lesson.drawn is not None or predicted.choice is None:
        return None
    return predicted.choice == lesson.right


def beside(lesson: Lesson, verdict: Verdict, predicted: Attempt) -> str:
    """The prediction beside the verdict, as Markdown."""
    if predicted.choice is None or not 0 <= predicted.choice < len(lesson.choices):
        return ""
    said = f"You predicted: **{lesson.choices[predicted.choice]}**"
    if verdict.says == "close":
        return f"{said}. The runs do not decide yet."
    if verdict.says == "fails":
        return f"{said}. These runs do not confirm the lesson's answer, so no prediction is counted."
    if predicted.choice == lesson.right:
        return f"{said}. Correct."
    return f"{said}. Result: **{lesson.choices[lesson.right]}**"


def completions(samples: Mapping[str, Any]) -> list[tuple[str, str, str, float, bool]]:
    """(prompt, correct answer, completion, reward, whether correct) of a step. Incorrect completions with a reward come
    first, because they show the flaws of the reward."""
    found = [(group["prompt"], group["answer"] or "", each["text"], float(each["reward"]), bool(each["exact"]))
             for group in samples.get("groups", ()) for each in group["completions"]]
    order = sorted(dict.fromkeys(found), key=lambda row: (row[4] or row[3] <= 0, row[4]))
    return order[:MOST_COMPLETIONS]


def completions_table(samples: Mapping[str, Any]) -> str:
    """These completions as HTML."""
    head = "".join(f"<th>{cell}</th>" for cell in ("Prompt", "Correct", "Completion", "Reward", ""))
    rows = "".join(
        f'<tr><td class="rl-mono">{html.escape(prompt)}</td><td class="rl-mono">{html.escape(answer)}</td>'
        f'<td class="rl-mono"><b>{html.escape(text)}</b></td><td>{number(reward, 2)}</td>'
        f'<td class="{"" if correct else "rl-neg"}">{"correct" if correct else "not correct"}</td></tr>'
        for prompt, answer, text, reward, correct in completions(samples))
    return f'<div class="rl-scroll"><table class="rl-table"><tr>{head}</tr>{rows}</table></div>'


def shown(value: float) -> str:
    """A number of a lesson, the larger the fewer digits after its point.

    >>> shown(-26.1033), shown(431.25), shown(29871.4)
    ('−26.1', '431', '29,871')
    """
    return number(value, 3 if abs(value) < 100 else 1 if abs(value) < 10_000 else 0)


def sentences(lesson: Lesson) -> list[str]:
    """The check, a sentence for each comparison; where the lesson has none, the comparison in words."""
    return [*lesson.sentences] or [readable(text, lesson) for text in lesson.check.comparisons]


def numbers(part: Compared) -> str:
    """The numbers of a comparison, as means over the seeds: "0.63 against 0.45"."""
    return " against ".join(shown(sum(values) / len(values)) for _, values in part.read)


def difference(part: Compared) -> str:
    """The margin as a sum of means over the seeds: "−0.200 − (3.284 − 1) ="; empty where it is a factor."""
    if part.logarithms or not part.read:
        return ""
    said = part.text
    for text, values in part.read:
        said = said.replace(text, shown(sum(values) / len(values)))
    sides = [side.strip().replace("-", "−") for side in SIGN.split(said)]
    if not all(map(SUM.fullmatch, sides)):  # a mean of quotients is no quotient of means
        sides = [shown(sum(values) / len(values)) for values in (part.left, part.right)]
    left, right = sides
    return f"{left} − ({right}) =" if set(right) & set("−+") else f"{left} − {right} ="


def readable(text: str, lesson: Lesson) -> str:
    """A comparison or a side of one in words; what is not of one run stays as it is in the check.

    "last(q, 'reward', 20)" becomes "Reward of “Q-learning”, mean of the last 20 values".
    """
    labels = {setup.name: setup.label for setup in lesson.setups}

    def said(call: re.Match[str]) -> str:
        how, run, key, count = call.groups()
        if run not in labels or key not in METRICS:
            return call[0]
        return HOW[how].format(f"{METRICS[key].label} of “{labels[run]}”", n=count or FEW)

    return CALL.sub(said, text)


def table(lesson: Lesson, verdict: Verdict) -> str:
    """The numbers of the verdict as HTML: a sentence with its numbers for each comparison, and its margin."""
    means = f"Check, with means over {verdict.seeds} seeds" if verdict.seeds > 1 else "Check"
    head = "".join(f"<th>{cell}</th>" for cell in (means, "", "Margin: left − right side, 95 % interval"))
    rows = []
    for sentence, part in zip(sentences(lesson), verdict.parts, strict=True):
        read = f": {numbers(part).replace(' ', UNBROKEN)}" if part.read else ""
        said = f"{html.escape(sentence)}{read}."
        wide = f'<td style="min-width:13rem">{said}</td>'  # on a phone the table scrolls
        margin = " ".join(each.replace(" ", UNBROKEN) for each in (difference(part), margin_text(part, shown)) if each)
        rows.append(f"<tr>{wide}<td>{PART[part.says]}</td><td>{margin}</td></tr>")
    return f'<div class="rl-scroll"><table class="rl-table"><tr>{head}</tr>{"".join(rows)}</table></div>'


def seeds(verdict: Verdict, course: Course) -> str:
    """The numbers that the check reads of each seed, as HTML."""
    names = [f"seed {seed}" for seed in course.whole]
    head = "".join(f"<th>{cell}</th>" for cell in ("", *names))
    rows = []
    for text, values in dict(each for part in verdict.parts for each in part.read).items():
        cells = "".join(f"<td>{shown(value)}</td>" for value in values)
        rows.append(f"<tr><td>{html.escape(readable(text, course.lesson))}</td>{cells}</tr>")
    return f'<div class="rl-scroll"><table class="rl-table"><tr>{head}</tr>{"".join(rows)}</table></div>'


def going(course: Course) -> str:
    """The progress of the runs, as HTML."""
    rows = [*course.rows.values()]
    finished = sum(row.state == "finished" for row in rows)
    waiting = sum(row.state == "queued" for row in rows)
    share = sum(min(1.0, row.step / row.spec.steps) for row in rows) / len(rows)
    stopping = sum(bool(row.pending) for row in rows)
    said = f"{finished} of {len(rows)} runs finished" + (f", {waiting} waiting" if waiting else "") + (
        f", {stopping} stopping" if stopping else "")
    return (f'<div class="rl-status" role="status"><span class="rl-dot" style="background:#009E73"></span>'
            f'<b>Running</b> <span class="rl-muted">{said}</span></div>{bar(share)}')
