"""Alerts: what the doctor finds in a run is sent to a program, an address or a file, by `RL_LAB_ALERTS`.

    RL_LAB_ALERTS='webhook https://hooks.example.com/T0; problem command notify-send "RL lab"; file /tmp/alerts.jsonl'

A thread of the run's process sends them, so that the run neither waits nor fails. What was sent is an event of the
run, so that each rule is sent once to each receiver, whatever is stopped and resumed in between. The events and the
list of settings never have an address, which may hold a key.
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
from labcore.watching.spool import ASKED, folder_of

SETTING = "RL_LAB_ALERTS"
EVENT = "alert"  # kind of event
THREAD = "alerts"  # name of the threads that send
TRIES, FIRST_WAIT = 3, 1.0  # of a webhook; seconds before the second, then four times as many
REQUEST_SECONDS, COMMAND_SECONDS = 10.0, 60.0
CLOSE_SECONDS = 90.0  # for alerts that are still to be sent when a process ends
LONGEST_SAID = 200  # characters of what a command says of its fault

Message = Mapping[str, Any]
Send = Callable[[list[str], Message], None]


@dataclass(frozen=True)
class Receiver:
    """One entry of the setting: findings of at least `severity` are given to what `kind` and `words` name."""

    kind: str
    words: tuple[str, ...]
    severity: Severity

    @property
    def key(self) -> str:
        """Its name in events, the same for the same words; tells nothing of them."""
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
    """The receivers that `RL_LAB_ALERTS` names: entries `[SEVERITY] KIND WORDS`, separated by semicolons.

    Raises:
        LabError: an entry cannot be read, or names something that cannot receive.

    >>> [each.kind for each in receivers('command notify-send "a; b"; problem stop;')]
    ['command', 'stop']
    """
    text = os.environ.get(SETTING, "") if setting is None else setting
    found = [_receiver(words) for words in _entries(text)]
    return list(dict.fromkeys(found))


def _entries(text: str) -> Iterator[list[str]]:
    """The words of each entry; quotes are those of a shell, which does not run."""
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
    """The fault of the words after a kind; empty where they can be used."""
    if kind == "command":
        return "" if given else "command needs a program, for example command notify-send 'RL lab'"
    if kind == "stop":
        return "stop takes no words after it" if given else ""
    if len(given) != 1:
        return f"{kind} needs one {'address' if kind == 'webhook' else 'path'}; put it in quotes if it has blanks"
    if kind == "file":
        return "" if Path(given[0]).is_absolute() else "file needs a whole path that begins with /"
    try:
        parts = urlsplit(given[0])
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    return "" if usable else "webhook needs an address that begins with http:// or https://"


def shown() -> str:
    """The receivers in the list of settings; or why there are none."""
    try:
        return ", ".join(each.shown for each in receivers())
    except LabError as error:
        return str(error)


# ---------------------------------------------------------------- sending

def message(run: RunRow, step: int, finding: Finding) -> dict[str, Any]:
    """An alert: the run, the finding, and both as one line `text`, which chat programs show."""
    name = title(run)
    return {"text": f"{name}, step {step:,}: {finding.severity}: {finding.text}. {finding.fix}", "run": run.id,
            "title": name, "kind": run.spec.kind, "algorithm": run.spec.algorithm, "task": run.spec.task, "step": step,
            **{key: getattr(finding, key) for key in ("rule", "severity", "verdict", "evidence", "fix", "knob",
                                                      "value")}}


def _command(words: list[str], alert: Message) -> None:
    """Run a program with the alert as JSON on its standard input, and its parts as variables. No shell is involved."""
    prefix = SETTING.removesuffix("S")
    variables = {f"{prefix}_{key.upper()}": str(value).replace("\0", "") for key, value in alert.items()
                 if value is not None}
    with tempfile.TemporaryFile() as said:  # no pipe, which a program in the background might keep open
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
    """Kill a program with what it has started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    process.wait()


