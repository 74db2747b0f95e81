"""The math verifier: `math_equal` in a process of its own, which is killed where a completion takes too long.

A completion such as 9^{9^{9^9}} keeps Python in one multiplication for ever. No signal and no thread can stop that, so
a separate process computes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress

from labcore.errors import LabError
from labcore.tasks import math_equal

SECONDS = 5.0  # for one completion, as math-verify has it
_START_SECONDS = 120.0
_lock = threading.Lock()
_started: tuple[int, subprocess.Popen[str]] | None = None  # and the process that started it: a fork has none yet


def maths(completion: str, answer: str) -> bool:
    r"""Whether a completion and an answer are equal as mathematics; False where that takes over `SECONDS`.

    Raises:
        LabError: math-verify is not installed or does not start.

    >>> maths(r"so it is \boxed{\frac{3}{4}}", "0.75"), maths("so it is 1/4", "3/4")
    (True, False)
    """
    global _started
    cut = math_equal.MATH_CHARACTERS
    same = completion.strip() == answer.strip()
    if same or not completion.strip() or not answer.strip():
        return same and bool(answer.strip())
    with _lock:
        if _started is None or _started[0] != os.getpid() or _started[1].poll() is not None:
            _started = (os.getpid(), _start())
        process = _started[1]
        said = _asked(process, json.dumps([completion[-cut:], answer[-cut:]]), SECONDS)
        if said is None:
            _started = None
    return said == "true"


def _start() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-P", math_equal.__file__], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    if _asked(process, "", _START_SECONDS) != "ready":
        assert process.stderr
        said = process.stderr.read().strip().split("\n")[-1]
        raise LabError(f"The math verifier did not start ({said or 'no reason given'}): install the packages of "
                       "requirements.txt, or choose another verifier.")
    return process


def _asked(process: subprocess.Popen[str], line: str, seconds: float) -> str | None:
    """The next line of a process after it was given a `line`, if not empty; None where it ended, or was killed."""
    assert process.stdin and process.stdout
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    with suppress(BrokenPipeError):  # of a process that has just ended: it says nothing any more
        if line:
            print(line, file=process.stdin, flush=True)
    said = process.stdout.readline().strip()
    timer.cancel()
    if not said:
        process.kill()
        process.wait()
    return said or None
