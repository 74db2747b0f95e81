"""Send a training run of any program to the lab while it trains. One file, standard library only: it can be copied.

    from watch import Watch

    with Watch("qwen grpo", home="/data/lab", tool="my loop", config={"learning_rate": 1e-6}) as run:
        for step in range(1, 101):
            run.log(step, {"loss": loss, "reward": reward})
            run.rollouts(step, prompts=prompts, completions=texts, rewards={"correct": scores})

A call puts what it is given into a bounded queue and returns. It never waits, and it never raises: a fault is logged
once by `logging` and shown in the run. A thread writes the queue to files below the lab's folder, which the lab reads
whenever it runs. With a `url` the files are kept in a folder of this machine until the lab there has them.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import platform
import queue
import re
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FORMAT = 1
QUEUED = 10_000  # calls that wait for the thread
PICTURES = 8  # of these with completions, which are large
SEGMENT_BYTES = 8 * 2**20  # of one file
LINE_BYTES = 16 * 2**20  # of one line
SPOOL_BYTES = 2**30  # of all files that the lab has not read yet; completions are dropped at half of it
COMPLETIONS = 256  # of one step that are sent, whole groups
BEAT_SECONDS = 15.0  # between two signs of life
CLOSE_SECONDS = 10.0  # how long the end of a program waits until all is written, and sent
BODY_BYTES = 2**20  # of one request
STATES = ("finished", "stopped", "failed")
ASKED = "asked.json"  # what the lab asks of the program
BY_COMPLETION = ("advantages", "tokens", "logprobs", "old_logprobs", "ref_logprobs", "entropy")
_ID = re.compile(r"\w(?:[\w.-]{0,98}[\w-])?", re.ASCII)
_log = logging.getLogger("labcore.watch")


class Watch:
    """One run. `home` is the lab's folder (default: RL_LAB_HOME, else "runs"); or `url` and `token` are those of a lab
    on another machine (RL_LAB_WATCH_URL, RL_LAB_WATCH_TOKEN).

    `tool` is the program that trains, such as "TRL". `config` are its settings; keys such as learning_rate, beta,
    num_generations, max_steps and algorithm are understood. A `run_id` that was used before continues that run: a step
    that was logged already then begins a fork. In a distributed run only the process of rank 0 sends.
    """

    def __init__(self, name: str, home: str | None = None, url: str | None = None, token: str | None = None,
                 tool: str = "", config: Mapping[str, Any] | None = None, run_id: str | None = None):
        slug = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")[:40] or "run"
        self.id = run_id or f"{slug}-{secrets.token_hex(3)}"
        self.active = next((os.environ[key] for key in ("RANK", "LOCAL_RANK") if key in os.environ), "0") == "0"
        self._begun, self._ended, self._pid = time.monotonic(), False, os.getpid()
        self._said: set[str] = set()
        self._lost: Counter[str] = Counter()  # what the queue had no room for since that was last said
        self._pictures = 0  # in the queue
        self._lock = threading.Lock()
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUED)
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)
        if not self.active:
            return
        about = {"kind": "run", "format": FORMAT, "id": self.id, "name": str(name), "tool": str(tool),
                 "created": time.time(), "config": config or {}, "pid": self._pid, "host": platform.node()}
        try:
            self._files = _files(self.id, about, home, url or os.environ.get("RL_LAB_WATCH_URL", ""),
                                 token or os.environ.get("RL_LAB_WATCH_TOKEN", ""), self._fault)
        except Exception as error:  # the trainer goes on without the lab
            self._fault(f"this run is not sent to the lab: {error}")
            self.active = False
            return
        self._thread.start()
        atexit.register(self.close)

    # ---------------------------------------------------------------- what a trainer calls

    def log(self, step: int, numbers: Mapping[str, Any], tokens: int | None = None,
            seconds: float | None = None) -> None:
        """The numbers of a step, under the tool's own names or the lab's. `tokens` and `seconds` count from the start
        of the run."""
        if seconds is None:
            seconds = round(time.monotonic() - self._begun, 3)
        self._put("numbers", step=step, seconds=seconds, tokens=tokens, numbers=numbers)

    def rollouts(self, step: int, prompts: Sequence[Any] = (), completions: Sequence[Any] = (),
                 rewards: Mapping[str, Sequence[Any]] | None = None, advantages: Any = None, tokens: Any = None,
                 logprobs: Any = None, old_logprobs: Any = None, ref_logprobs: Any = None, entropy: Any = None,
                 group: int | None = None) -> None:
        """Completions of a step. All lists are flat: one item per completion, and those by token a list in it.

        `rewards` has a list for each reward function, and under "reward" the total, where that is not their sum.
        `group` is the number of completions per prompt; `prompts` has one per completion, or one per group. `tokens`
        are texts; `advantages` may be per completion or per token.
        """
        self._put("rollouts", step=step, prompts=prompts, completions=completions, rewards=rewards,
                  advantages=advantages, tokens=tokens, logprobs=logprobs, old_logprobs=old_logprobs,
                  ref_logprobs=ref_logprobs, entropy=entropy, group=group)

    def config(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Settings that changed, from `step` on (default: the next step)."""
        self._put("config", step=step, values=values)

    def event(self, step: int | None, text: str) -> None:
        """A sentence about a step, shown in the run's log."""
        self._put("event", step=step, text=str(text))

    def asked(self) -> dict[str, Any]:
        """What the lab asks of the program, such as {"stop": True, "why": "…"}; mostly nothing. It need not obey."""
        return self._files.asked() if self.active else {}

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until all that was given is written, at most so long. Returns whether it is. A trainer need not wait; a
        program that sends a log as fast as it can be read must, or the queue drops lines."""
        done = threading.Event()
        if self.active and not self._ended:
            with suppress(queue.Full):
                self._queue.put({"kind": "flush", "done": done}, timeout=seconds)
                return done.wait(seconds)
        return False

    def close(self) -> None:
        """Write what was given and stop sending, without an end: the run may go on with the same `run_id`. So does the
        end of the program."""
        if not self._ended and self.active and os.getpid() == self._pid:
            self._close(None)

    def finish(self, state: str = "finished", message: str = "") -> None:
        """End the run as "finished", "stopped" or "failed", and wait at most CLOSE_SECONDS until all is written."""
        if state not in STATES:
            self._fault(f"a run ends as {', '.join(STATES)}, not as {state!r}")
        if not self._ended and self.active and os.getpid() == self._pid:
            self._close({"kind": "end", "time": time.time(), "state": state, "message": str(message)})

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: Any, error: Any, _trace: Any) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, (KeyboardInterrupt, SystemExit)):
            self.finish("stopped")
        else:
            self.finish("failed", f"{kind.__name__}: {error}")

    # ---------------------------------------------------------------- the queue

    def _put(self, kind: str, **said: Any) -> None:
        """Queue a line. Where there is no room, it is counted and dropped, completions long before numbers."""
        if not self.active:
            return
        if self._ended or os.getpid() != self._pid:  # a forked child of the trainer has no thread that writes
            self._fault(f"the run {self.id} has ended" if self._ended else "a forked process sends nothing")
            return
        try:
            line = {key: _taken(dict(value) if key in ("numbers", "values") else value) for key, value in said.items()
                    if value is not None}
            line |= {"kind": kind, "time": time.time()}
            large = kind == "rollouts"
            with self._lock:
                if large and self._pictures >= PICTURES:
                    self._lost[kind] += 1
                    return
                self._pictures += large
            try:
                self._queue.put_nowait(line)
            except queue.Full:
                with self._lock:
                    self._lost[kind] += 1
                    self._pictures -= large
        except Exception as error:  # never into the trainer
            self._fault(f"a call of {kind} cannot be used: {type(error).__name__}: {error}")

    def _work(self) -> None:
        """The thread: write what is queued until None comes; a sign of life where nothing comes for long."""
        going = True
        while going:
            try:
                line = self._queue.get(timeout=BEAT_SECONDS)
                going, waited = line is not None, line is not None and line["kind"] == "flush"
                if line is not None and not waited:
                    self._write(line)
                if self._queue.empty() or waited or not going:
                    self._say_lost()
                    self._files.flush()
                if line is not None and waited:
                    line["done"].set()
            except queue.Empty:
                self._files.beat()
            except Exception as error:  # the disk is full, say
                self._fault(f"a line is lost: {type(error).__name__}: {error}")
        self._files.close()

    def _write(self, line: dict[str, Any]) -> None:
        large = line["kind"] == "rollouts"
        with self._lock:
            self._pictures -= large
        text = _rollouts(line, self._fault) if large else _packed(line)
        if len(text) > LINE_BYTES:
            self._fault(f"a line of {line['kind']} has more than {LINE_BYTES:,} bytes, and is left out")
        elif text:
            self._files.write(text, line["kind"])

    def _say_lost(self) -> None:
        with self._lock:
            lost, self._lost = self._lost, Counter()
        if lost:
            self._files.say_lost(lost, "they came faster than they could be written")

    def _close(self, end: dict[str, Any] | None) -> None:
        self._ended = True
        for line in (end, None) if end else (None,):
            with suppress(queue.Full):
                self._queue.put(line, timeout=CLOSE_SECONDS / 2)
        self._thread.join(CLOSE_SECONDS)
        atexit.unregister(self.close)

    def _fault(self, text: str) -> None:
        """Say once what is wrong: in the trainer's log, and in the run."""
        if text[:40] in self._said:
            return
        self._said.add(text[:40])
        _log.warning("RL Visual Lab: %s", text)
        line = {"kind": "event", "time": time.time(), "text": text}
        if os.getpid() != self._pid:  # its queue may be locked for ever
            return
        with suppress(Exception):
            if threading.current_thread() is self._thread:
                self._files.write(_packed(line), "event")
            else:
                self._queue.put_nowait(line)


