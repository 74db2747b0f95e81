"""Metrics of other tools as CSV, read as rows under our keys.

Known are TRL's `log_history`, W&B's run history and chart export, Stable-Baselines3's `progress.csv` and our own
`metrics.csv`. Left out: quantities that share a name but not a unit, such as a KL per sequence.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from labcore.catalog.metrics import METRICS, ordered
from labcore.errors import LabError, quoted
from labcore.files import tables
from labcore.files.jsonl import LIMIT
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
MOST_NUMBERS = 10_000_000  # that the lab keeps of one file
MOST_RUNS = 1000  # lines of one chart: each becomes a run
_MOST_STEPS = 10**15
_SNIFFED = 2**20  # bytes from the start of a file in which its delimiter is looked for

_UPDATES = ("step", "train/global_step", "global_step", "trainer/global_step")  # steps that are optimizer updates
_BOTH = ("num_tokens", "total_tokens")  # counts of prompts and completions together
_MISSING = frozenset(("", "none", "null", "na", "n/a"))  # and what Python reads as nan or an infinity
_COUNTS = frozenset((*COUNTERS, "updates", "num_tokens"))  # alone they are no metrics of a run

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Foreign:
    """What one CSV holds of one run, under our keys: `columns` of N numbers, (N,) each, in the order of their steps,
    NaN where there is none; all of COUNTERS, then metrics.

    `mapped`: our key -> its column; `unmapped` columns stay in the file only; `notes` say what a reader must know of
    the numbers.
    """

    label: str
    columns: Columns
    mapped: dict[str, str]
    unmapped: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def metrics(self) -> Columns:
        """The columns that are no counters, in the catalog's order."""
        return {key: self.columns[key] for key in ordered(self.columns.keys() - COUNTERS)}

    @cached_property
    def rows(self) -> tuple[Step, ...]:
        """The same, step by step. For a million of them this takes 1 GB."""
        counters = [map(int, self.columns[key].tolist()) for key in COUNTERS[:3]]
        metrics = self.metrics
        found = zip(*(column.tolist() for column in metrics.values()), strict=True)
        return tuple(Step(*counted, {key: value for key, value in zip(metrics, row, strict=True) if value == value})
                     for *counted, row in zip(*counters, self.columns["seconds"].tolist(), found, strict=True))


def parse(name: str, content: bytes, label: str = "") -> list[Foreign]:
    """The runs in a CSV: one, or one for each line of a W&B chart.

    Rows of one step are taken together. Raises:
        LabError: it is no CSV, has no step column or no number that the lab knows, a number cannot be read, or there
            are more of them than the lab keeps.
    """
    if len(content) > LIMIT:
        raise LabError(f"{name} has {len(content) / 2**20:.1f} MB, above the limit of {LIMIT // 2**20} MB: give a part "
                       "of it.")
    return _in_words(name, content, label, MOST_NUMBERS)


def parse_own(name: str, content: bytes) -> Foreign:
    """The run in a CSV that the lab wrote of a parsed one: longer than that, and so without a limit. Raises LabError
    where it is damaged."""
    return _in_words(name, content, "", math.inf)[0]


def _in_words(name: str, content: bytes, label: str, most: float) -> list[Foreign]:
    try:
        return _parsed(name, content, label, most)
    except UnicodeDecodeError as error:
        line, byte = _not_utf8(content.removeprefix(codecs.BOM_UTF8))
        raise LabError(f"{name} is not UTF-8: line {line} has the byte 0x{byte:02x}; save the file as "
                       "UTF-8.") from error


