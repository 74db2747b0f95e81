"""Read untrusted input: files, texts, JSON and TOML of any content.

A file is read only if it is a regular one, and no further than its limit, whatever size its folder says it has. All
that can be wrong with JSON is one kind of error, and so is all that can be wrong with TOML. How deep a text nests is
bounded, before it is parsed where parsing costs.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import stat
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from labcore.errors import LabError, cut, first_line, os_reason

GZIP = b"\x1f\x8b"
DEEPEST = 100  # lists and objects within each other: more are an attack, on which Python's own recursion ends
MOST_DIGITS = 300  # of a whole number: more are beyond a float
TEXT_LIMIT = 8 * 2**20  # bytes of a file that a person wrote, or of a configuration
_HALF_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_TEXT_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
NO_VALUE = "is no value of JSON"
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # to open a pipe waits for its writer


class NotJSON(ValueError):
    """Text is not JSON that the lab can use. The message says why, to stand within a sentence."""


def whole(text: str) -> str:
    """`text` with U+FFFD in place of each half character, as an error or a file's name may bring: UTF-8, in which the
    store and all files are written, has none.

    >>> whole("a" + chr(0xD800))
    'a\ufffd'
    """
    return text if text.isascii() else _HALF_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text)


class NotTOML(ValueError):
    """Text is not TOML that the lab can use. The message says why, to stand within a sentence."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file at `path`, open for reading. Raises LabError if there is no such file, it cannot be read, or it is a
    folder, a device, a pipe or a socket."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_WAIT)
    except FileNotFoundError as error:
        raise LabError(f"There is no file {path}: check the path.") from error
    except ValueError as error:
        raise LabError(f"{path} holds a NUL byte, which no path can: check it.") from error
    except OSError as error:
        raise LabError(f"The file {path} cannot be read ({os_reason(error)}): check the path and its permissions."
                       ) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise LabError(f"{path} is a {'folder' if stat.S_ISDIR(mode) else 'device or a pipe'}: give a file.")
    with open(descriptor, "rb") as file:
        yield file


def read(path: Path, limit: int = TEXT_LIMIT) -> bytes:
    """The content of a file of at most `limit` bytes. Raises LabError as `opened`, or if it is longer."""
    with opened(path) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise LabError(f"The file {path} cannot be read ({os_reason(error)}): copy it again.") from error
        size = max(len(content), os.fstat(file.fileno()).st_size)
    if size > limit:
        raise LabError(f"{path.name} has {size / 2**20:.1f} MB, above the limit of {limit // 2**20} MB: give a part of "
                       "it.")
    return content


def unzipped(name: str, content: bytes, limit: int) -> bytes:
    """The content of a file that may be compressed by gzip. It is unpacked no further than `limit` bytes. Raises
    LabError if it is an incomplete gzip file, or its unpacked content is longer than that."""
    if not content.startswith(GZIP):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise LabError(f"{name} is not a whole gzip file ({first_line(error)}): copy it again.") from error
    if len(unpacked) > limit:
        raise LabError(f"{name} unpacks to more than the limit of {limit // 2**20} MB: give a part of it.")
    return unpacked


def json_of(content: str | bytes, *, constants: bool = False) -> Any:
    """The value of a text of JSON. `constants`: NaN and Infinity, which programs in Python write beside JSON, are
    numbers. Raises NotJSON if the text is not JSON, nests deeper than `DEEPEST`, or has half a character or a number
    beyond any float."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        value = (_WITH_CONSTANTS if constants else _STRICT).decode(text)
        if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
            raise NotJSON("it nests too deep")
        if _HALF_ESCAPED.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except _Constant as error:
        placed = _placed(str(error), text)
        raise NotJSON(f"{placed.msg} in line {placed.lineno}") from placed
    except json.JSONDecodeError as error:
        raise NotJSON(f"{error.msg} in line {error.lineno}") from error
    except UnicodeDecodeError as error:
        raise NotJSON("it is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise NotJSON("it holds half a character, a lone \\ud800 to \\udfff") from error
    except RecursionError as error:
        raise NotJSON("it nests too deep") from error


def read_json(path: Path, limit: int = TEXT_LIMIT, *, constants: bool = False) -> Any:
    """The value of a file of JSON. Raises LabError as `read`, and NotJSON."""
    return json_of(read(path, limit), constants=constants)


def toml_of(text: str) -> dict[str, Any]:
    """The value of a text of TOML. Raises NotTOML if the text is not TOML, or a key or a value nests deeper than
    `DEEPEST`."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > DEEPEST:  # tomllib takes gigabytes for a key of thousands of parts
            raise NotTOML(f"line {number} has more than {DEEPEST} dots: shorten it, or write a text in several lines")
    try:
        value = tomllib.loads(text)
    except RecursionError as error:
        raise NotTOML("it nests too deep") from error
    except ValueError as error:  # also a number that is too long for Python
        raise NotTOML(str(error)[:120]) from error
    if _depth(value) > DEEPEST:
        raise NotTOML("it nests too deep")
    return value


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise NotJSON(f"it has a number of {len(digits):,} digits")
    return int(digits)


def _real(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise NotJSON(f"the number {cut(digits)} is beyond any float")
    return number


class _Constant(Exception):
    """A word that Python's JSON reads as a number."""


def _refused(word: str) -> float:
    raise _Constant(word)


def _placed(word: str, text: str) -> json.JSONDecodeError:
    """The error that says where `word` first stands outside of texts."""
    found = next(found for found in _TEXT_OR_CONSTANT.finditer(text) if found[0] == word)
    return json.JSONDecodeError(f"{word} {NO_VALUE}", text, found.start())


_WITH_CONSTANTS = json.JSONDecoder(parse_int=_whole)
_STRICT = json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=_refused)


def _depth(value: Any) -> int:
    """The depth of nested lists and objects, at most one above `DEEPEST`. Compares exact types, because a parser makes
    no subclasses of them and this takes half the time of isinstance."""
    depth, layer = 0, [value] if type(value) in (list, dict) else []
    while layer and depth <= DEEPEST:
        layer = [inner for each in layer for inner in (each.values() if type(each) is dict else each)
                 if type(inner) is list or type(inner) is dict]
        depth += 1
    return depth
