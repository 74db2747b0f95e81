"""The names of things on the pages: knobs by their signs, models and files without the folders that they lie in.

What programs read keeps keys and paths: CSV, JSON, the command line; links keep the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from app.lab import titled
from app.marked import FAMILIES, worded
from labcore.analysis.compare.groups import CHANGED, changes_text
from labcore.catalog.knob import shown
from labcore.catalog.llm.models import MODELS
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.right import RENAMED, in_run
from labcore.runs.models import spec_of
from labcore.runs.presets import preset_of
from labcore.runs.spec.model_names import BASE, START, name_of_model, parse
from labcore.runs.spec.run_spec import RunSpec, base_spec, every_knob, knobs_of
from labcore.runs.steering import unusual_knobs
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

LONGEST = 24  # letters of a value in a label
NAMED = 2  # settings beside a run's title
# What of a setting is no knob.
FIELDS = {"kind": "Kind", "algorithm": "Algorithm", "task": "Task", "model": "Model", "steps": "Steps",
          "device": "Device", "threads": "Threads", "data": "File", "parent": "Fork of",
          "twin": "Its parent's random numbers", CHANGED: "Changed mid-run"}


def title(key: str, specs: Sequence[RunSpec] = ()) -> str:
    """The name of a setting on its own, from the knobs of `specs`; only its sign if these name it differently.

    >>> title("beta"), title("data"), title("of no algorithm")
    ('KL coefficient β', 'File', 'of no algorithm')
    """
    found = [knob for spec in specs for knob in knobs_of(spec.row, spec.task_row) if knob.key == key]
    found = found or [every_knob()[key]] if key in every_knob() else []
    if not found:
        return FIELDS.get(key, key)
    return found[0].title if len({knob.title for knob in found}) == 1 else found[0].name


def name(key: str) -> str:
    """The name of a setting beside its value.

    >>> name("clip_low"), name("group_size"), name("seed")
    ('ε_low', 'G', 'seed')
    """
    return every_knob()[key].name if key in every_knob() else key


def setting(key: str, value: Any, spec: RunSpec) -> str:
    """A setting of a run with its value, for a label: "β 0.2"; of a choice its words alone."""
    if key == "twin":
        return f"{'the same' if value else 'fresh'} random numbers"
    if key == "labelled_pairs":
        return "own labels"
    if key == "held_out_file":
        return "a held-out file"
    own = next((knob.name for knob in knobs_of(spec.row, spec.task_row) if knob.key == key),
               FIELDS.get(key, key).lower())
    text = written(key, value)
    short = text if len(text) <= LONGEST else f"{text[:LONGEST - 1].rstrip()}…"
    return short if key in FAMILIES else f"{own} {short}"


def written(key: str, value: Any) -> str:
    """The value of a setting as people write it.

    >>> written("beta", 7e-4), written("double", True), written("data", "/home/me/uploads/3fa8/pairs.jsonl")
    ('0.0007', 'on', 'pairs.jsonl')
    >>> written("aggregation", "token_mean"), written("td_loss", "mse"), written("optimizer", "adamw_8bit")
    ('mean over all tokens of the update', 'mse', 'adamw 8bit')
    """
    if key == "model":
        return model(str(value))
    if key == "data":
        return Path(str(value)).name
    if key == CHANGED:
        return changes_text(value, name)
    if (family := FAMILIES.get(key)) and value in family.names:
        label: str = family[value].label
        return label
    if key in every_knob() and every_knob()[key].choices:
        return str(value).replace("_", " ")
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else shown(value)


def message(run: RunRow) -> str:
    """The run's message, with other runs by their titles."""
    return titled(worded(run.message, knobs_of(run.spec.row, run.spec.task_row)))


# ---- runs ---------------------------------------------------------------------------------------------------------


def preset(spec: RunSpec) -> str:
    """The name of the preset whose settings a run has; empty if it has the defaults, or other settings."""
    found = preset_of(spec)
    return found.label if found and found.knobs else ""


def to_choose(run: RunRow, *more: str) -> str:
    """A run among others to choose from: its title, its preset or what is not at its default, and `more`."""
    return " · ".join(filter(None, (title_of(run), preset(run.spec) or apart(run.spec), *more)))


def apart(spec: RunSpec) -> str:
    """Return what distinguishes a run: its first knobs that are not at their defaults, and whether it is a fork; for a
    watched run, its trainer."""
    if spec.kind_row.elsewhere:
        return ", ".join(filter(None, (spec.tool, "fork" if spec.parent else "")))
    knobs = unusual_knobs(spec)
    named = ", ".join(setting(knob.key, spec.knobs[knob.key], spec) for knob in knobs[:NAMED])
    return ", ".join(filter(None, (named + " …" * (len(knobs) > NAMED), "fork" if spec.parent else "")))


# ---- models ------------------------------------------------------------------------------------------------------


def model(text: str) -> str:
    """A model of the lab's own by its run's title and its step, or as a base; another folder by its name.

    >>> model("tiny"), model("Qwen/Qwen2.5-0.5B"), model("/home/me/models/mine")
    ('tiny', 'Qwen/Qwen2.5-0.5B', 'mine')
    """
    short = name_of_model(text)
    return (Path(short).name or short) if Path(short).is_absolute() else titled(short)


def model_title(name: str, learnt: str = "") -> str:
    """A model in words: its algorithm, or the words `learnt`, and its step."""
    found, spec = parse(name), spec_of(parse(name).run)
    if found.stage == START:
        return "Untrained"
    if found.stage == BASE:
        made = "by SFT" if base_spec(spec) else "untrained" if spec.model in MODELS else "given"
        return f"Base, {made}"
    return f"{learnt or spec.row.label}, step {found.step:,}"


def metric(key: str, specs: Iterable[RunSpec | None]) -> Metric:
    """A metric under the name that all runs of these specs give it; its usual name if they differ or one is None."""
    if key not in RENAMED:
        return METRICS[key]
    found = {spec and in_run(key, spec.row, spec.task_row, spec.knobs) for spec in specs} or {None}
    return (found.pop() if len(found) == 1 else None) or METRICS[key]
