"""Metrics of other tools as CSV, read as rows under our keys.

Known are TRL's `log_history`, W&B's run history and chart export, Stable-Baselines3's `progress.csv` and our own
`metrics.csv`. Left out: quantities that share a name but not a unit, such as a KL per sequence.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, quoted
from labcore.files.jsonl import LIMIT, csv_reader
from labcore.store.rows import COUNTERS, Step

SUFFIXES = (".csv", ".tsv")

# Our counter or metric -> what other tools call it, the best first. Names are compared in lower case, and without a
# leading "train/", under which W&B keeps the trainers' logs.
ALIASES: dict[str, tuple[str, ...]] = {
    "step": ("step", "train/global_step", "global_step", "trainer/global_step", "iteration", "time/iterations",
             "_step"),
    "tokens": ("tokens", "num_tokens", "total_tokens"),
    "env_steps": ("env_steps", "time/total_timesteps", "total_timesteps"),
    "seconds": ("seconds", "_runtime", "time/time_elapsed", "wall_time", "relative time (process)"),
    "updates": ("updates", "n_updates"),
    "reward": ("objective/scores", "rewards/mean", "reward/mean", "critic/rewards/mean"),
    "exact_match": ("accuracy_reward", "rewards/accuracy_reward/mean", "rewards/accuracy_reward"),
    "kl": ("kl/mean",),
    "entropy": ("policy/entropy_avg", "actor/entropy"),
    "clip_frac/region": ("clip_ratio/region_mean", "clip_ratio", "policy/clipfrac_avg", "clip_fraction",
                         "actor/pg_clipfrac"),
    "clip_frac/low": ("clip_ratio/low_mean",),
    "clip_frac/high": ("clip_ratio/high_mean",),
    "sampling/logp_difference": ("sampling/sampling_logp_difference/mean",),
    "completions/mean_length": ("completion_length", "response_length/mean"),
    "completions/truncated_frac": ("completions/clipped_ratio", "response_length/clip_ratio"),
    "value_loss": ("loss/value_avg", "critic/vf_loss"),
    "policy_loss": ("loss/policy_avg", "policy_gradient_loss", "actor/pg_loss"),
    "grad_norm": ("actor/grad_norm",),
    "learning_rate": ("lr", "actor/lr"),
    "episode_return": ("rollout/ep_rew_mean", "episodic_return", "charts/episodic_return"),
    "episode_length": ("rollout/ep_len_mean", "charts/episodic_length"),
    "eval_return": ("eval/mean_reward",),
    "eval_length": ("eval/mean_ep_length",),
    "epsilon": ("rollout/exploration_rate",),
}
_MOST_STEPS = 10**15

_UPDATES = ("step", "train/global_step", "global_step", "trainer/global_step")  # steps that are optimizer updates
_BOTH = ("num_tokens", "total_tokens")  # counts of prompts and completions together
_MISSING = frozenset(("", "nan", "none", "null", "na", "n/a", "inf", "-inf", "infinity", "-infinity"))


@dataclass(frozen=True)
class Foreign:
    """What one CSV holds of one run: rows under our keys. `mapped`: our key -> its column; `unmapped` columns stay in
    the file only; `notes` say what a reader must know of the numbers."""

    label: str
    rows: tuple[Step, ...]
    mapped: dict[str, str]
    unmapped: tuple[str, ...]
    notes: tuple[str, ...]


def parse(name: str, content: bytes, label: str = "") -> list[Foreign]:
    """The runs in a CSV: one, or one for each line of a W&B chart.

    Rows of one step are taken together. Raises:
        LabError: it is no CSV, has no step column or no number that the lab knows, or a number cannot be read.
    """
    if len(content) > LIMIT:
        raise LabError(f"{name} has {len(content) / 2**20:.0f} MB, above the limit of {LIMIT // 2**20} MB: give a part "
                       "of it.")
    header, body = _table(name, content)
    place = _first(ALIASES["step"], {_plain(column): index for index, column in enumerate(header)})
    if place is None:
        raise LabError(f"{name} has no step column, so its rows cannot be placed: name one column step (or "
                       f"{', '.join(ALIASES['step'][1:3])}), then import it again.")
    runs: dict[str, list[tuple[int, str]]] = {}
    for index, column in enumerate(header):
        of, quantity = _of_a_chart(column)
        if index != place and not quantity.endswith(("__MIN", "__MAX")):
            runs.setdefault(of, []).append((index, quantity))
    shared = runs.pop("", []) if len(runs) > 1 else []
    stem = label or Path(name).stem
    found = [_run(name, f"{stem} {of}".strip() if of else stem, (place, header[place]), [*shared, *own], body)
             for of, own in runs.items()]
    found = [run for run in found if run is not None]
    if not found:
        raise LabError(f"{name} has no metric that the lab knows among its {len(header)} columns: name one for example "
                       "reward, kl or loss, then import it again.")
    return found


def _table(name: str, content: bytes) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header and the (line number, cells) of the lines below it."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise LabError(f"{name} is not UTF-8: line {line} has the byte 0x{content[error.start]:02x}; save the file as "
                       "UTF-8.") from error
    first = text.lstrip().partition("\n")[0]
    if not first.strip():
        raise LabError(f"{name} is empty: export the run again.")
    reader = csv_reader(text, delimiter=max(",;\t", key=first.count), strict=True)
    header: list[str] = []
    body = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = [cell.strip() for cell in cells]
            elif len(cells) != len(header):
                raise LabError(f"Line {reader.line_num} of {name} has {len(cells)} cells and the header {len(header)}: "
                               "export the run again.")
            else:
                body.append((reader.line_num, cells))
    except csv.Error as error:
        raise LabError(f"Line {reader.line_num} of {name} is not CSV ({error}): export the run again.") from error
    if not body:
        raise LabError(f"{name} has a header and no rows: export the run again when it has some.")
    return header, body


def _run(name: str, label: str, step: tuple[int, str], columns: list[tuple[int, str]],
         body: list[tuple[int, list[str]]]) -> Foreign | None:
    """The run that some columns hold, or None where no column is known."""
    names: dict[str, int] = {}
    for index, column in columns:
        names.setdefault(_plain(column), index)
    by_place = dict(columns)
    places = {key: place for key in (*COUNTERS[1:], *METRICS)
              if (place := _first((key, *ALIASES.get(key, ())), names)) is not None}
    if not set(places) - set(COUNTERS) - {"updates", "num_tokens"}:
        return None
    rows = _rows(name, step, {key: (place, by_place[place]) for key, place in places.items()}, body)
    if not rows:
        return None
    counts = _plain(step[1]) in _UPDATES and "updates" not in places
    notes = []
    if counts:
        notes.append("Its steps are taken for optimizer updates.")
    if "tokens" in places and _plain(by_place[places["tokens"]]).removeprefix("train/") in _BOTH:
        notes.append("Its tokens may count the prompts too; the lab's count completions only.")
    mapped = {"step": step[1]} | {key: by_place[place] for key, place in places.items()}
    used = {step[0], *places.values()}
    unmapped = tuple(column for index, column in columns if index not in used and column)
    return Foreign(label, _steps(rows, counts), mapped, unmapped, tuple(notes))


def _rows(name: str, step: tuple[int, str], places: dict[str, tuple[int, str]],
          body: list[tuple[int, list[str]]]) -> dict[int, dict[str, float]]:
    """The numbers of each step; where two lines have the same step, the later number counts."""
    rows: dict[int, dict[str, float]] = {}
    for line, cells in body:
        at = _number(name, line, step[1], cells[step[0]])
        if at is None:
            continue  # a summary below the table belongs to no step
        if at != int(at) or not 0 <= at < _MOST_STEPS:
            raise LabError(f"Line {line} of {name} has the step {cells[step[0]].strip()}: steps are whole numbers from "
                           "0.")
        found = {key: number for key, (place, column) in places.items()
                 if (number := _number(name, line, column, cells[place])) is not None}
        if found:
            rows.setdefault(int(at), {}).update(found)
    return rows


def _steps(rows: dict[int, dict[str, float]], counts: bool) -> tuple[Step, ...]:
    """The rows in order. A counter that a line leaves out stays where it was; `counts`: steps are updates."""
    steps, counted = [], dict.fromkeys(COUNTERS[1:], 0.0)
    for at, numbers in sorted(rows.items()):
        counted |= {key: numbers[key] for key in counted if key in numbers}
        metrics = {key: value for key, value in numbers.items() if key not in COUNTERS}
        if counts:
            metrics["updates"] = float(at)
        steps.append(Step(at, int(counted["tokens"]), int(counted["env_steps"]), counted["seconds"], metrics))
    return tuple(steps)


def _number(name: str, line: int, column: str, cell: str) -> float | None:
    """A cell as a finite number; None where it is empty or not finite."""
    text = cell.strip()
    if text.lower() in _MISSING:
        return None
    try:
        number = float(text)
    except ValueError:
        raise LabError(f"Line {line} of {name} has {quoted(text)} in the column {column}: it takes numbers.") from None
    return number if math.isfinite(number) else None


def _plain(column: str) -> str:
    return column.strip().lower()


def _first(aliases: Iterable[str], names: dict[str, Any]) -> Any:
    """What `names` has under the first of the aliases, itself or below train/; None where none is there."""
    return next((names[known] for alias in aliases for known in (alias, f"train/{alias}") if known in names), None)


def _of_a_chart(column: str) -> tuple[str, str]:
    """("my run", "train/reward") of "my run - train/reward", as W&B heads the lines of a chart; else ("", column)."""
    of, dash, quantity = column.rpartition(" - ")
    return (of.strip(), quantity.strip()) if dash else ("", column)
