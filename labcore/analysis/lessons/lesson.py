"""A lesson as a text file: settings between two lines of +++ in TOML, then the explanation in Markdown.

Everything is checked when the file is read: a fault is one sentence with the file, the line if it is known, and the
remedy. Left out: files of the user's own to train on, and models that are not built in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labcore.analysis.lessons import expression
from labcore.analysis.lessons.expression import Check
from labcore.catalog import kinds, presets
from labcore.catalog.knob import suggestion
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, quoted
from labcore.runs.files.untrusted import NotTOML, toml_of
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.run_spec import RunSpec, make

FENCE = "+++"
LARGEST = 64_000  # characters of a file
LEAST_SEEDS, MOST_RUNS, MOST_SEEDS, MOST_CHOICES, MOST_CHARTS = 2, 4, 12, 6, 4
OWN_TOPIC = "Your own lessons"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but the tab and the end of a line
NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")


@dataclass(frozen=True)
class Setup:
    """A run of a lesson: the name that the check calls it by, what the page calls it, and its spec with seed 0."""

    name: str
    label: str
    spec: RunSpec

    def at(self, seed: int) -> RunSpec:
        """The run with a seed."""
        return replace(self.spec, seed=seed)

    @property
    def updates(self) -> int:
        """The optimizer updates of a language model's run; of another kind its steps."""
        knobs = self.spec.knobs
        return self.spec.steps * int(knobs.get("updates_per_batch", 1)) * int(knobs.get("mini_batches", 1))


@dataclass(frozen=True)
class Drawing:
    """A question that is answered by a curve drawn by hand: a metric of one run, on an axis from `low` to `high`."""

    run: str
    metric: str
    low: float
    high: float


@dataclass(frozen=True)
class Lesson:
    """See the module. `right` is the place of the right choice, from 0; `drawn` stands in place of the choices.

    `introduction` is read before the prediction. `sentences` say each comparison of the check in words, or there are
    none. `charts` are the metrics that are drawn while the runs go, `picture` those of the small picture in the list.
    `completions` is the run whose last completions are shown with the verdict, "" for none. `more` is a section of
    Foundations, `own` says that a teacher's folder brought it.
    """

    name: str
    title: str
    topic: str
    introduction: str
    claim: str
    source: str
    minutes: int
    question: str
    choices: tuple[str, ...]
    right: int
    drawn: Drawing | None
    setups: tuple[Setup, ...]
    seeds: tuple[int, ...]
    check: Check
    sentences: tuple[str, ...]
    charts: tuple[str, ...]
    picture: tuple[str, ...]
    completions: str
    more: str
    explanation: str
    own: bool = False


# field -> (what it must be, whether it must be there)
FIELDS: dict[str, tuple[type, bool]] = {
    "title": (str, True), "topic": (str, False), "introduction": (str, False), "claim": (str, True),
    "source": (str, True), "minutes": (int, True), "check": (str, True), "sentences": (list, False),
    "seeds": (list, True), "charts": (list, False), "picture": (list, False), "completions": (str, False),
    "foundations": (str, False), "question": (dict, True), "runs": (list, True), "short": (dict, False)}
QUESTION: dict[str, tuple[type, bool]] = {
    "text": (str, True), "choices": (list, False), "right": (int, False), "draw": (dict, False)}
DRAW: dict[str, tuple[type, bool]] = {"run": (str, True), "metric": (str, True), "range": (list, True)}
RUN: dict[str, tuple[type, bool]] = {
    "name": (str, True), "label": (str, True), "preset": (str, False), "kind": (str, False), "algorithm": (str, False),
    "task": (str, False), "steps": (int, False), "model": (str, False), "knobs": (dict, False)}
OF_PRESET = ("kind", "algorithm", "task", "steps")  # which a run says itself, or its preset
SHORT: dict[str, tuple[type, bool]] = {"seeds": (list, False), "steps": (int, False), "knobs": (dict, False)}
KINDS_OF: dict[type, str] = {str: "a text", int: "a whole number", list: "a list", dict: "a table"}


