"""Receive the lines of a watched run over HTTP, and write them to the same files that a local client writes.

A client sends parts of a file with their byte offset, and the response has the size of the lab's copy. So a lost
response does no harm: bytes that exist already are not added again. Only a valid id or file name of a spool becomes a
path.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from labcore.errors import LabError, os_reason, quoted
from labcore.runs.files import atomic
from labcore.runs.files.paths import is_id, made
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.watch.converting import spool

TOKEN = "RL_LAB_WATCH_TOKEN"
SHORTEST_TOKEN = 16
BODY_BYTES = 2 * 2**20  # of one request
FILE_BYTES = 64 * 2**20  # of one file: a client starts the next one after 8 MB, or after a line of 16 MB
WAITING_BYTES = 2 * 2**30  # of all files of a run that have not been read yet
MOST_RUNS = 10_000  # folders
ABOUT_BYTES = 2**20
LONGEST_ID = 100
_LINES = "0-lines-0.jsonl"  # the file name for clients that send only whole lines


class Refused(LabError):
    """The lab refuses a request. `status` is the HTTP status."""

    def __init__(self, status: int, sentence: str):
        self.status = status
        super().__init__(sentence)


def token() -> str:
    """Return the token that trainers on other machines must send; empty if the lab accepts none. Raises LabError if it
    is too short to be a secret."""
    found = os.environ.get(TOKEN, "").strip()
    if found and (len(found) < SHORTEST_TOKEN or not found.isascii()):
        raise LabError(f"{TOKEN} must have at least {SHORTEST_TOKEN} ASCII characters, because anyone who knows it can "
                       "write runs to this lab: set it to the output of openssl rand -hex 16.")
    return found


def receive(name: str, file: str, at: int, body: bytes) -> int:
    """Add `body` at the byte offset `at` of a file of the run `name`. Returns the size of the file afterwards.

    An empty `file` is for clients that send only whole lines, which are added to a separate file. Raises Refused if a
    name is invalid, or a limit is reached.
    """
    if not is_id(name) or len(name) > LONGEST_ID:
        raise Refused(400, f"{quoted(name)} cannot be the id of a run: use at most {LONGEST_ID} letters, digits, _, - "
                      "and inner dots.")
    if file and not spool.is_file(file):
        raise Refused(400, f"{quoted(file)} cannot be a file of a run: name it TIME-WRITER-NUMBER.jsonl.")
    if not file and body and not body.endswith(b"\n"):
        raise Refused(400, "The last line is incomplete: send whole lines, each with a line break.")
    folder = spool.folder_of(name)
    try:
        if not folder.exists() and len(os.listdir(made(spool.root()))) > MOST_RUNS:
            raise Refused(507, f"This lab has {MOST_RUNS:,} watched runs: delete some of them first.")
        made(folder / spool.SPOOL)
        with FileLock(folder / ".lock"):
            return _add(folder, file, at, body)
    except OSError as error:
        raise Refused(507, f"The lab cannot save the lines ({os_reason(error)}): free disk space there.") from error


def _add(folder: Path, file: str, at: int, body: bytes) -> int:
    if spool.writer_of(file or _LINES) in spool.gone(folder):
        raise Refused(410, "This run was deleted in the lab: start a new run with another id.")
    path = folder / spool.SPOOL / (file or _plain_file(folder))
    size = path.stat().st_size if path.exists() else 0
    if file and not at and not size and spool.begins(file):
        (folder / spool.ASKED).unlink(missing_ok=True)  # a request to the previous process
    new = body[max(0, size - at):] if file else body
    if not file or (new and at <= size):
        if size + len(new) > FILE_BYTES:
            raise Refused(413, f"A file of a run has at most {FILE_BYTES // 2**20} MB: start the next one.")
        if sum(each.stat().st_size for each in spool.files(folder)) > WAITING_BYTES:
            raise Refused(507, "The lab has not read the earlier lines yet: send these later.")
        with path.open("ab") as opened:
            opened.write(new)
        size += len(new)
        _note_about(folder, path, at == 0)
    for each in (folder / spool.ABOUT, spool.root()):  # a heartbeat, which the lab polls
        with suppress(FileNotFoundError):
            os.utime(each)
    return size


def _plain_file(folder: Path) -> str:
    """Return the file for clients that send only whole lines: the newest, or the next one if that is long."""
    writer = spool.writer_of(_LINES)
    mine = [path for path in spool.files(folder) if spool.writer_of(path.name) == writer]
    if mine and mine[-1].stat().st_size < FILE_BYTES // 8:
        return mine[-1].name
    return f"{int(time.time() * 1000):013d}-{writer}-{len(mine):05d}.jsonl"


def _note_about(folder: Path, path: Path, first: bool) -> None:
    """Save the run's description from the first line of its first file, as a local client does."""
    if not first or (folder / spool.ABOUT).exists():
        return
    with path.open("rb") as opened:
        line = opened.readline(ABOUT_BYTES)
    with suppress(NotJSON):
        if line.endswith(b"\n") and isinstance(json_of(line, constants=True), dict):
            atomic.write_bytes(folder / spool.ABOUT, line)
