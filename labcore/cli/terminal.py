"""Commands print without the control characters that a text of others may hold: a terminal obeys them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

ERASE = "\r\x1b[K"  # the lab's own: the line is written again
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but the tab and the end of a line


class _Plain:
    """A stream that writes control characters out, as JSON does: so what is JSON stays the same JSON."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        begin = ERASE if text.startswith(ERASE) else ""
        plain = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text[len(begin):])
        self._stream.write(begin + plain)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def plain() -> Iterator[None]:
    """Have what is printed inside reach neither standard output nor standard error with a control character."""
    with redirect_stdout(_Plain(sys.stdout)), redirect_stderr(_Plain(sys.stderr)):
        yield