def _parsed(name: str, content: bytes, label: str, most: float) -> list[Foreign]:
    lines = _table(name, content)
    _, header = next(lines)
    place = _first(header, "step")
    if place is None:
        raise LabError(f"{name} has no step column, so its rows cannot be placed: name one column step (or "
                       f"{', '.join(ALIASES['step'][1:3])}), then import it again.")
    runs = _runs(header, place)
    if len(runs) > MOST_RUNS:
        raise LabError(f"{name} has {len(runs):,} lines of a chart, and each would be a run: give at most "
                       f"{MOST_RUNS:,} of them.")
    places = {of: {key: at for key in (*COUNTERS[1:], *METRICS) if (at := known.get(key)) is not None}
              for of, columns in runs.items() if (known := _known(columns)).keys() - _COUNTS}
    wanted = sorted({at for found in places.values() for at in found.values()})
    numbers = _numbers(name, lines, header, [place, *wanted], most)
    steps, read = numbers.pop(place), numbers
    stem = label or Path(name).stem
    found = []
    for of, mapping in places.items():
        columns = _columns(steps, {key: read[at] for key, at in mapping.items()})
        if columns["step"].size:
            found.append(_foreign(f"{stem} {of}".strip() if of else stem, header[place], columns, runs[of], mapping))
    if not found:
        raise LabError(f"{name} has no metric that the lab knows among its {len(header)} columns: name one for example "
                       "reward, kl or loss, then import it again.")
    return found


def _not_utf8(content: bytes) -> tuple[int, int]:
    """The line and the byte at which this stops being UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1, content[error.start]
    return 0, 0


# ---------------------------------------------------------------- the table


def _table(name: str, content: bytes) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of the header and of the lines below it, which have as many cells. Memory: one line."""
    first = content[:_SNIFFED].decode("utf-8-sig", "replace").lstrip().partition("\n")[0]
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
    reader = tables.reader(text, delimiter=max(",;\t", key=first.count), strict=True)
    width = rows = 0
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if width and len(cells) != width:
                raise LabError(f"Line {reader.line_num} of {name} has {len(cells)} cells and the header {width}: "
                               "export the run again.")
            yield reader.line_num, cells if width else [tables.plain(cell.strip()) for cell in cells]
            width, rows = len(cells), rows + 1
    except csv.Error as error:
        raise LabError(f"Line {reader.line_num} of {name} is not CSV ({error}): export the run again.") from error
    if not rows:
        raise LabError(f"{name} is empty: export the run again.")
    if rows == 1:
        raise LabError(f"{name} has a header and no rows: export the run again when it has some.")


def _numbers(name: str, lines: Iterator[tuple[int, list[str]]], header: Sequence[str],
             wanted: Sequence[int], most: float) -> dict[int, np.ndarray]:
    """The numbers of some columns, `most` of them in all, the first column the steps; lines without a step, such as a
    summary, are left out. (N,) each, NaN where a cell is empty or not finite."""
    found = [(index, header[index], array("d")) for index in wanted]
    place, column, steps = found[0]
    for line, cells in lines:
        at = _number(name, line, column, cells[place])
        if at != at:
            continue
        if at != int(at) or not 0 <= at < _MOST_STEPS:
            raise LabError(f"Line {line} of {name} has the step {cells[place].strip()}: steps are whole numbers from "
                           "0.")
        steps.append(at)
        for index, title, numbers in found[1:]:
            numbers.append(_number(name, line, title, cells[index]))
        if len(steps) * len(found) > most:
            raise LabError(f"{name} has more than {most:,} numbers that the lab would keep: give a part of it, "
                           "for example every tenth row.")
    return {index: np.array(numbers) for index, _, numbers in found}


def _number(name: str, line: int, column: str, cell: str) -> float:
    """A cell as a finite number; NaN where it is empty or not finite."""
    try:
        number = float(cell)
    except ValueError:
        if cell.strip().lower() in _MISSING:
            return math.nan
        raise LabError(f"Line {line} of {name} has {quoted(cell.strip())} in the column {column}: it takes numbers."
                       ) from None
    return number if math.isfinite(number) else math.nan


# ---------------------------------------------------------------- its columns


def _runs(header: Sequence[str], place: int) -> dict[str, list[tuple[int, str]]]:
    """The runs by their names in a W&B chart, "" in any other file: the (place, quantity) of each one's columns."""
    runs: dict[str, list[tuple[int, str]]] = {}
    for index, column in enumerate(header):
        of, quantity = _of_a_chart(column)
        if index != place and not quantity.endswith(("__MIN", "__MAX")):
            runs.setdefault(of, []).append((index, quantity))
    shared = runs.pop("", []) if len(runs) > 1 else []
    return {of: [*shared, *own] for of, own in runs.items()}