def _webhook(words: list[str], alert: Message) -> None:
    """POST the alert as JSON, again where the server is away or busy. A redirect is a fault and is not followed."""
    import httpx2  # only where one is sent

    pause, fault = 0.0, ""
    for turn in range(TRIES):
        time.sleep(pause)
        pause = FIRST_WAIT * 4**turn
        try:
            status = httpx2.post(words[0], json=dict(alert), timeout=REQUEST_SECONDS,
                                 follow_redirects=False).status_code
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            fault = f"the address did not answer, {type(error).__name__}"  # whose words may have the address
            continue
        if status < 300:
            return
        fault = f"the address answered HTTP {status}"
        if status < 500 and status not in (408, 425, 429):
            break
    raise LabError(fault)


def _file(words: list[str], alert: Message) -> None:
    """Append the alert to a file as a line of JSON, in one write: several runs may do so at once."""
    with open(words[0], "ab", buffering=0) as file:
        file.write(f"{json.dumps(alert, ensure_ascii=False)}\n".encode("utf-8", "replace"))


def _stop(words: list[str], alert: Message) -> None:
    """Ask a run of another tool to stop: its callback looks for the file. Other runs are left as they are."""
    if alert.get("watched"):
        why = f"The doctor of the lab found at step {alert['step']:,}: {alert['verdict']}: {alert['evidence']}."
        asked = json.dumps({"stop": True, "why": why}, ensure_ascii=False)
        atomic.write_text(folder_of(str(alert["watched"])) / ASKED, asked)


SEND: Mapping[str, Send] = {"command": _command, "webhook": _webhook, "file": _file, "stop": _stop}


# ---------------------------------------------------------------- the alerts of a run

def wait() -> None:
    """Wait for the alerts of this process that are still to be sent, for a bounded time."""
    until = time.monotonic() + CLOSE_SECONDS
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(max(0.0, until - time.monotonic()))


class Alerts:
    """The alerts of one run, from `events`, those that it has, onwards. Nothing here raises into the run. `watched` is
    the folder of a run of another tool, by which it is asked to stop."""

    def __init__(self, store: Store, run: RunRow, events: Iterable[Event], watched: str = "") -> None:
        self._store, self._run, self._watched = store, run, watched
        before = [event.payload for event in events if event.kind == EVENT]
        self._sent = {(each.get("to"), each.get("rule")) for each in before if each.get("sent")}
        self._failed = {each.get("to") for each in before if not each.get("sent")}  # of which it was said
        self._waiting: deque[tuple[Receiver, int, Finding]] = deque()
        self._sending, self._lock = False, threading.Lock()
        try:
            self._receivers = receivers()
        except LabError as error:
            self._receivers = []
            self._log(run.step, {"to": SETTING, "rule": "", "sent": False, "text": f"No alerts are sent. {error}"})

    def take(self, step: int, finding: Finding) -> None:
        """Send a finding that begins at `step` to each receiver that has not had one of its rule."""
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
            named = {"watched": self._watched} if self._watched else {}
            SEND[receiver.kind](list(receiver.words), {**message(self._run, step, finding), **named})
        except Exception as error:  # of a program, a server or a disk that the lab does not know
            reason = os_reason(error) if isinstance(error, OSError) else first_line(error)
            self._log(step, {"to": receiver.key, "rule": finding.rule, "sent": False, "text":
                             f"An alert could not be sent ({receiver.kind}: {reason}): the run continues. Check "
                             f"{SETTING}."})
        else:
            self._log(step, {"to": receiver.key, "rule": finding.rule, "sent": True,
                             "text": f"Alert sent ({receiver.kind}): {finding.verdict}"})

    def _log(self, step: int, payload: dict[str, Any]) -> None:
        """Log what became of an alert: of a receiver that fails once."""
        if not payload["sent"]:
            if payload["to"] in self._failed:
                return
            self._failed.add(payload["to"])
        with suppress(LabError):  # the store is busy, or the run is another process's: it will send it again
            self._store.log(self._run.id, EVENT, payload, step)