# ---------------------------------------------------------------- lines


def _taken(value: Any) -> Any:
    """A value as it is now: its owner may change lists and arrays as soon as the call returns."""
    if isinstance(value, Mapping):
        return {str(key): _taken(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _packed(value: Any) -> bytes:
    """A line of JSON. NaN and infinities are texts, because JSON has no such numbers."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError):
        text = json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "replace")


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it: numbers of other libraries as Python's, what is no JSON as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if depth < 20 and isinstance(value, Mapping):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if depth < 20 and isinstance(value, (list, tuple)):
        return [_plain(each, depth + 1) for each in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return _plain(value.tolist(), depth + 1)
    return _plain(float(value)) if hasattr(value, "__float__") else str(value)[:1000]


def _rollouts(line: dict[str, Any], fault: Callable[[str], None]) -> bytes:
    """A line of completions, packed one by one so that the trainer's thread is not kept waiting. Of many the first
    whole groups are sent; the line says how many there were."""
    texts, prompts, rewards = line["completions"], line.get("prompts") or [], line.get("rewards") or {}
    rewards = rewards if isinstance(rewards, Mapping) else {"reward": rewards}
    count = len(texts)
    group = line.get("group") or _run_length(prompts, count)
    columns = {name: line[name] for name in BY_COMPLETION if name in line}
    columns |= {("reward", name): each for name, each in rewards.items()}
    for name in [name for name, each in columns.items() if len(each) != count]:
        fault(f"{name} of {len(columns.pop(name))} items for {count} completions is left out")
    if not count or not isinstance(group, int) or group < 1:
        fault("a call of rollouts without completions is left out" if not count else
              f"a call of rollouts is left out: group is {group!r}, not the number of completions per prompt")
        return b""
    per_group = len(prompts) != count
    packed, size = [], 0
    for first in range(0, min(count, max(group, COMPLETIONS // group * group)), group):
        at = first // group if per_group else first
        rows = [_completion(texts[row], columns, row) for row in range(first, min(first + group, count))]
        packed.append(b'{"prompt":%s,"completions":[%s]}' % (
            _packed(prompts[at] if at < len(prompts) else "")[:-1], b",".join(rows)))
        size += len(packed[-1]) + 1
        if size > LINE_BYTES - 1000:
            packed.pop()
            break
    head = {"kind": "rollouts", "step": line["step"], "time": line["time"], "of": count}
    return b'%s,"groups":[%s]}\n' % (_packed(head)[:-2], b",".join(packed)) if packed else b" " * (LINE_BYTES + 1)


def _completion(text: Any, columns: Mapping[Any, Any], row: int) -> bytes:
    said: dict[str, Any] = {"text": text}
    for name, each in columns.items():
        value = each[row]
        if isinstance(name, tuple):
            said.setdefault("rewards", {})[name[1]] = value
        elif isinstance(value, list) and name != "tokens":
            with suppress(TypeError):
                value = [round(number, 5) for number in value]
            said[name] = value
        else:
            said[name] = value
    return _packed(said)[:-1]


def _run_length(prompts: Sequence[Any], count: int) -> int:
    """The completions per prompt where nobody says it: by the number of prompts, else how often the first repeats."""
    if 0 < len(prompts) < count:
        return -(-count // len(prompts))
    return next((at for at, prompt in enumerate(prompts) if prompt != prompts[0]), len(prompts)) or 1


# ---------------------------------------------------------------- files


def _files(run_id: str, about: dict[str, Any], home: str | None, url: str, token: str,
           fault: Callable[[str], None]) -> _Files:
    if not _ID.fullmatch(run_id):
        raise ValueError(f"run_id {run_id[:80]!r} must have at most 100 letters, digits, _, - and dots inside")
    if not url:
        return _Files(_folder(home or os.environ.get("RL_LAB_HOME") or "runs") / run_id, about)
    kept = _folder(home or os.environ.get("RL_LAB_SPOOL") or "~/.cache/rl-lab")
    files = _Files(kept / run_id, {**about, "url": url})
    files.sender = _Sender(files, url.rstrip("/"), token, fault)
    return files


def _folder(home: str) -> Path:
    return Path(home).expanduser().absolute() / "watched"


class _Files:
    """Writes lines into the files of one run, `spool/TIME-WRITER-NUMBER.jsonl`, a new one every SEGMENT_BYTES.

    Whoever has read a file deletes it. Where nobody reads, the files grow up to SPOOL_BYTES.
    """

    def __init__(self, folder: Path, about: dict[str, Any]):
        self.folder, self.spool = folder, folder / "spool"
        self.prefix, self.closed = f"{int(time.time() * 1000):013d}-{secrets.token_hex(4)}", False
        self.sender: _Sender | None = None
        self._number, self._size, self._file = 0, 0, None  # type: int, int, Any
        self._dropped: Counter[str] = Counter()
        self._looked, self._used = -math.inf, 0.0  # when the disk's share was looked at, and what it was
        self.spool.mkdir(parents=True, exist_ok=True)
        text = _packed(about)
        if not (path := folder / "run.json").exists():
            part = folder / f".{self.prefix}.part"
            part.write_bytes(text)
            part.replace(path)
        (folder / ASKED).unlink(missing_ok=True)  # it was asked of the program that sent before
        self.write(text, "run")
        self.flush()

    def asked(self) -> dict[str, Any]:
        """What the lab on this machine has written for the program, or the lab elsewhere has answered."""
        if self.sender:
            return self.sender.asked
        with suppress(OSError, ValueError):
            found = json.loads((self.folder / ASKED).read_bytes())
            return found if isinstance(found, dict) else {}
        return {}

    def write(self, text: bytes, kind: str) -> None:
        """Add a line; where the disk's share is used up it is counted and dropped, completions at half of that."""
        if self._share() > (0.5 if kind == "rollouts" else 1.0) and kind not in ("run", "end", "dropped"):
            self._dropped[kind] += 1
            return
        if self._dropped:
            lost, self._dropped = self._dropped, Counter()
            self.say_lost(lost, "the files that the lab has not read yet have no room for more")
        if self._file is None or self._size > SEGMENT_BYTES:
            if self._file:
                self._file.close()
            self._file = (self.spool / f"{self.prefix}-{self._number:05d}.jsonl").open("ab")
            self._number, self._size = self._number + 1, 0
        self._file.write(text)
        self._size += len(text)

    def say_lost(self, lost: Mapping[str, int], why: str) -> None:
        """Write how many lines of each kind were dropped."""
        self.write(_packed({"kind": "dropped", "time": time.time(), "counts": dict(lost), "why": why}), "dropped")

    def _share(self) -> float:
        """How much of SPOOL_BYTES is used, looked at every few seconds."""
        if time.monotonic() - self._looked > 2.0:
            with suppress(OSError):
                self._used = sum(path.stat().st_size for path in self.spool.iterdir()) / SPOOL_BYTES
            self._looked = time.monotonic()
        return self._used

    def flush(self) -> None:
        """Hand the lines to the system, and ring: the time of one folder tells the lab that some run has written."""
        self._file.flush()
        with suppress(OSError):
            os.utime(self.folder.parent)
        if self.sender:
            self.sender.rings.set()

    def beat(self) -> None:
        """A sign of life."""
        with suppress(OSError):
            os.utime(self.folder / "run.json")
        self.flush()

    def close(self) -> None:
        """Close the file; with a lab elsewhere wait until it has all, but not for long."""
        self.flush()
        self._file.close()
        self.closed = True
        if self.sender:
            self.sender.join(CLOSE_SECONDS * 0.8)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token elsewhere, so it is an error."""

    def redirect_request(self, *_: Any) -> None:
        """None: it is not followed."""


class _Sender(threading.Thread):
    """Sends the files of a run to the lab at `url`, whose answers say how much of a file it has. A file that is there
    whole is deleted. First come the files that earlier runs on this machine could not send."""

    def __init__(self, files: _Files, url: str, token: str, fault: Callable[[str], None]):
        super().__init__(name="watch-sender", daemon=True)
        self.rings = threading.Event()
        self._files, self._url, self._token, self._fault = files, url, token, fault
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._sent: dict[Path, int] = {}  # how much of a file the lab has
        self.asked: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        """Send until all is sent after the end."""
        wait, over = 1.0, False
        while not over:
            closed = self._files.closed
            try:
                self._send(self._files.folder, closed)
                for folder in self._earlier():
                    self._send(folder, True)
                wait, over = 1.0, closed
                self.rings.wait(0.0 if closed else BEAT_SECONDS)
                self.rings.clear()
            except urllib.error.HTTPError as error:
                why = error.read(300).decode(errors="replace")
                self._fault(f"{self._url} does not take this run ({error.code}): {why}")
                time.sleep(BEAT_SECONDS)
            except Exception as error:  # the lab is not there: it is tried again
                self._fault(f"{self._url} cannot be reached ({error}): what is logged is kept in {self._files.spool} "
                            "and sent later")
                wait = min(30.0, 2 * wait)
                time.sleep(wait)

    def _earlier(self) -> Iterator[Path]:
        """The folders of runs whose program ended on this machine before all was sent to this lab."""
        for path in self._files.folder.parent.glob("*/run.json"):
            with suppress(OSError, ValueError, KeyError):
                about = json.loads(path.read_bytes())
                if path.parent != self._files.folder and about["url"].rstrip("/") == self._url and not _lives(about):
                    yield path.parent

    def _send(self, folder: Path, over: bool) -> None:
        """Send what the files of a folder have; `over`: nothing is added to them any more."""
        paths = sorted((folder / "spool").glob("*.jsonl"))
        for place, path in enumerate(paths):
            with suppress(FileNotFoundError), path.open("rb") as file:  # another program sends what was left
                before = self._sent.get(path)
                while file.seek(self._sent.get(path, 0)) >= 0 and (body := file.read(BODY_BYTES)):
                    self._sent[path] = self._post(folder.name, path.name, self._sent.get(path, 0), body)
                if before == self._sent.get(path) and path == paths[-1]:
                    self._post(folder.name, path.name, before or 0, b"")  # a sign of life
            if over or place < len(paths) - 1:
                path.unlink(missing_ok=True)
        if over:
            with suppress(OSError):
                (folder / "run.json").unlink()
                (folder / "spool").rmdir()
                folder.rmdir()

    def _post(self, run_id: str, name: str, at: int, body: bytes) -> int:
        """Add `body` at the byte `at` of a file; returns how many bytes of it the lab has then."""
        request = urllib.request.Request(f"{self._url}/watch/{run_id}/{name}?at={at}", data=body, method="POST")
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/x-ndjson")
        try:
            with self._opener.open(request, timeout=20) as answer:
                said = json.loads(answer.read(10_000))
            if run_id == self._files.folder.name:
                self.asked = said.get("asked", {})
            return int(said["size"])
        except urllib.error.HTTPError as error:
            if error.code != 410:
                raise
            self._fault(f"the run {run_id} was deleted in the lab, so nothing of it is shown any more")
            return at + len(body)


def _lives(about: Mapping[str, Any]) -> bool:
    """True if the program that wrote this is on this machine and alive, or may be."""
    if about["host"] != platform.node() or os.name != "posix":
        return True
    try:
        os.kill(about["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return True
