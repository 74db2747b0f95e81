"""Errors that speak to the person at the keyboard."""

import re
import reprlib
from collections.abc import Sequence
from typing import Any

ECHO = 80  # characters of a name that a sentence repeats
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONG = re.compile(rf"[^\s/'\"]{{{ECHO + 1},}}|\S{{{4 * ECHO},}}")  # a name, or a path of many


class LabError(Exception):
    """An error that the user can fix. The message is one sentence: what is wrong, where, what to do.

    It is one line whatever it repeats, and names in it are cut.
    """

    def __init__(self, sentence: str):
        super().__init__(one_line(sentence))


class NoSuchRun(LabError):
    """The store holds no run of that name: it was deleted, or is another lab's."""


class NotOwner(LabError):
    """This process may not write to the run `run_id`: another one has it, or it has ended, or was deleted."""

    def __init__(self, run_id: str, sentence: str):
        self.run_id = run_id
        super().__init__(sentence)


class Diverged(LabError):
    """The loss, its gradient or a table stopped being a finite number; `step` is where, counted from 1."""

    def __init__(self, step: int, what: str, remedy: str = "a lower learning rate, or a smaller clip range"):
        self.step = step
        super().__init__(f"The {what} was not a finite number at step {step}: resume from the last good checkpoint "
                         f"with {remedy}.")


def one_line(text: str) -> str:
    """`text` with its line breaks and control characters written out, and no word longer than `ECHO`.

    >>> one_line("no run a" + chr(10) + "b")
    'no run a\\\\nb'
    """
    text = _BREAKS.sub(lambda found: repr(found[0])[1:-1], text)
    return _LONG.sub(lambda found: cut(found[0]), text)


def cut(text: str) -> str:
    """The beginning of a text, as long as a sentence repeats it."""
    return text if len(text) <= ECHO else f"{text[:ECHO - 1]}…"


def listed(words: Sequence[str], most: int = 8) -> str:
    """Some words in a sentence, the first of them where they are many.

    >>> listed(["a", "b"]), listed([*"abcdef"], 3)
    ('a, b', 'a, b, c and 3 more')
    """
    whole = len(words) <= most + 1
    return ", ".join(words) if whole else f"{', '.join(words[:most])} and {len(words) - most:,} more"


class _Quoted(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = ECHO
        self.fillvalue = "…"

    def repr_int(self, x: int, level: int) -> str:
        """Python writes no number of more than some thousand digits."""
        return str(x) if x.bit_length() < 3 * ECHO else f"a number of some {x.bit_length() * 3 // 10:,} digits"


def quoted(value: Any) -> str:
    """The user's input as a sentence quotes it: like `repr`, but always short.

    >>> quoted("sort"), quoted(["a", 1]), quoted(10**400)
    ("'sort'", "['a', 1]", 'a number of some 398 digits')
    """
    return _Quoted().repr(value)


def os_reason(error: OSError) -> str:
    """Why a file could not be read or written, to stand within a sentence. shutil's errors hold those of each file.

    >>> os_reason(OSError(28, "No space left on device")), os_reason(OSError([("a", "b", "no permission.")]))
    ('No space left on device', 'no permission')
    """
    each = error.args[0] if error.args else None
    if isinstance(each, list) and each and isinstance(each[0], tuple):
        return str(each[0][-1]).rstrip(".")
    return error.strerror or first_line(error)


def first_line(error: Exception) -> str:
    """The first line of another library's error, to be quoted within one of our sentences: without its capital letter
    and its full stop."""
    line = next(iter(str(error).strip().splitlines()), "").rstrip(".:")
    return line[:1].lower() + line[1:] or type(error).__name__
