"""Read the user's files: JSON lines with text fields, plain text, and CSV. Every fault names its line.

Left out: other encodings than UTF-8, and files above `LIMIT`, which would not fit beside a model in a laptop's
memory.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labcore.errors import LabError

LIMIT = 64 * 2**20  # bytes
Fields = tuple[str | tuple[str, ...], ...]


def read_rows(path: Path, fields: Fields) -> Iterator[tuple[int, list[str]]]:
    """(line number, the texts of `fields`) of every line that is not blank; a tuple of names means any of them.

    Numbers are taken as they would be written. Raises:
        LabError: the file cannot be read, or a line is not a JSON object with all the fields as texts.
    """
    for index, value in read_objects(path):
        yield index, texts_of(value, fields, path, index)


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """(line number, JSON object) of every line that is not blank.

    Raises:
        LabError: the file cannot be read, or a line is not a JSON object.
    """
    lines = read_bytes(path).split(b"\n")
    for index, raw in enumerate(lines, start=1):
        if raw.strip():
            yield index, _object(path, index, raw, last=index == len(lines))


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


def csv_reader(text: str, **options: Any) -> Any:
    """csv.reader with these options over `text`, whose cells may be as long as a file: completions are long texts."""
    csv.field_size_limit(LIMIT)  # it holds for the whole process, and is 128 kB where nobody has set it
    return csv.reader(io.StringIO(text, newline=""), **options)


def read_bytes(path: Path) -> bytes:
    """The content of a file without its byte order mark.

    Raises:
        LabError: no such file, unreadable, empty, above LIMIT or UTF-16.
    """
    if path.is_dir():
        raise LabError(f"{path} is a folder: give a file.")
    try:
        size = path.stat().st_size
        if size > LIMIT:
            raise LabError(f"{path.name} has {size / 2**20:.0f} MB, above the limit of {LIMIT // 2**20} MB: give a "
                           "part of it.")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise LabError(f"There is no file {path}: check the path.") from error
    except OSError as error:
        raise LabError(f"The file {path} cannot be read ({error.strerror}): check its permissions.") from error
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LabError(f"{path.name} is UTF-16: save it as UTF-8.")
    content = content.removeprefix(b"\xef\xbb\xbf")
    if not content.strip():
        raise LabError(f"{path.name} is empty: give a file with content.")
    return content


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1


def _object(path: Path, index: int, raw: bytes, last: bool) -> dict[str, object]:
    """The JSON object of line `index`; `last` is the line after which the file ends without a line end."""
    cut = (f"Line {index} of {path.name} ends in the middle, so the file was cut off: copy it again, or remove that "
           "line.")
    if b"\0" in raw:
        raise LabError(f"Line {index} of {path.name} has NUL bytes, so it is not JSON: give a UTF-8 file of JSON "
                       "lines.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if last and error.reason == "unexpected end of data":
            raise LabError(cut) from error
        raise LabError(f"Line {index} of {path.name} is not UTF-8 (byte 0x{raw[error.start]:02x} at place "
                       f"{error.start + 1}): save the file as UTF-8.") from error
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if last and text.lstrip().startswith("{") and not text.rstrip().endswith("}"):
            raise LabError(cut) from error
        if index == 1 and text.strip() in ("[", "[{", "{"):
            raise LabError(f"{path.name} is JSON, but not JSON lines: write each object on a line of "
                           "its own.") from error
        raise LabError(f"Line {index} of {path.name} is not JSON ({error.msg} at place {error.pos + 1}): write one "
                       "JSON object per line.") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or brackets a thousand deep
        raise LabError(f"Line {index} of {path.name} is JSON that cannot be read ({error}): simplify it.") from error
    if not isinstance(value, dict):
        raise LabError(f"Line {index} of {path.name} is a JSON {_kind(value)}, not an object: write "
                       '{"name": "value"} on each line.')
    return value


def texts_of(value: Mapping[str, object], fields: Fields, path: Path, index: int) -> list[str]:
    """The texts of `fields` of the object in line `index`; a tuple of names means any of them.

    Raises:
        LabError: it does not have all of them, or one is no text.
    """
    texts = []
    for field in fields:
        names = (field,) if isinstance(field, str) else field
        name = next((name for name in names if value.get(name) is not None), None)
        if name is None:
            raise LabError(f"Line {index} of {path.name} has no field {' or '.join(map(repr, names))}: add it.")
        content = value[name]
        if isinstance(content, bool) or not isinstance(content, (str, int, float)):
            raise LabError(f"The field {name!r} in line {index} of {path.name} is a {_kind(content)}: write it as a "
                           "text in quotes.")
        text = str(content)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise LabError(f"The field {name!r} in line {index} of {path.name} has half a character (a lone \\ud800 to "
                           "\\udfff): write the whole character.")
        texts.append(text)
    return texts


def _kind(value: object) -> str:
    kinds = {list: "list", dict: "object", bool: "true or false", str: "text", type(None): "null"}
    return kinds.get(type(value), "number")
