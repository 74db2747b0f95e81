"""Send a run of any trainer to the lab while it trains. A single file that needs only the standard library: copy it
next to your script as `watch.py`.

    from watch import Watch

    with Watch("qwen grpo", home="/data/lab", tool="my loop", config={"learning_rate": 1e-6}) as run:
        for step in range(1, 101):
            run.log(step, {"loss": loss, "reward": reward})
            run.rollouts(step, prompts=prompts, completions=texts, rewards={"correct": scores})

A call puts its arguments into a bounded queue and returns. It never waits and never raises: an error is logged once by
`logging` and shown in the run. A thread writes the queue to files in the lab's folder, which the lab reads while it is
running. With a `url` the files stay in a folder on this machine until the lab at that address has received them.
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
COMPLETIONS = 256  # that are sent of one step, in whole groups
BEAT_SECONDS = 15.0  # between two signs of life
LOOK_SECONDS = 2.0  # between two checks of the disk space
CLOSE_SECONDS = 10.0  # longest wait at exit until everything is written, and sent
BODY_BYTES = 2**20  # of one request
DEEPEST = 20  # lists and dictionaries within each other
STATES = ("finished", "stopped", "failed")
ASKED = "asked.json"  # the request of the lab to the trainer
BY_COMPLETION = ("advantages", "tokens", "logprobs", "old_logprobs", "ref_logprobs", "sampler_logprobs", "entropy")
_ID = re.compile(r"\w(?:[\w.-]{0,98}[\w-])?", re.ASCII)
_log = logging.getLogger("labcore.watch")


class Watch:
    """One run. `home` is the lab's folder (default: RL_LAB_HOME, otherwise "runs"). For a lab on another machine, give
    its `url` and `token` (default: RL_LAB_WATCH_URL, RL_LAB_WATCH_TOKEN).

    `tool` is the name of the trainer, such as "TRL". `config` holds its settings; the lab understands keys such as
    learning_rate, beta, num_generations, max_steps and algorithm. The `run_id` of an earlier run continues that run; a
    step that it already has then starts a fork. In a distributed run only the process of rank 0 sends.
    """

    def __init__(self, name: str, home: str | None = None, url: str | None = None, token: str | None = None,
                 tool: str = "", config: Mapping[str, Any] | None = None, run_id: str | None = None):
        slug = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")[:40] or "run"
        self.id = run_id or f"{slug}-{secrets.token_hex(3)}"
        self.active = next((os.environ[key] for key in ("RANK", "LOCAL_RANK") if key in os.environ), "0") == "0"
        self._begun, self._ended, self._pid = time.monotonic(), False, os.getpid()
        self._said: set[str] = set()
        self._pictures = 0  # calls with completions in the queue
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
        except Exception as error:  # the trainer continues without the lab
            self._fault(f"this run is not sent to the lab: {error}")
            self.active = False
            return
        self._thread.start()
        atexit.register(self.close)

    # ---------------------------------------------------------------- calls of the trainer

    def log(self, step: int, numbers: Mapping[str, Any], tokens: int | None = None,
            seconds: float | None = None) -> None:
        """Send the metrics of a step, under the trainer's names or the lab's. `tokens` and `seconds` count from the
        start of the run."""
        if seconds is None:
            seconds = round(time.monotonic() - self._begun, 3)
        self._put("numbers", step=step, seconds=seconds, tokens=tokens, numbers=numbers)

    def rollouts(self, step: int, prompts: Sequence[Any] = (), completions: Sequence[Any] = (),
                 rewards: Mapping[str, Sequence[Any]] | None = None, advantages: Any = None, tokens: Any = None,
                 logprobs: Any = None, old_logprobs: Any = None, ref_logprobs: Any = None, entropy: Any = None,
                 group: int | None = None, sampler_logprobs: Any = None, pairs: bool = False) -> None:
        """Send completions of a step. All lists have one item per completion; per-token arguments are lists of lists.

        `rewards` has a list for each reward function, and the total under "reward" if it is not their sum.
        `group` is the number of completions per prompt; `prompts` has one per completion, or one per group. `tokens`
        are texts; `advantages` may be per completion or per token. `sampler_logprobs` are those of a separate engine
        that sampled the tokens, such as vLLM. With `pairs` the completions are preference pairs: a chosen and a
        rejected one in turn. Their rewards are the implicit ones, whose difference is the margin.
        """
        self._put("rollouts", step=step, prompts=prompts, completions=completions, rewards=rewards,
                  advantages=advantages, tokens=tokens, logprobs=logprobs, old_logprobs=old_logprobs,
                  ref_logprobs=ref_logprobs, entropy=entropy, group=group,
                  sampler_logprobs=sampler_logprobs, pairs=pairs or None)

    def config(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Send settings that changed, from `step` on (default: the next step)."""
        self._put("config", step=step, values=values)

    def event(self, step: int | None, text: str) -> None:
        """Add a sentence about a step to the run's log."""
        self._put("event", step=step, text=str(text))

    def asked(self) -> dict[str, Any]:
        """Return the lab's request, such as {"stop": True, "why": "…"}; usually {}. The trainer may ignore it."""
        return self._files.asked() if self.active else {}

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until everything is written, at most `seconds`. Return True if it is. A trainer need not wait; a program
        that reads a log and sends it must, because it is faster than the writing thread."""
        done = threading.Event()
        if self.active and not self._ended:
            with suppress(queue.Full):
                self._queue.put({"kind": "flush", "done": done}, timeout=seconds)
                return done.wait(seconds)
        return False

    def close(self) -> None:
        """Write the queue and stop sending without ending the run, which can continue with the same `run_id`. This
        also happens when the process exits."""
        if not self._ended and self.active and os.getpid() == self._pid:
            self._close(None)

    def finish(self, state: str = "finished", message: str = "") -> None:
        """End the run as "finished", "stopped" or "failed". Waits at most CLOSE_SECONDS until everything is written."""
        if state not in STATES:
            self._fault(f"the state {state!r} is unknown: use {', '.join(STATES)}")
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
        """Queue a line. If the queue is full, drop and count it; completions are dropped long before numbers."""
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
                    raise queue.Full
                self._queue.put_nowait(line)
                self._pictures += large
        except queue.Full:
            self._files.drop(kind, "the trainer sent faster than the client could write")
        except Exception as error:  # never into the trainer
            self._fault(f"a call of {kind} has invalid arguments and is skipped: {type(error).__name__}: {error}")

    def _work(self) -> None:
        """Run the thread: write the queue until it yields None, and send a heartbeat if it stays empty for long."""
        line: dict[str, Any] | None = {}
        while line is not None:
            try:
                line = self._queue.get(timeout=BEAT_SECONDS)
            except queue.Empty:
                line = {"kind": "beat"}
            try:
                self._handle(line)
            except Exception as error:  # for example, the disk is full
                self._fault(f"a line could not be written and is lost: {type(error).__name__}: {error}")

    def _handle(self, line: dict[str, Any] | None) -> None:
        if line is None:
            self._files.close()
        elif line["kind"] == "beat":
            self._files.beat()
        elif line["kind"] == "flush":
            self._files.flush()
            line["done"].set()
        else:
            self._write(line)
            if self._queue.empty():
                self._files.flush()

    def _write(self, line: dict[str, Any]) -> None:
        large = line["kind"] == "rollouts"
        with self._lock:
            self._pictures -= large
        text = _rollouts(line, self._fault) if large else _packed(line)
        if len(text) > LINE_BYTES:
            self._fault(f"a line of {line['kind']} has more than {LINE_BYTES:,} bytes and is skipped")
        elif text:
            self._files.write(text, line["kind"])

    def _close(self, end: dict[str, Any] | None) -> None:
        self._ended = True
        for line in (end, None) if end else (None,):
            with suppress(queue.Full):
                self._queue.put(line, timeout=CLOSE_SECONDS / 2)
        self._thread.join(CLOSE_SECONDS)
        atexit.unregister(self.close)

    def _fault(self, text: str) -> None:
        """Report an error once: in the trainer's log and in the run."""
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
    """Copy a value, because its owner may change lists and arrays as soon as the call returns."""
    if isinstance(value, Mapping):
        return {str(key): _taken(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _packed(value: Any) -> bytes:
    """Return a line of JSON. NaN and infinities become texts, because JSON has no such numbers."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        text = json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "replace")


def _plain(value: Any, depth: int = 0) -> Any:
    """Convert `value` to JSON types: numbers of other libraries to Python's, everything else to text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if depth > DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, depth + 1) for each in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return _plain(value.tolist(), depth + 1)
    return _plain(float(value)) if hasattr(value, "__float__") else str(value)[:1000]


def _rollouts(line: dict[str, Any], fault: Callable[[str], None]) -> bytes:
    """Return a line of completions, packed one by one so that the trainer's thread does not wait. If there are too
    many, only the first whole groups are included; the line has their total number."""
    texts, prompts, rewards = line["completions"], line.get("prompts") or [], line.get("rewards") or {}
    rewards = rewards if isinstance(rewards, Mapping) else {"reward": rewards}
    count = len(texts)
    group = 2 if line.get("pairs") else line.get("group") or _run_length(prompts, count)
    columns = {name: line[name] for name in BY_COMPLETION if name in line}
    columns |= {("reward", name): each for name, each in rewards.items()}
    for name in [name for name, each in columns.items() if len(each) != count]:
        fault(f"{name} has {len(columns.pop(name))} items for {count} completions and is skipped")
    if not count or not isinstance(group, int) or group < 1:
        fault("a call of rollouts without completions is skipped" if not count else
              f"a call of rollouts is skipped: group is {group!r}, not the number of completions per prompt")
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
    head = {"kind": "rollouts", "step": line["step"], "time": line["time"], "of": count} | (
        {"pairs": True} if line.get("pairs") else {})
    if not packed:
        fault(f"rollouts are skipped: the completions of a prompt have more than {LINE_BYTES:,} bytes")
        return b""
    return b'%s,"groups":[%s]}\n' % (_packed(head)[:-2], b",".join(packed))


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
    """Infer the number of completions per prompt: from the number of prompts, or from repetitions of the first one."""
    if 0 < len(prompts) < count:
        return -(-count // len(prompts))
    return next((at for at, prompt in enumerate(prompts) if prompt != prompts[0]), len(prompts)) or 1


# ---------------------------------------------------------------- files


def _files(run_id: str, about: dict[str, Any], home: str | None, url: str, token: str,
           fault: Callable[[str], None]) -> _Files:
    if not _ID.fullmatch(run_id):
        raise ValueError(f"run_id {run_id[:80]!r} is invalid: use at most 100 letters, digits, _, - and inner dots")
    if not url:
        return _Files(_folder(home or os.environ.get("RL_LAB_HOME") or "runs") / run_id, about)
    kept = _folder(home or os.environ.get("RL_LAB_SPOOL") or "~/.cache/rl-lab")
    files = _Files(kept / f"{run_id}~{secrets.token_hex(4)}", {**about, "url": url})  # of this process alone
    files.sender = _Sender(files, url.rstrip("/"), token, fault)
    return files


def _folder(home: str) -> Path:
    return Path(home).expanduser().absolute() / "watched"


class _Files:
    """Writes lines into the files of one process, `spool/TIME-WRITER-NUMBER.jsonl`, a new one every SEGMENT_BYTES.

    The reader deletes each file after reading it. Without a reader, the files grow up to SPOOL_BYTES.
    """

    def __init__(self, folder: Path, about: dict[str, Any]):
        self.folder, self.spool = folder, folder / "spool"
        self.prefix, self.closed = f"{int(time.time() * 1000):013d}-{secrets.token_hex(4)}", False
        self.sender: _Sender | None = None
        self._about = _packed(about)
        self._number, self._size, self._file = 0, 0, None  # type: int, int, Any
        self._lock = threading.Lock()
        self._dropped: dict[str, Counter[str]] = {}  # by reason: the lines of each kind since the last report
        self._looked, self._used = time.monotonic(), 0.0  # time and result of the last check of the disk space
        self._begin()
        with suppress(OSError):
            (folder / ASKED).unlink()  # a request to the previous process
        self.flush()

    def asked(self) -> dict[str, Any]:
        """Return the request that the lab on this machine wrote, or the lab on another machine sent."""
        if self.sender:
            return self.sender.asked
        with suppress(OSError, ValueError):
            found = json.loads((self.folder / ASKED).read_bytes())
            return found if isinstance(found, dict) else {}
        return {}

    def write(self, text: bytes, kind: str) -> None:
        """Add a line. Drop and count it if the files have SPOOL_BYTES; completions already at half of that."""
        if self._share() > (0.5 if kind == "rollouts" else 1.0) and kind not in ("run", "end"):
            self.drop(kind, "the files that the lab has not read yet reached their size limit")
            return
        if kind == "end":
            self._report()
        try:
            self._add(text)
        except OSError as error:
            self.drop(kind, f"they could not be written ({error.strerror})")
            raise

    def drop(self, kind: str, why: str, count: int = 1) -> None:
        """Count lines that are dropped. The run reports them as soon as lines can be written again."""
        with self._lock:
            self._dropped.setdefault(why, Counter())[kind] += count

    def _report(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, {}
        for why, counts in dropped.items():
            try:
                self._add(_packed({"kind": "dropped", "time": time.time(), "counts": counts, "why": why}))
            except OSError:
                for kind, count in counts.items():
                    self.drop(kind, why, count)

    def _begin(self) -> None:
        """Make the folder of the run, and begin a file with the line that describes the run."""
        self.spool.mkdir(parents=True, exist_ok=True)
        if not (path := self.folder / "run.json").exists():
            part = self.folder / f".{self.prefix}.part"
            part.write_bytes(self._about)
            part.replace(path)
        self._open()
        self._add(self._about)

    def _open(self) -> None:
        if self._file:
            self._file.close()
        self._file = (self.spool / f"{self.prefix}-{self._number:05d}.jsonl").open("ab", buffering=0)
        self._number, self._size = self._number + 1, 0

    def _add(self, text: bytes) -> None:
        """Write a whole line or nothing. Raises OSError, for example if the disk is full."""
        if self._size > SEGMENT_BYTES:
            self._open()
        try:
            left = memoryview(text)
            while left:
                left = left[self._file.write(left):]
        except OSError:
            self._file.truncate(self._size)
            raise
        self._size += len(text)

    def _share(self) -> float:
        """Return the used share of SPOOL_BYTES, checked every few seconds."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            try:
                self._used = sum(path.stat().st_size for path in self.spool.iterdir()) / SPOOL_BYTES
            except FileNotFoundError:  # the reader deleted a file, or somebody the folder
                if not self.spool.exists():
                    self._begin()
        return self._used

    def flush(self) -> None:
        """Report dropped lines and update the modification time of the folder, which tells the lab to read."""
        if self._share() <= 0.5:
            self._report()
        with suppress(OSError):
            os.utime(self.folder.parent)
        if self.sender:
            self.sender.rings.set()

    def beat(self) -> None:
        """Send a heartbeat."""
        with suppress(OSError):
            os.utime(self.folder / "run.json")
        self.flush()

    def close(self) -> None:
        """Close the file. For a lab on another machine, wait a few seconds until it has everything."""
        self._report()
        self.closed = True
        self.flush()
        self._file.close()
        if self.sender:
            self.sender.join(CLOSE_SECONDS * 0.8)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error, because it would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return None: do not follow."""


class _Sender(threading.Thread):
    """Sends the files of a process to the lab at `url`, whose response has the size of its copy. A file is deleted when
    the lab has all of it. Files that earlier processes on this machine could not send are sent first."""

    def __init__(self, files: _Files, url: str, token: str, fault: Callable[[str], None]):
        super().__init__(name="watch-sender", daemon=True)
        self.rings = threading.Event()
        self._files, self._url, self._token, self._fault = files, url, token, fault
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._sent: dict[Path, int] = {}  # how much of a file the lab has
        self._refused: set[Path] = set()  # folders of earlier processes that are not tried again
        self.asked: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        """Send until the run has ended and everything is sent."""
        wait, over = 1.0, False
        while not over:
            closed = self._files.closed
            try:
                self._refused |= {folder for folder in self._earlier() if not self._takes(folder, True)}
                if self._takes(self._files.folder, closed):
                    wait, over = 1.0, closed
                    self.rings.wait(0.0 if closed else BEAT_SECONDS)
                    self.rings.clear()
                else:
                    time.sleep(BEAT_SECONDS)
            except Exception as error:  # the lab is unreachable: retry
                self._fault(f"{self._url} cannot be reached ({error}): the lines stay in {self._files.spool} and are "
                            "sent later")
                wait = min(30.0, 2 * wait)
                time.sleep(wait)

    def _takes(self, folder: Path, over: bool) -> bool:
        """Send the files of a folder. False if the lab refuses them, which it may do for one run alone."""
        try:
            self._send(folder, over)
        except urllib.error.HTTPError as error:
            why = error.read(300).decode(errors="replace")
            self._fault(f"{self._url} refused the run {folder.name.partition('~')[0]} ({error.code}): {why}")
            return False
        return True

    def _earlier(self) -> Iterator[Path]:
        """Yield the folders of runs whose process ended on this machine before everything was sent to this lab."""
        for path in self._files.folder.parent.glob("*/run.json"):
            with suppress(OSError, ValueError, KeyError):
                about = json.loads(path.read_bytes())
                known = {self._files.folder, *self._refused}
                if path.parent not in known and about["url"].rstrip("/") == self._url and not _lives(about):
                    yield path.parent

    def _send(self, folder: Path, over: bool) -> None:
        """Send the files of a folder; `over`: they are complete."""
        run_id, paths = folder.name.partition("~")[0], sorted((folder / "spool").glob("*.jsonl"))
        for place, path in enumerate(paths):
            with suppress(FileNotFoundError), path.open("rb") as file:  # another process sends the remaining files
                before = self._sent.get(path)
                while file.seek(self._sent.get(path, 0)) >= 0 and (body := file.read(BODY_BYTES)):
                    self._sent[path] = self._post(run_id, path.name, self._sent.get(path, 0), body)
                if before == self._sent.get(path) and path == paths[-1]:
                    self._post(run_id, path.name, before or 0, b"")  # a heartbeat
            if over or place < len(paths) - 1:
                path.unlink(missing_ok=True)
        if over:
            with suppress(OSError):
                (folder / "spool").rmdir()
                (folder / "run.json").unlink()
                folder.rmdir()

    def _post(self, run_id: str, name: str, at: int, body: bytes) -> int:
        """Send `body` for the byte offset `at` of a file. Return the size of the lab's copy afterwards."""
        request = urllib.request.Request(f"{self._url}/watch/{run_id}/{name}?at={at}", data=body, method="POST")
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/x-ndjson")
        try:
            with self._opener.open(request, timeout=20) as answer:
                said = json.loads(answer.read(10_000))
            if run_id == self._files.folder.name.partition("~")[0]:
                self.asked = said.get("asked", {})
            return int(said["size"])
        except urllib.error.HTTPError as error:
            if error.code != 410:
                raise
            self._fault(f"the run {run_id} was deleted in the lab, so its lines are discarded")
            return at + len(body)


def _lives(about: Mapping[str, Any]) -> bool:
    """True if the process that wrote this is alive, or may be alive on another machine."""
    if about["host"] != platform.node() or os.name != "posix":
        return True
    try:
        os.kill(about["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is alive and belongs to another user
        return True
    return True
