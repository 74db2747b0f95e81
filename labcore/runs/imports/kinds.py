"""Detect the kind of a metrics file by its first bytes: a table to read, or a sentence that says what to do."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from labcore.errors import LabError
from labcore.runs.files import untrusted
from labcore.runs.files.jsonl import LIMIT
from labcore.runs.imports import delimited, objects, parquet
from labcore.runs.imports.table import Table

SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz")  # of metrics files
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class _Unreadable:
    """A kind of file that the lab does not read: its first bytes, what it is, and what to do."""

    begins: tuple[bytes, ...]
    what: str
    do: str


_CSV = "export the metrics as CSV, then import that"
_EVENTS = _Unreadable((), "an event file of TensorBoard", "open it in TensorBoard, tick Show data download links, "
                      "download the CSV of a metric, then import that")
_UNREADABLE = (
    _Unreadable((b"SQLite format 3\0",), "an SQLite database, such as Trackio and MLflow keep their metrics in",
                'write each row of its metrics as a line of JSON, for example {"run_name": "a", "step": 1, "reward": '
                "0.5}, then import that"),
    _Unreadable((b":W&B",), "a log of W&B in its own format", "upload it by wandb sync, then import the CSV that W&B "
                "exports"),
    _Unreadable((b"PK\x03\x04",), "a zip or an Excel workbook", "unpack it, or save its sheet as CSV, then import "
                "that"),
    _Unreadable((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), "a pickle, which the lab never reads", _CSV),
    _Unreadable((b"\x93NUMPY", b"\x89HDF"), "an array of NumPy or HDF5", _CSV),
    _Unreadable(_UTF_16, "UTF-16", "save it as UTF-8"),
)


def table_of(name: str, content: bytes) -> Table:
    """The table in a metrics file: CSV, JSON, JSON lines or Parquet, each compressed by gzip or not. Raises LabError if
    the file is of another kind, damaged or empty, or its unpacked content is longer than `LIMIT`."""
    content = untrusted.unzipped(name, content, LIMIT).removeprefix(codecs.BOM_UTF8)
    if kind := _unreadable(name, content):
        raise LabError(f"{name} is {kind.what}: {kind.do}.")
    if content.startswith(parquet.MAGIC):
        return parquet.table(name, content)
    begin = content[:2**10].lstrip() or content.lstrip()
    if not begin:
        raise LabError(f"{name} is empty: export the run again.")
    if b"\0" in begin:
        raise LabError(f"{name} is a binary file of a kind that the lab does not know: {_CSV}.")
    read = objects.table if begin.startswith((b"{", b"[")) else delimited.table
    return read(name, content)


def check_size(name: str, size: int) -> None:
    """Raise LabError where a file has more bytes than the lab reads."""
    if size > LIMIT:
        raise LabError(f"{name} has {size / 2**20:.1f} MB, above the limit of {LIMIT // 2**20} MB: give a part of it.")


def _unreadable(name: str, content: bytes) -> _Unreadable | None:
    """The kind of a file that the lab does not read; None of any other."""
    # A record of TensorFlow begins with its length and a checksum, the first event with the format's version.
    if b"brain.Event:" in content[:64] or ("tfevents" in name and b"\0" in content[:64]):
        return _EVENTS
    return next((kind for kind in _UNREADABLE if content.startswith(kind.begins)), None)