def parse(name: str, text: str, *, own: bool = False, short: bool = False) -> Lesson:
    """The lesson in `text`. `short`: with the seeds, steps and knobs of its table `short`, which the tests use. Raises
    LabError, whose sentence says what is wrong with the lesson, without the file's name."""
    if len(text) > LARGEST:
        raise LabError(f"it has {len(text)} characters: a lesson has at most {LARGEST}.")
    head, body = parted(text)
    try:
        fields = toml_of("\n" + head)  # so that its line numbers are those of the file
    except NotTOML as error:
        raise LabError(f"its settings are not TOML ({error}): see docs/lessons.md.") from error
    try:
        _check_numbers(fields)
        return _lesson(name, fields, body, own, short)
    except _Wrong as wrong:
        raise LabError(f"{_line(head, wrong.field)}{wrong}") from wrong


class _Wrong(LabError):
    """A fault in a field; where it stands is found by the field's name."""

    def __init__(self, field: str, sentence: str) -> None:
        self.field = field
        super().__init__(sentence)


def parted(text: str) -> tuple[str, str]:
    lines = text.replace("\r\n", "\n").removeprefix("\ufeff").split("\n")
    ends = [place for place, line in enumerate(lines) if line.strip() == FENCE]
    if len(ends) < 2 or ends[0] != 0:
        raise LabError(f"it does not begin with settings between two lines of {FENCE}: copy a lesson that works.")
    return "\n".join(lines[1:ends[1]]), "\n".join(lines[ends[1] + 1:]).strip()


def _line(head: str, field: str) -> str:
    """"line 7: ", where the last part of a field such as "question.right" is given; else nothing."""
    key = re.escape(field.rpartition(".")[2])
    for place, line in enumerate(head.split("\n"), 2):
        if re.match(rf"\s*({key}\s*=|\[+\s*([\w.]+\.)?{key}\s*\])", line):
            return f"line {place}: "
    return ""


