"""Read a run capsule from an untrusted source: everything in it is checked before use, and nothing in it is run.

`unzipping` has unpacked it into a folder that goes away again. Numbers, spec and events are read as data here, and
validated as if they were typed in. Imports no torch.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore.analysis.doctor import doctor
from labcore.analysis.doctor.finding import SEVERITIES
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, quoted
from labcore.exports.capsules import packing, unzipping
from labcore.exports.capsules.packing import CHECKPOINTS, DATA, EVENTS, SEEN, SPEC
from labcore.exports.capsules.unzipping import check_values, fault, is_time, read_json
from labcore.runs.files import removal, tables, uploads
from labcore.runs.files.jsonl import LINE_LIMIT
from labcore.runs.files.paths import path_of
from labcore.runs.knob_history import CHANGE, has_place
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.rows import COUNTERS, ENDED, Event, Step

ROW_LIMIT = 2**16  # characters of a row of numbers
MOST_DIGITS = 300  # of a whole number that is read to say what is wrong with it
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
EXACT = 2**53  # whole numbers up to it are floats too


@dataclass(frozen=True)
class Capsule:
    """A checked capsule, unpacked in `folder`. `spec` still has the capsule's own paths; see `located`."""

    name: str
    folder: Path
    manifest: Mapping[str, Any]
    spec: RunSpec
    rows: tuple[Step, ...]
    events: tuple[Event, ...]

    @property
    def run(self) -> str:
        return str(self.manifest["run"])

    @property
    def first(self) -> Path | None:
        """The checkpoint that the run began with; None where it was too large for a capsule."""
        path = self.folder / CHECKPOINTS / f"step-{packing.first_step(self.spec):06d}"
        return path if path.is_dir() and not self.manifest["left_out"] else None

    def located(self, model: str, data: Path | None, device: str | None = None, absent: bool = False,
                teacher: str = "") -> RunSpec:
        """The spec, checked like a spec from the form, with the local places of its model (unless it is `absent`), of
        its `teacher` (if given) and of the user's file. Raises LabError if this lab has no such algorithm, task or
        knob, or a value is out of bounds."""
        spec = self.spec
        place = str(spec.knobs.get("held_out_file", ""))
        for path in (self.folder / DATA).glob(f"{place}-*") if uploads.is_place(place) else ():
            uploads.keep(path.name.removeprefix(f"{place}-"), path.read_bytes())  # by its hash, under the same name
        return make(kind=spec.kind, algorithm_key=spec.algorithm, task_key=spec.task, model=model,
                    knobs={**spec.knobs, **({"teacher": teacher} if teacher else {})},
                    seed=spec.seed, steps=spec.steps, device=device or spec.device, threads=spec.threads,
                    data=str(data) if data else None, parent=spec.parent, twin=spec.twin, mix=spec.mix,
                    absent=absent)

    @property
    def data(self) -> Path | None:
        """The user's file."""
        return self.folder / self.spec.data if self.spec.data else None


@contextmanager
def unpacked(path: Path | str) -> Iterator[Capsule]:
    """The capsule at `path`, unpacked for as long as it is needed. Raises LabError if it is no capsule, of another
    version, damaged, incomplete, too large, or tries to write elsewhere."""
    path = path_of(path)
    with removal.folder("capsule") as folder:
        yield _read(path.name, folder, unzipping.unpack(path, folder))


def _read(name: str, folder: Path, manifest: dict[str, Any]) -> Capsule:
    read_json(name, SPEC, (folder / SPEC).read_bytes())  # before it is read as a spec: it has its bounds
    spec = RunSpec.from_json(_text(name, folder, SPEC))
    if not _sound_types(spec):
        raise fault(name, f"its {SPEC} is not that of a run")
    if spec.data and (Path(spec.data).parts[0] != DATA or spec.data not in manifest["files"]):
        raise fault(name, f"its {SPEC} names a file outside of it")
    for file in manifest["files"]:
        if file.split("/")[0] in SEEN and not _sound_seen(read_json(name, file, (folder / file).read_bytes())):
            raise fault(name, f"{quoted(file)} is nothing to look at")
    rows, events = tuple(_rows(name, folder, manifest["step"])), tuple(_events(name, folder))
    if not rows or rows[-1].step != manifest["step"]:
        raise fault(name, f"its {packing.METRICS} does not end with step {manifest['step']}")
    state = manifest["state"] if manifest["state"] in ENDED else "interrupted"
    found = Capsule(name, folder, {"started": None, "ended": None, **manifest, "state": state}, spec, rows, events)
    if not found.first and not manifest["left_out"]:
        raise fault(name, "the checkpoint that the run began with is missing")
    return found


def _sound_types(spec: RunSpec) -> bool:
    """True if the fields of a spec have the types that `make` assumes; `make` checks the values."""
    texts = (spec.kind, spec.algorithm, spec.task, spec.model, spec.device, spec.mix, spec.data or "")
    return all(isinstance(text, str) for text in texts) and isinstance(spec.knobs, dict)


def _sound_seen(content: Any) -> bool:
    return isinstance(content, dict) and type(content.get("step")) is int


