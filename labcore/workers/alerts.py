"""Alerts: send the doctor's findings to a program, a web address or a file, as `RL_LAB_ALERTS` says.

    RL_LAB_ALERTS='webhook https://hooks.example.com/T0; problem command notify-send "RL lab"; file /tmp/alerts.jsonl'

A thread of the run's process sends them, so the run neither waits nor fails. Each sent alert is logged as an event, so
each receiver gets each rule once per run, even if the run is stopped and resumed. The events and the list of settings
never show an address, because it may contain a key.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from labcore.analysis.doctor.finding import SEVERITIES, Finding, Severity
from labcore.catalog.knob import suggestion
from labcore.errors import LabError, first_line, os_reason, quoted
from labcore.runs.files import atomic
from labcore.runs.store.rows import Event, RunRow
from labcore.runs.store.store import Store
from labcore.runs.titles import title
from labcore.watch.converting import spool

SETTING = "RL_LAB_ALERTS"
EVENT = "alert"  # kind of event
THREAD = "alerts"  # name of the threads that send
TRIES, FIRST_WAIT = 3, 1.0  # of a webhook; seconds before the second try, then four times as long
REQUEST_SECONDS, COMMAND_SECONDS = 10.0, 60.0
CLOSE_SECONDS = 90.0  # for unsent alerts when a process ends
LONGEST_SAID = 200  # characters of a command's error message

Message = Mapping[str, Any]
Send = Callable[[list[str], Message], None]


@dataclass(frozen=True)
class Receiver:
    """One entry of the setting: it gets findings of at least `severity`; `kind` and `words` describe it."""

    kind: str
    words: tuple[str, ...]
    severity: Severity

    @property
    def key(self) -> str:
        """Its name in events: a hash of its words, which reveals nothing."""
        return f"{self.kind} {hashlib.sha256(json.dumps(self.words).encode()).hexdigest()[:8]}"

    @property
    def shown(self) -> str:
        """Its name in the list of settings: the host of an address, the name of a program or a file."""
        first = self.words[0] if self.words else "watched runs"
        place = {"webhook": urlsplit(first).hostname, "command": Path(first).name}.get(self.kind, first)
        return f"{self.kind} {place} ({' and '.join(_from(self.severity))})"

    def takes(self, finding: Finding) -> bool:
        """True if a finding is severe enough."""
        return finding.severity in _from(self.severity)


def _from(severity: Severity) -> tuple[Severity, ...]:
    return SEVERITIES[:SEVERITIES.index(severity) + 1]


# ---------------------------------------------------------------- setting

def receivers(setting: str | None = None) -> list[Receiver]:
    """Parse the receivers in `RL_LAB_ALERTS`: entries `[SEVERITY] KIND WORDS`, separated by semicolons.

    Raises:
        LabError: an entry is invalid.

    >>> [each.kind for each in receivers('command notify-send "a; b"; problem stop;')]
    ['command', 'stop']
    """
    text = os.environ.get(SETTING, "") if setting is None else setting
    found = [_receiver(words) for words in _entries(text)]
    return list(dict.fromkeys(found))


def _entries(text: str) -> Iterator[list[str]]:
    """Yield the words of each entry, with quotes as in a shell; no shell is run."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in (*lexer, ";"):
            if word.strip(";"):
                words.append(word)
            elif words:
                yield words
                words = []
    except ValueError as error:
        raise LabError(f"{SETTING} cannot be read ({first_line(error)}): close every quote.") from error


def _receiver(words: list[str]) -> Receiver:
    severity, rest = (words[0], words[1:]) if words[0] in SEVERITIES else (None, words)
    kind, given = (rest[0], rest[1:]) if rest else ("", [])
    if kind not in SEND:
        raise LabError(f"{SETTING} has an entry that begins with {quoted(kind)}: {suggestion(kind, list(SEND))}")
    usual: Severity = "problem" if kind == "stop" else "warning"
    found = Receiver(kind, tuple(given), next((each for each in SEVERITIES if each == severity), usual))
    if fault := _fault(kind, given):
        raise LabError(f"{SETTING}: {fault}.")
    return found


def _fault(kind: str, given: list[str]) -> str:
    """Return the error in the words after a kind; empty if they are valid."""
    if kind == "command":
        return "" if given else "command needs a program, for example command notify-send 'RL lab'"
    if kind == "stop":
        return "stop takes no words after it" if given else ""
    if len(given) != 1:
        return f"{kind} needs one {'address' if kind == 'webhook' else 'path'}; put it in quotes if it contains spaces"
    if kind == "file":
        return "" if Path(given[0]).is_absolute() else "file needs an absolute path, which begins with /"
    try:
        parts = urlsplit(given[0])
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    return "" if usable else "webhook needs an address that begins with http:// or https://"


def shown() -> str:
    """Return the text for the list of settings: the receivers, or the error in the setting."""
    try:
        return ", ".join(each.shown for each in receivers())
    except LabError as error:
        return str(error)


# ---------------------------------------------------------------- sending

def message(run: RunRow, step: int, finding: Finding, watched: str = "") -> dict[str, Any]:
    """Return an alert: the run, the finding, and both as one line `text`, which chat programs show. `watched` is the
    `run_id` of a watched run."""
    name = title(run)
    return {"text": f"{name}, step {step:,}: {finding.severity}: {finding.text}. {finding.fix}", "run": run.id,
            "title": name, "kind": run.spec.kind, "algorithm": run.spec.algorithm, "task": run.spec.task, "step": step,
            **{key: getattr(finding, key) for key in ("rule", "severity", "verdict", "evidence", "fix", "knob",
                                                      "value")},
            **({"watched": watched} if watched else {})}


