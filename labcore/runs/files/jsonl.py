"""Read the user's files: JSON lines with text fields, and plain text. Every fault names its line.

Left out: other encodings than UTF-8, and files above `LIMIT`, which would not fit beside a model in a laptop's
memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from labcore.errors import LabError
from labcore.runs.files import untrusted

LIMIT = 64 * 2**20  # bytes
LINE_LIMIT = 4 * 2**20  # bytes of one line: as JSON it takes many times as much memory
MOST_NAMED = 3  # lines whose fault is named
HOPELESS = 1000  # bad lines and no good one: the file is something else, and need not be read to its end
Row = TypeVar("Row")
Place = tuple[int, Callable[[], dict[str, Any]]]  # the line of an object, and a function that returns it
Fault = tuple[int, str]  # the line of a row that cannot be used, and why


def read_objects(path: Path, read: Callable[[Mapping[str, object], int], Row]) -> list[Row]:
    """The results of `read`, which is called with the JSON object of every line that is not blank and with the line's
    number, and raises LabError if it cannot use the line. Raises LabError if the file cannot be read, a line is longer
    than LINE_LIMIT, or lines are no JSON objects or cannot be used. The message then names the first of these lines and
    says how many lines are good."""
    return gathered(path.name, objects(path.name, read_bytes(path)), read)


class BadRows(LabError):
    """Some rows of a file cannot be used: `bad` of them, where `good` others can."""

    def __init__(self, sentence: str, bad: int, good: int):
        self.bad, self.good = bad, good
        super().__init__(sentence)


def gathered(name: str, places: Iterable[Place], read: Callable[[Mapping[str, Any], int], Row],
             left_out: list[Fault] | None = None, remedy: str = "") -> list[Row]:
    """Apply `read` to the object at each place of the file `name`; see `rows.read_rows`. Raises BadRows."""
    rows: list[Row] = []
    faults: list[Fault] = []
    for index, found in places:
        try:
            rows.append(read(found(), index))
        except LabError as error:
            faults.append((index, str(error)))
            if len(faults) == HOPELESS and not rows:
                break
    if faults and (left_out is None or not rows):
        said = _unusable(name, dict(faults[:MOST_NAMED]), len(faults), len(rows))
        raise BadRows(f"{said} {remedy}" if remedy and rows else said, len(faults), len(rows))
    if left_out is not None:
        left_out.extend(faults)
    return rows


def objects(name: str, content: bytes) -> Iterator[Place]:
    """The JSON object of every line that is not blank, with its number. Each is parsed when it is asked for."""
    for index, raw in enumerate(_lines(name, content), start=1):
        if raw.strip():
            yield index, partial(_object, name, index, raw.removesuffix(b"\n"), last=not raw.endswith(b"\n"))


def _lines(name: str, content: bytes) -> Iterator[bytes]:
    """The lines of a file, each with its end. None is held twice, and none that is too long is held at all."""
    file = io.BytesIO(content)
    number = 1
    while line := file.readline(LINE_LIMIT + 1):
        if len(line) > LINE_LIMIT:
            raise LabError(f"Line {number:,} of {name} is longer than {LINE_LIMIT // 2**20} MB: write one JSON object "
                           "of that size at most on each line.")
        yield line
        number += 1


def _unusable(name: str, faults: dict[int, str], bad: int, good: int) -> str:
    """The sentence about a file of so many bad and good lines, the first `faults` by their lines; without a good line
    that of the first alone."""
    first = min(faults)
    if not good:
        return faults[first]
    if bad == 1:
        return f"{faults[first]} {_other_lines(good)} can be used."
    named = " ".join(fault.replace(f" of {name}", "", 1) for fault in faults.values())
    more = f" And {bad - len(faults):,} more." if bad > len(faults) else ""
    return f"{bad:,} of {bad + good:,} lines of {name} cannot be used, the first is line {first:,}. {named}{more}"


def _other_lines(count: int) -> str:
    return "The other line" if count == 1 else f"The other {count:,} lines"


def read_text(path: Path) -> str:
    """The whole of a plain text file, with line ends as "\\n".

    Raises:
        LabError: the file cannot be read or is not UTF-8 text.
    """
    content = read_bytes(path)
    if (at := content.find(b"\0")) >= 0:
        raise LabError(f"{path.name} has a NUL byte in line {_line(content, at)}, so it is not plain text: give a "
                       "UTF-8 text file.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LabError(f"{path.name} is not UTF-8: line {_line(content, error.start)} has the byte "
                       f"0x{content[error.start]:02x}; save the file as UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path) -> bytes:
    """The content of a file without its byte order mark, and unpacked where gzip compressed it. Raises LabError as
    `untrusted.read`, or if it is empty or UTF-16, or unpacks to more than LIMIT."""
    content = untrusted.unzipped(path.name, untrusted.read(path, LIMIT), LIMIT)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LabError(f"{path.name} is UTF-16: save it as UTF-8.")
    content = content.removeprefix(b"\xef\xbb\xbf")
    if not content or content.isspace():
        raise LabError(f"{path.name} is empty: give a file with content.")
    return content


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1


def _object(name: str, index: int, raw: bytes, last: bool) -> dict[str, Any]:
    """The JSON object of line `index`; `last` is the line after which the file ends without a line end."""
    cut = (f"Line {index} of {name} ends in the middle, so the file was cut off: copy it again, or remove that "
           "line.")
    if b"\0" in raw:
        raise LabError(f"Line {index} of {name} has NUL bytes, so it is not JSON: give a UTF-8 file of JSON lines.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if last and error.reason == "unexpected end of data":
            raise LabError(cut) from error
        raise LabError(f"Line {index} of {name} is not UTF-8 (byte 0x{raw[error.start]:02x} at place "
                       f"{error.start + 1}): save the file as UTF-8.") from error
    try:
        value = untrusted.json_of(text)
    except untrusted.NotJSON as error:
        if not isinstance(wrong := error.__cause__, json.JSONDecodeError):
            raise LabError(f"Line {index} of {name} is JSON that cannot be read ({error}): simplify it.") from error
        if last and text.lstrip().startswith("{") and not text.rstrip().endswith("}"):
            raise LabError(cut) from error
        if index == 1 and text.strip() in ("[", "[{", "{"):
            raise LabError(f"{name} is JSON, but not JSON lines: write one object on each line.") from error
        remedy = ("write null or a number, or a text in quotes" if wrong.msg.endswith(untrusted.NO_VALUE)
                  else "write one JSON object per line")
        raise LabError(f"Line {index} of {name} is not JSON ({wrong.msg} at place {wrong.pos + 1}): {remedy}."
                       ) from error
    if not isinstance(value, dict):
        raise LabError(f"Line {index} of {name} is a JSON {_kind(value)}, not an object: write "
                       '{"name": "value"} on each line.')
    return value


def _kind(value: object) -> str:
    kinds = {list: "list", dict: "object", bool: "true or false", str: "text", type(None): "null"}
    return kinds.get(type(value), "number")