def _check_numbers(value: Any, field: str = "") -> None:
    """Check that all numbers are finite and no larger than TOML promises to read: 64 bits."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else ((field, each) for each in value):
            _check_numbers(each, key)
    elif isinstance(value, int | float) and not abs(value) < 2**63:
        raise _Wrong(field, f"{field} has a number that is not finite or too large: use a smaller one.")


def _checked(given: Any, declared: Mapping[str, tuple[type, bool]], where: str = "") -> dict[str, Any]:
    """The fields of a table, all known, all of their kind, none missing."""
    if not isinstance(given, dict):
        raise _Wrong(where, f"{where} is not a table of settings.")
    for key, value in given.items():
        if key not in declared:
            raise _Wrong(key, f"there is no field {where}{key}: {suggestion(key, list(declared))}")
        wanted = declared[key][0]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise _Wrong(key, f"{where}{key} must be {KINDS_OF[wanted]}, not {quoted(value)}.")
        if value == "":
            raise _Wrong(key, f"{where}{key} is empty: write something.")
        texts = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
        if found := CONTROL.search("".join(texts)):
            raise _Wrong(key, f"{where}{key} holds the control character {quoted(found[0])}: remove it.")
    if missing := [key for key, (_, needed) in declared.items() if needed and key not in given]:
        raise _Wrong(where.rstrip("."), f"the field {where}{missing[0]} is missing: add it.")
    return given


def _lesson(name: str, given: dict[str, Any], body: str, own: bool, short: bool) -> Lesson:
    fields = _checked(given, FIELDS)
    less = _checked(fields.get("short", {}), SHORT, "short.") if short else {}
    setups = _setups(fields["runs"], less)
    names = [setup.name for setup in setups]
    question = _checked(fields["question"], QUESTION, "question.")
    drawn = _drawing(question["draw"], names) if "draw" in question else None
    choices, right = _choices(question, drawn)
    if not 1 <= fields["minutes"] <= 60:
        raise _Wrong("minutes", f"minutes is {fields['minutes']}: use 1 to 60.")
    try:
        check = expression.parse(fields["check"], names)
    except LabError as error:
        raise _Wrong("check", str(error)) from error
    if idle := [each for each in names if each not in {run for run, _ in check.reads}]:
        raise _Wrong("check", f"the check does not use the run {idle[0]}: use it, or remove the run.")
    if not body:
        raise LabError(f"there is no explanation below the second {FENCE}: write what the reader should learn.")
    charts = _metrics("charts", fields.get("charts")) or _read_by(check, drawn)
    return Lesson(name, " ".join(fields["title"].split()), fields.get("topic", OWN_TOPIC),
                  fields.get("introduction", ""), fields["claim"], fields["source"], fields["minutes"],
                  question["text"], choices, right, drawn, setups, _seeds(less.get("seeds", fields["seeds"])), check,
                  _sentences(fields.get("sentences", ()), check), charts,
                  _metrics("picture", fields.get("picture")) or charts[:1], _completions(fields, setups),
                  fields.get("foundations", ""), body, own)


def _setups(given: Sequence[Any], less: Mapping[str, Any]) -> tuple[Setup, ...]:
    if not 1 <= len(given) <= MOST_RUNS:
        raise _Wrong("runs", f"a lesson has 1 to {MOST_RUNS} runs, not {len(given)}.")
    found: list[Setup] = []
    checked = [_run(each) for each in given]
    longest = max(1, *(fields["steps"] for fields in checked))  # `short` shortens all runs by one factor
    for fields in checked:
        name = fields["name"]
        if not NAME.fullmatch(name) or name in expression.FUNCTIONS or name in ("and", "or", "not"):
            raise _Wrong("name", f"a run cannot be called {quoted(name)}: use small letters, digits and _, and no "
                         "name of a function.")
        if name in [other.name for other in found]:
            raise _Wrong("name", f"two runs are called {quoted(name)}: give each a different name.")
        steps = max(1, fields["steps"] * less["steps"] // longest) if "steps" in less else fields["steps"]
        setup = Setup(name, fields["label"], _spec(fields, less, steps))
        if same := [other.name for other in found if other.spec == setup.spec]:
            raise _Wrong("runs", f"the runs {same[0]} and {name} are the same: change a knob of one, or leave it out.")
        found.append(setup)
    return tuple(found)


def _run(given: Any) -> dict[str, Any]:
    """The fields of a run. What it does not say itself its preset says, where it names one."""
    fields = _checked(given, RUN, "runs.")
    if "preset" in fields:
        try:
            preset = presets.preset(fields["preset"])
        except LabError as error:
            raise _Wrong("preset", f"{str(error)[0].lower()}{str(error)[1:]}") from error
        fields = {key: getattr(preset, key) for key in OF_PRESET} | fields | {
            "knobs": {**preset.knobs, **fields.get("knobs", {})}}
    if missing := [key for key in OF_PRESET if key not in fields]:
        raise _Wrong("runs", f"the field runs.{missing[0]} is missing: add it.")
    return fields


def _spec(fields: Mapping[str, Any], less: Mapping[str, Any], steps: int) -> RunSpec:
    """The run, checked as every run is. A lesson brings no files, and only the models that come with the lab."""
    try:
        row = kinds.kind(fields["kind"])
        model = fields.get("model", row.model)
        if model not in row.models:
            raise LabError(f"a lesson uses {' or '.join(row.models)}, not the model {quoted(model)}.")
        algorithm = kinds.algorithm(fields["algorithm"], row.key)
        known = {knob.key for knob in (*algorithm.knobs, *kinds.task(fields["task"], row.key).knobs)}
        shorter = {key: value for key, value in less.get("knobs", {}).items() if key in known}
        return make(kind=row.key, algorithm_key=fields["algorithm"], task_key=fields["task"], model=model,
                    knobs={**row.unwatched, **fields.get("knobs", {}), **shorter},
                    steps=steps)
    except LabError as error:
        raise _Wrong("runs", f"the run {fields['name']} is not valid: {error}") from error


def _drawing(given: Any, names: Sequence[str]) -> Drawing:
    fields = _checked(given, DRAW, "question.draw.")
    if fields["run"] not in names:
        raise _Wrong("run", f"question.draw.run is {quoted(fields['run'])}: use {' or '.join(names)}.")
    _metric("metric", fields["metric"])
    bounds = fields["range"]
    if len(bounds) != 2 or not all(isinstance(each, int | float) for each in bounds) or not bounds[0] < bounds[1]:
        raise _Wrong("range", "question.draw.range must be two numbers, the smaller first, for example [0, 1].")
    return Drawing(fields["run"], fields["metric"], float(bounds[0]), float(bounds[1]))


def _choices(question: Mapping[str, Any], drawn: Drawing | None) -> tuple[tuple[str, ...], int]:
    choices = question.get("choices", [])
    if drawn is not None:
        if choices or "right" in question:
            raise _Wrong("question", "a question has either choices or a curve to draw: leave one of them out.")
        return (), -1
    if not 2 <= len(choices) <= MOST_CHOICES or not all(isinstance(each, str) and each for each in choices):
        raise _Wrong("choices", f"question.choices must be 2 to {MOST_CHOICES} texts.")
    if len(set(choices)) < len(choices):
        raise _Wrong("choices", "question.choices holds a text twice.")
    right = question.get("right", 0)
    if not 1 <= right <= len(choices):
        raise _Wrong("right", f"question.right must be the number of the right choice, from 1 to {len(choices)}.")
    return tuple(choices), right - 1


def _seeds(given: Sequence[Any]) -> tuple[int, ...]:
    low, high = WHOLE["seed"]
    sound = all(isinstance(each, int) and not isinstance(each, bool) and low <= each <= high for each in given)
    if not sound or len(set(given)) < len(given) or not LEAST_SEEDS <= len(given) <= MOST_SEEDS:
        raise _Wrong("seeds", f"seeds must be {LEAST_SEEDS} to {MOST_SEEDS} different whole numbers from {low} to "
                     f"{high}: one seed is not enough.")
    return tuple(given)


def _sentences(given: Sequence[Any], check: Check) -> tuple[str, ...]:
    """The check in words: a sentence for each comparison, or none at all."""
    wanted = len(check.comparisons)
    if given and (len(given) != wanted or not all(isinstance(each, str) and each for each in given)):
        raise _Wrong("sentences", f"sentences must be {wanted} text{'s' * (wanted > 1)}: one for each comparison of "
                     "the check, in their order.")
    return tuple(given)


def _metrics(field: str, given: Sequence[Any] | None) -> tuple[str, ...]:
    """Metrics that are drawn."""
    for each in given or ():
        _metric(field, each)
    return tuple(dict.fromkeys(given or ()))[:MOST_CHARTS]


def _read_by(check: Check, drawn: Drawing | None) -> tuple[str, ...]:
    """The metrics that the question and the check read."""
    usual = [*([drawn.metric] if drawn else []), *(metric for _, metric in check.reads)]
    return tuple(dict.fromkeys(usual))[:MOST_CHARTS]


def _completions(fields: Mapping[str, Any], setups: Sequence[Setup]) -> str:
    """The run whose completions are shown. Only a language model writes them."""
    name = str(fields.get("completions", ""))
    writers = [setup.name for setup in setups if setup.spec.kind == "llm"]
    if name and name not in writers:
        raise _Wrong("completions", f"completions is {quoted(name)}: use the name of a run of the kind llm"
                     f"{', ' if writers else ''}{' or '.join(writers)}.")
    return name


def _metric(field: str, key: Any) -> None:
    if not isinstance(key, str) or key not in METRICS:
        raise _Wrong(field, expression.no_metric(str(key)))
