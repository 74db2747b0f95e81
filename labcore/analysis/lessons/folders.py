"""All lessons: the built-in lessons, and a teacher's own lessons, which are read from a folder and written to it."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from labcore.analysis.lessons.lesson import LARGEST, Lesson, parse
from labcore.catalog.knob import suggestion
from labcore.errors import LabError, one_line, os_reason, quoted
from labcore.runs.files import atomic, untrusted
from labcore.runs.files.paths import DRAFTS, OWN_LESSONS, check_writable, home, made, path_of
from labcore.runs.files.user_json import Kept

HERE = Path(__file__).with_name("texts")
TEMPLATE = Path(__file__).with_name("template.md")
VARIABLE = "RL_LAB_LESSONS"
BEFORE = "new.before"  # not a possible name of a lesson
NEW = "new"  # the name in the link of a lesson that has no name yet
README = "readme"  # a folder's README.md, which is no lesson
LONGEST_NAME = 48
NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{LONGEST_NAME - 1}}}")
_DRAFTS = Kept(DRAFTS, "drafts", dict, "The drafts of your lessons")
# A path for beginners, in this order: how rewards teach, and what μ, the clip, β and the reward do.
FIRST_HOUR = ("exploration", "loss_near_zero", "why_clip", "kl_coefficient", "reward_with_a_hole", "one_seed")
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
    """The lesson of that name. Raises LabError if there is none; if its file was left out, the message says why."""
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


def own_folder() -> Path:
    """The folder of the teacher's lessons: the one that VARIABLE names, else `lessons` in the lab's folder. Raises
    LabError if the variable names something that is no folder."""
    place = os.environ.get(VARIABLE, "").strip()
    if not place:
        return home() / OWN_LESSONS
    folder = path_of(os.path.expanduser(place))  # unlike Path.expanduser it leaves an unknown ~NAME unchanged
    if not folder.is_dir():
        raise LabError(f"{VARIABLE} is {quoted(place)}, which is not a folder: set it to the folder with your lessons, "
                       "or unset it.")
    return folder


def _own(faults: list[tuple[str, str]]) -> list[Path]:
    """The files of the teacher's folder."""
    try:
        folder = own_folder()
    except LabError as error:
        faults.append(("", str(error)))
        return []
    found = sorted(path for path in folder.glob("*.md") if path.stem.casefold() != README)
    if len(found) > MOST:
        faults.append(("", f"The folder {quoted(str(folder))} has {len(found)} lessons: the first {MOST} are shown."))
    return found[:MOST]


def _stamp(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size


@lru_cache(maxsize=KEPT)
def _read(path: Path, changed: int, size: int, own: bool, short: bool) -> Lesson:
    """The lesson in a file as it was last changed; read once."""
    if size > 4 * LARGEST:
        raise LabError(f"it has {size} bytes: a lesson has at most {LARGEST} characters.")
    return parse(name_of(path), decoded(untrusted.read(path, 4 * LARGEST)), own=own, short=short)


# ---- a lesson that is written in the lab -----------------------------------------------------------------------


def decoded(content: bytes) -> str:
    """The text of a lesson's file. Raises LabError if it is too long, or no UTF-8."""
    if len(content) > 4 * LARGEST:
        raise LabError(f"it has {len(content)} bytes: a lesson has at most {LARGEST} characters.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LabError("it is not UTF-8 text: save it as UTF-8.") from error


def text_of(name: str) -> str:
    """The file of a lesson, also of one of your own that has a fault. Raises LabError if there is none."""
    for path in (*HERE.glob("*.md"), *_own([])):
        if name_of(path) == name:
            return decoded(untrusted.read(path, 4 * LARGEST))
    raise LabError(f"There is no lesson {quoted(name)}: it was renamed or deleted.")


def save(name: str, text: str, replaces: str = "") -> Path:
    """Write a lesson of your own to its file; return the file. The file `replaces` of an earlier version is kept beside
    it, as NAME.md.before. Raises LabError if the lesson has a fault, the name is taken or not allowed, or the file
    cannot be written."""
    check_writable()
    if not NAME.fullmatch(name) or name in (NEW, README):
        raise LabError(f"A lesson cannot be called {quoted(name)}: use lower-case letters, digits and _, beginning "
                       f"with a letter, at most {LONGEST_NAME}, and not {NEW} or {README}.")
    parse(name, text, own=True)
    before = [path for path in _own([]) if name_of(path) == name]
    if name in [lesson.name for lesson in built_in()] or (before and name != replaces):
        raise LabError(f"There is a lesson {quoted(name)} already: choose another name.")
    target = before[0] if before else made(own_folder()) / f"{name}.md"
    if not before and target.exists():  # the folder's README, say, or one of more files than are read
        raise LabError(f"There is a file {target} already, which is no lesson of this lab: choose another name.")
    try:
        if before:
            atomic.write_bytes(target.with_name(f"{target.name}.before"), target.read_bytes(), sync=True)
        atomic.write_text(target, text, sync=True)
    except OSError as error:
        raise LabError(f"The lesson cannot be written to {target} ({os_reason(error)}): free some space, or choose "
                       f"another folder by {VARIABLE}.") from error
    return target


# ---- drafts: by the name of the lesson that is edited, or NEW -----------------------------------------------------


def draft(name: str) -> str:
    """The text of a lesson as its editor was left; without that the text of its file, or for a new lesson a small one
    that works. Raises LabError if there is no such lesson, or it cannot be read."""
    kept = _DRAFTS.read().get(name)
    if isinstance(kept, str):
        return kept
    return TEMPLATE.read_text("utf-8") if name == NEW else text_of(name)


def keep_draft(name: str, text: str | None, anew: bool = False) -> None:
    """Keep a text as the draft of a lesson; None deletes the draft. With `anew`, the previous draft can be restored.
    Raises LabError if the file cannot be written."""
    with _DRAFTS.changing() as drafts:
        if anew:
            drafts[BEFORE] = drafts.get(name)
        drafts[name] = text


def before() -> str | None:
    """The draft of a new lesson that another text has replaced."""
    kept = _DRAFTS.read().get(BEFORE)
    return kept if isinstance(kept, str) else None