def _rows(name: str, folder: Path, end: int) -> Iterator[Step]:
    """The rows up to step `end`. Raises a fault at the first row that is invalid or beyond `end`, without reading
    further. No number has a comma, so a row is split at commas."""
    lines = (line.rstrip("\n").split(",") for line in _lines(name, folder, packing.METRICS, ROW_LIMIT))
    header, table = _table(name, packing.METRICS, lines, packing.MOST_CELLS)
    unknown = [key for key in header if key not in METRICS and key not in COUNTERS]
    if unknown:
        raise LabError(f"{name} has the metric {quoted(unknown[0])}, which this lab does not know: use the lab that "
                       "wrote it, or a newer one.")
    if not {"step", "tokens", "seconds"} <= set(header):
        raise fault(name, f"its {packing.METRICS} has no column step, tokens or seconds")
    last: int | None = None
    for row in table:
        values = {key: _number(name, text) for key, text in zip(header, row, strict=True) if text}
        step, tokens, env_steps, seconds = (values.pop(key, 0) for key in COUNTERS)
        if type(step) is not int or type(tokens) is not int or type(env_steps) is not int or (
                step < 1 if last is None else step != last + 1):
            raise fault(name, f"its {packing.METRICS} does not count its steps")
        if not is_time(seconds):
            raise fault(name, f"its {packing.METRICS} does not count its seconds")
        last = step
        if last > end:
            raise fault(name, f"its {packing.METRICS} does not end with step {end}")
        yield Step(step, tokens, env_steps, seconds, values)


def _events(name: str, folder: Path) -> Iterator[Event]:
    check_values(name, EVENTS, (folder / EVENTS).read_bytes())
    header, table = _table(name, EVENTS, _parsed(name, EVENTS, _lines(name, folder, EVENTS, LINE_LIMIT)),
                           packing.MOST_CELLS)
    if not {"step", "time", "kind", "payload"} <= set(header):
        raise fault(name, f"its {EVENTS} lacks a column")
    for number, line in enumerate(table, 1):
        row = dict(zip(header, line, strict=True))
        payload = read_json(name, EVENTS, row["payload"].encode())
        step, time = _number(name, row["step"]), _number(name, row["time"])
        if not isinstance(payload, dict) or not isinstance(payload.get("text", ""), str) or not is_time(time) or (
                type(step) is not int or step < 0 or not row["kind"].isidentifier()):
            raise fault(name, f"line {number} of its {EVENTS} is no event")
        event = Event(number, step, row["kind"], payload, float(time))
        if (has_place(event) and not _sound_change(event)) or (event.kind == doctor.EVENT
                                                               and not _sound_verdict(payload)):
            raise fault(name, f"line {number} of its {EVENTS} is no event")
        yield event


def _sound_change(event: Event) -> bool:
    payload = event.payload
    to = payload.get("to" if event.kind == CHANGE else "value")
    return (isinstance(payload.get("knob"), str) and type(payload.get("update")) is int
            and payload.get("between") in (0, 1)
            and (isinstance(to, str) or (isinstance(to, (bool, int, float)) and abs(to) <= EXACT)))


def _sound_verdict(payload: Mapping[str, Any]) -> bool:
    """Whether the doctor can read its own event; one that something has passed names its rule only."""
    rule, holds, value = payload.get("rule"), payload.get("holds"), payload.get("value")
    if not isinstance(rule, str) or not isinstance(holds, bool):
        return False
    texts = (payload.get(key) for key in ("verdict", "evidence", "fix", "knob"))
    return not holds or (all(isinstance(text, str) for text in texts) and payload.get("severity") in SEVERITIES
                         and "value" in payload and type(began := payload.get("began", 0)) is int
                         and 0 <= began <= EXACT
                         and (value is None or isinstance(value, str)
                              or (isinstance(value, (bool, int, float)) and abs(value) <= EXACT)))


def _table(name: str, file: str, lines: Iterator[list[str]], most: int) -> tuple[list[str], Iterator[list[str]]]:
    """The header and the rows, of at most `most` cells as `packing.cells` counts them. Nothing is read beyond the first
    row that is invalid."""
    header = next(lines, None)
    if not header or len(set(header)) < len(header):
        raise fault(name, f"its {file} is no table")
    return header, _cells_of(name, file, lines, len(header), most)


def _cells_of(name: str, file: str, lines: Iterator[list[str]], wide: int, most: int) -> Iterator[list[str]]:
    for count, row in enumerate(lines, 1):
        if len(row) != wide:
            raise fault(name, f"its {file} is no table")
        if packing.cells(count, wide) > most:
            raise fault(name, f"its {file} has more than {most:,} cells")
        yield row


def _parsed(name: str, file: str, lines: Iterator[str]) -> Iterator[list[str]]:
    try:
        yield from tables.cells(lines)
    except csv.Error as error:
        raise fault(name, f"its {file} is no table ({error})") from error


def _lines(name: str, folder: Path, file: str, longest: int) -> Iterator[str]:
    """The lines of a table with their ends, of at most `longest` characters, and no more than any table has."""
    try:
        with (folder / file).open(encoding="utf-8", newline="") as lines:
            for count in itertools.count():
                line = lines.readline(longest + 1)
                if not line:
                    break
                if len(line) > longest or packing.cells(count, 0) > packing.MOST_CELLS:
                    raise fault(name, f"its {file} is no table: it has a line, or lines, without end")
                yield line
    except UnicodeDecodeError as error:
        raise fault(name, f"its {file} is not UTF-8") from error


def _text(name: str, folder: Path, file: str) -> str:
    try:
        return (folder / file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise fault(name, f"its {file} is not UTF-8") from error


def _number(name: str, text: str) -> int | float:
    """The number that JSON writes so. Long tables have millions of them, for which `json` takes five times as long."""
    found = _NUMBER.fullmatch(text)
    value = None if found is None else float(text) if found[1] else int(text) if len(text) <= MOST_DIGITS else math.inf
    if found is None or value is None or (found[1] and not math.isfinite(value)):
        raise fault(name, f"{quoted(text)} in its tables is no number")
    if abs(value) > EXACT and not found[1]:
        raise fault(name, f"{quoted(text)} in its tables is beyond 2**53")
    return value
