"""All lessons: those that come with the lab, and those of the folder that `RL_LAB_LESSONS` names."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from labcore.analysis.lessons.lesson import LARGEST, Lesson, parse
from labcore.catalog.knob import suggestion
from labcore.errors import LabError, one_line, os_reason, quoted
from labcore.runs.files import untrusted
from labcore.runs.files.paths import path_of

HERE = Path(__file__).with_name("texts")
VARIABLE = "RL_LAB_LESSONS"
MOST = 200  # files of a folder that are read
KEPT = 512


def lessons(*, short: bool = False) -> tuple[list[Lesson], list[str]]:
    """The lessons in the order of their files' names, the lab's own first; and a sentence for each file left out.

    `short`: as the tests run them.
    """
    found, faults = _found(short)
    return [*found.values()], [sentence for _, sentence in faults]


def built_in(*, short: bool = False) -> list[Lesson]:
    """The lessons that come with the lab, in their order."""
    return [_read(path, *_stamp(path), False, short) for path in sorted(HERE.glob("*.md"))]


def find(name: str) -> Lesson:
    """The lesson of that name.

    Raises:
        LabError: there is none; where its file was left out, the sentence says why.
    """
    there, faults = _found(short=False)
    if name in there:
        return there[name]
    for left_out, sentence in faults:
        if left_out == name:
            raise LabError(sentence)
    raise LabError(f"There is no lesson {quoted(name)}: {suggestion(name, [*there])}")


def _found(short: bool) -> tuple[dict[str, Lesson], list[tuple[str, str]]]:
    """The lessons by their names; and the name of each file left out ("" for what is no file), with its sentence."""
    found = {lesson.name: lesson for lesson in built_in(short=short)}
    faults: list[tuple[str, str]] = []
    for path in _own(faults):
        name = name_of(path)
        try:
            if name in found:
                raise LabError("a lesson of this name exists already: rename the file.")
            found[name] = _read(path, *_stamp(path), True, short)
        except (LabError, OSError) as error:
            why = f"it cannot be read ({os_reason(error)})." if isinstance(error, OSError) else error
            faults.append((name, one_line(f"The lesson {path.name} is left out: {why}")))
    return found, faults


def name_of(path: Path) -> str:
    """The name of a lesson: that of its file, without the number that puts it in order.

    >>> name_of(Path("07_one_seed.md"))
    'one_seed'
    """
    return path.stem.lstrip("0123456789").lstrip("_-") or path.stem


def _own(faults: list[tuple[str, str]]) -> list[Path]:
    """The files of the teacher's folder."""
    place = os.environ.get(VARIABLE, "").strip()
    if not place:
        return []
    folder = path_of(os.path.expanduser(place))  # unlike Path's own it leaves ~NOBODY as it is
    if not folder.is_dir():
        faults.append(("", f"{VARIABLE} is {quoted(place)}, which is not a folder: set it to the folder with your "
                       "lessons, or unset it."))
        return []
    found = sorted(path for path in folder.glob("*.md") if path.name.casefold() != "readme.md")
    if len(found) > MOST:
        faults.append(("", f"The folder {quoted(place)} has {len(found)} lessons: the first {MOST} are shown."))
    return found[:MOST]


def _stamp(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size


@lru_cache(maxsize=KEPT)
def _read(path: Path, changed: int, size: int, own: bool, short: bool) -> Lesson:
    """The lesson in a file as it was last changed; read once."""
    if size > 4 * LARGEST:
        raise LabError(f"it has {size} bytes: a lesson has at most {LARGEST} characters.")
    try:
        text = untrusted.read(path, 4 * LARGEST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise LabError("it is not UTF-8 text: save it as UTF-8.") from error
    return parse(name_of(path), text, own=own, short=short)