def _command(words: list[str], alert: Message) -> None:
    """Run a program with the alert as JSON on standard input and its parts in environment variables, without a
    shell."""
    prefix = SETTING.removesuffix("S")
    variables = {f"{prefix}_{key.upper()}": str(value).replace("\0", "") for key, value in alert.items()
                 if value is not None}
    with tempfile.TemporaryFile() as said:  # not a pipe, which a background process could keep open
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said,
                                   env={**os.environ, **variables}, start_new_session=True)
        try:
            process.communicate(json.dumps(alert).encode(), COMMAND_SECONDS)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise LabError(f"it took over {COMMAND_SECONDS:g} s") from error
        said.seek(0)
        words_said = said.read(4 * LONGEST_SAID).decode("utf-8", "replace").strip().split("\n")[-1]
    if process.returncode:
        raise LabError(f"it ended with code {process.returncode} {words_said[:LONGEST_SAID]}".strip())


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and its child processes."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    process.wait()


def _webhook(words: list[str], alert: Message) -> None:
    """POST the alert as JSON; retry if the server is unreachable or busy. A redirect is an error and is not
    followed."""
    import httpx2  # imported only if one is sent

    pause, fault = 0.0, ""
    for turn in range(TRIES):
        time.sleep(pause)
        pause = FIRST_WAIT * 4**turn
        try:
            status = httpx2.post(words[0], json=dict(alert), timeout=REQUEST_SECONDS,
                                 follow_redirects=False).status_code
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            fault = f"the address did not answer, {type(error).__name__}"  # its message may have the address
            continue
        if status < 300:
            return
        fault = f"the address answered HTTP {status}"
        if status < 500 and status not in (408, 425, 429):
            break
    raise LabError(fault)


def _file(words: list[str], alert: Message) -> None:
    """Append the alert to a file as a line of JSON in a single write, because several runs may write at once."""
    with open(words[0], "ab", buffering=0) as file:
        file.write(f"{json.dumps(alert, ensure_ascii=False)}\n".encode("utf-8", "replace"))


def _stop(words: list[str], alert: Message) -> None:
    """Ask the trainer of a watched run to stop: its client polls the file. Other runs are not affected."""
    if alert.get("watched"):
        folder = spool.folder_of(alert["watched"])
        why = f"The doctor of the lab found at step {alert['step']:,}: {alert['verdict']}: {alert['evidence']}."
        atomic.write_text(folder / spool.ASKED, json.dumps({"stop": True, "why": why}, ensure_ascii=False))


SEND: Mapping[str, Send] = {"command": _command, "webhook": _webhook, "file": _file, "stop": _stop}


# ---------------------------------------------------------------- the alerts of a run

def wait() -> None:
    """Wait at most CLOSE_SECONDS for the unsent alerts of this process."""
    until = time.monotonic() + CLOSE_SECONDS
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(max(0.0, until - time.monotonic()))


class Alerts:
    """The alerts of one run. `events` are its earlier events; `watched` is the `run_id` of a watched run. No method
    raises an exception."""

    def __init__(self, store: Store, run: RunRow, events: Iterable[Event], watched: str = "") -> None:
        self._store, self._run, self._watched = store, run, watched
        before = [event.payload for event in events if event.kind == EVENT]
        self._sent = {(each.get("to"), each.get("rule")) for each in before if each.get("sent")}
        self._failed = {each.get("to") for each in before if not each.get("sent")}  # receivers whose error was reported
        self._waiting: deque[tuple[Receiver, int, Finding]] = deque()
        self._sending, self._lock = False, threading.Lock()
        try:
            self._receivers = receivers()
        except LabError as error:
            self._receivers = []
            self._log(run.step, {"to": SETTING, "rule": "", "sent": False, "text": f"No alerts are sent. {error}"})

    def take(self, step: int, finding: Finding) -> None:
        """Send a finding that begins at `step` to each receiver that has not received its rule yet."""
        for each in self._receivers:
            if each.takes(finding) and (each.key, finding.rule) not in self._sent:
                self._sent.add((each.key, finding.rule))
                with self._lock:
                    self._waiting.append((each, step, finding))
                    begins, self._sending = not self._sending, True
                if begins:
                    threading.Thread(target=self._send_all, name=THREAD, daemon=True).start()

    def _send_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._sending = False
                    return
                item = self._waiting.popleft()
            self._send(*item)

    def _send(self, receiver: Receiver, step: int, finding: Finding) -> None:
        try:
            SEND[receiver.kind](list(receiver.words), message(self._run, step, finding, self._watched))
        except Exception as error:  # any error of a program, a server or a disk
            reason = os_reason(error) if isinstance(error, OSError) else first_line(error)
            self._log(step, {"to": receiver.key, "rule": finding.rule, "sent": False, "text":
                             f"An alert could not be sent ({receiver.kind}: {reason}): the run continues. Check "
                             f"{SETTING}."})
        else:
            self._log(step, {"to": receiver.key, "rule": finding.rule, "sent": True,
                             "text": f"Alert sent ({receiver.kind}): {finding.verdict}"})

    def _log(self, step: int, payload: dict[str, Any]) -> None:
        """Log a sent or failed alert; only the first failure of each receiver is logged."""
        if not payload["sent"]:
            if payload["to"] in self._failed:
                return
            self._failed.add(payload["to"])
        with suppress(LabError):  # the store is busy, or another process owns the run and will send it
            self._store.log(self._run.id, EVENT, payload, step)