def _of_a_chart(column: str) -> tuple[str, str]:
    """("my run", "train/reward") of "my run - train/reward", as W&B heads the lines of a chart; else ("", column)."""
    of, dash, quantity = column.rpartition(" - ")
    return (of.strip(), quantity.strip()) if dash else ("", column)


def _first(header: Sequence[str], key: str) -> int | None:
    """Where the column of one of our keys is."""
    return _known(list(enumerate(header))).get(key)


def _known(columns: Sequence[tuple[int, str]]) -> dict[str, int]:
    """Our keys -> the place of the column that suits best; of columns that are called alike it is the first."""
    best: dict[str, tuple[int, int]] = {}
    for index, column in columns:
        for key, rank in _names().get(_plain(column), ()):
            best[key] = min(best.get(key, (rank, index)), (rank, index))
    return {key: index for key, (_, index) in best.items()}


@lru_cache(maxsize=1)
def _names() -> dict[str, list[tuple[str, int]]]:
    """Every name that is known -> the (key, rank) that it can stand for: what a key is called first has rank 0."""
    found: dict[str, list[tuple[str, int]]] = {}
    for key in (*COUNTERS, *METRICS):
        aliases = ALIASES[key] if key == "step" else (key, *ALIASES.get(key, ()))
        for rank, alias in enumerate(name for known in aliases for name in (known, f"train/{known}")):
            found.setdefault(alias, []).append((key, rank))
    return found


def _plain(column: str) -> str:
    return column.strip().lower()


# ---------------------------------------------------------------- a run


def _columns(steps: np.ndarray, numbers: Columns) -> dict[str, np.ndarray]:
    """The rows that have any number, in the order of their steps. Of one step the later number counts; a counter that
    a row leaves out stays where it was. (N,), (N,) each -> (M,) each"""
    there = np.any([np.isfinite(column) for column in numbers.values()], axis=0)
    order = np.flatnonzero(there)[np.argsort(steps[there], kind="stable")]
    ordered_steps = steps[order]
    begins = np.flatnonzero(np.diff(ordered_steps, prepend=-1.0))
    found = {key: _latest(column[order], begins) for key, column in numbers.items()}
    counters = {key: _held(found[key]) if key in found else np.zeros(begins.size) for key in COUNTERS[1:]}
    metrics = {key: column for key, column in found.items() if key not in COUNTERS and np.isfinite(column).any()}
    return {"step": ordered_steps[begins], **counters, **metrics}


def _latest(column: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The last number of each stretch of rows, NaN where it has none. (N,), (M,) -> (M,)"""
    places = np.where(np.isfinite(column), np.arange(column.size), -1)
    if not begins.size:
        return np.empty(0)
    last = np.maximum.reduceat(places, begins)
    return np.where(last >= 0, column[last], np.nan)


def _held(column: np.ndarray) -> np.ndarray:
    """Numbers, in the place of one that is missing that before it; 0 before the first. (M,) -> (M,)"""
    last = np.maximum.accumulate(np.where(np.isfinite(column), np.arange(column.size), -1))
    return np.where(last >= 0, column[last], 0.0) if column.size else column


def _foreign(label: str, step: str, columns: dict[str, np.ndarray], own: Sequence[tuple[int, str]],
             places: Mapping[str, int]) -> Foreign:
    """The run of these columns; `step` heads the column of its steps."""
    titles, notes = dict(own), []
    if _plain(step) in _UPDATES and "updates" not in places:
        columns["updates"] = columns["step"]
        notes.append("Its steps are taken for optimizer updates.")
    if "tokens" in places and _plain(titles[places["tokens"]]).removeprefix("train/") in _BOTH:
        notes.append("Its tokens may count the prompts too; the lab's count completions only.")
    used = set(places.values())
    return Foreign(label, columns, {"step": step} | {key: titles[at] for key, at in places.items()},
                   tuple(title for index, title in own if index not in used and title), tuple(notes))
