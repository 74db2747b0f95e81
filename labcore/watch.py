"""Send a training run of any program to the lab while it trains. One file, standard library only: it can be copied.

    from labcore.watch import Watch

    with Watch("qwen grpo", home="/data/lab", tool="my loop", config={"learning_rate": 1e-6}) as run:
        for step in range(1, 101):
            run.log(step, {"loss": loss, "reward": reward})
            run.rollouts(step, prompts=prompts, completions=texts, rewards={"correct": scores})

A call puts what it is given into a bounded queue and returns. It never waits, and it never raises: a fault is logged
once by `logging` and shown in the run. A thread writes the queue to files below the lab's folder, which the lab reads
whenever it runs; with a `url` it keeps the files in a folder of its own until the lab has them.
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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FORMAT = 1
QUEUED = 10_000  # calls that wait for the thread
PICTURES = 8  # of these with completions, which are large
SEGMENT_BYTES = 8 * 2**20  # of one file
LINE_BYTES = 16 * 2**20  # of one line
SPOOL_BYTES = 2**30  # of all files that the lab has not read; completions are dropped at half of it
COMPLETIONS = 256  # of one step that are sent, whole groups
BEAT_SECONDS = 15.0  # between two signs of life
CLOSE_SECONDS = 10.0  # how long the end of a program waits for the queue
STATES = ("finished", "stopped", "failed")
PER_COMPLETION = ("advantages", "tokens", "logprobs", "old_logprobs", "ref_logprobs", "entropy")
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
        self.id = run_id or f"{_slug(name)}-{secrets.token_hex(3)}"
        self.active = _first_rank()
        self._begun, self._ended = time.monotonic(), False
        self._said: set[str] = set()
        self._lost: Counter[str] = Counter()  # what the queue had no room for since that was last said
        self._pictures = 0  # in the queue
        self._lock = threading.Lock()
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUED)
        self._pid = os.getpid()
        if not self.active:
            return
        try:
            self._writer = _writer(self.id, home, url or os.environ.get("RL_LAB_WATCH_URL"),
                                   token or os.environ.get("RL_LAB_WATCH_TOKEN"))
            about = {"kind": "run", "format": FORMAT, "id": self.id, "name": str(name), "tool": str(tool),
                     "created": time.time(), "config": _plain(config or {}), "pid": os.getpid(),
                     "host": platform.node()}
            self._writer.begin(about)
        except Exception as error:  # the trainer goes on without the lab
            self._fault(f"this run is not sent to the lab: {error}")
            self.active = False
            return
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)

    # ---------------------------------------------------------------- what a trainer calls

    def log(self, step: int, numbers: Mapping[str, Any], tokens: int | None = None,
            seconds: float | None = None) -> None:
        """The numbers of a step, under the tool's own names or the lab's. `tokens` and `seconds` count from the start
        of the run."""
        self._put({"kind": "numbers", "step": step, "seconds": seconds, "tokens": tokens, "numbers": numbers})

    def rollouts(self, step: int, prompts: Sequence[Any] = (), completions: Sequence[Any] = (),
                 rewards: Mapping[str, Sequence[Any]] | None = None, advantages: Any = None, tokens: Any = None,
                 logprobs: Any = None, old_logprobs: Any = None, ref_logprobs: Any = None, entropy: Any = None,
                 group: int | None = None) -> None:
        """Completions of a step. All lists are flat: one item per completion, and those by token a list in it.
        `rewards` has a list for each reward function. `group` is the number of completions per prompt; `prompts` has
        one per completion, or one per group. `tokens` are texts; `advantages` may be per completion or per token."""
        self._put({"kind": "rollouts", "step": step, "prompts": prompts, "completions": completions,
                   "rewards": rewards or {}, "advantages": advantages, "tokens": tokens, "logprobs": logprobs,
                   "old_logprobs": old_logprobs, "ref_logprobs": ref_logprobs, "entropy": entropy, "group": group})

    def config(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Settings that changed, from `step` on (default: the next step)."""
        self._put({"kind": "config", "step": step, "values": values})

    def event(self, step: int | None, text: str) -> None:
        """A sentence about a step, shown in the run's log."""
        self._put({"kind": "event", "step": step, "text": str(text)})

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until all that was given is written, at most so long. Returns whether it is. A trainer need not wait; a
        program that sends a log as fast as it can be read must, or the queue drops lines."""
        done = threading.Event()
        with suppress(queue.Full):
            self._queue.put({"kind": "flush", "done": done}, timeout=seconds)
        return done.wait(seconds)

    def close(self) -> None:
        """Write what was given and stop sending, without an end: the run may go on with the same `run_id`."""
        self._at_exit()

    def finish(self, state: str = "finished", message: str = "") -> None:
        """End the run as "finished", "stopped" or "failed", and wait at most CLOSE_SECONDS until all is written."""
        if self._ended or not self.active or os.getpid() != self._pid:
            return
        if state not in STATES:
            self._fault(f"a run ends as {', '.join(STATES)}, not as {state!r}")
            state = "finished"
        self._put({"kind": "end", "state": state, "message": str(message)})
        self._ended = True
        self._close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: Any, error: Any, _trace: Any) -> None:
        if error is None:
            self.finish()
        else:
            stopped = isinstance(error, KeyboardInterrupt)
            self.finish("stopped" if stopped else "failed", "" if stopped else f"{kind.__name__}: {error}")

    # ---------------------------------------------------------------- the queue

    def _put(self, line: dict[str, Any]) -> None:
        """Queue a line. Where there is no room, it is counted and dropped, completions long before numbers."""
        if not self.active or os.getpid() != self._pid:  # a forked child of the trainer, such as a data loader
            return
        if self._ended:
            self._fault(f"the run {self.id} has ended: what is sent later is not shown")
            return
        try:
            large = line["kind"] == "rollouts"
            line["time"] = time.time()
            if line.get("seconds") is None:
                line["seconds"] = round(time.monotonic() - self._begun, 3)
            if large:
                line = {key: _listed(value) for key, value in line.items()}
            else:
                line = {key: dict(value) if isinstance(value, Mapping) else value for key, value in line.items()}
            with self._lock:
                if large and self._pictures >= PICTURES:
                    self._lost["rollouts"] += 1
                    return
                self._pictures += large
            try:
                self._queue.put_nowait(line)
            except queue.Full:
                with self._lock:
                    self._lost[line["kind"]] += 1
                    self._pictures -= large
        except Exception as error:  # never into the trainer
            self._fault(f"a call of {line['kind']} cannot be used: {type(error).__name__}: {error}")

    def _work(self) -> None:
        """The thread: write lines until None comes; a sign of life where nothing comes for long."""
        while True:
            try:
                line = self._queue.get(timeout=BEAT_SECONDS)
            except queue.Empty:
                line = {"kind": "beat"}
            try:
                self._write(line)
            except Exception as error:  # the disk is full, say
                self._fault(f"a line is lost: {type(error).__name__}: {error}")
            if line is None:
                return

    def _write(self, line: dict[str, Any] | None) -> None:
        if line is not None and line["kind"] == "rollouts":
            with self._lock:
                self._pictures -= 1
        with self._lock:
            lost, self._lost = self._lost, Counter()
        if lost:
            self._writer.write(_packed({"kind": "dropped", "time": time.time(), "counts": dict(lost), "why": (
                "they came faster than they could be written")}), "dropped")
        if line is None:
            self._writer.close()
        elif line["kind"] == "beat":
            self._writer.beat()
        elif line["kind"] == "flush":
            self._writer.flush(True)
            line["done"].set()
        else:
            for text in _texts(line, self._fault):
                self._writer.write(text, line["kind"])
            self._writer.flush(self._queue.empty())

    def _close(self) -> None:
        with suppress(queue.Full):
            self._queue.put(None, timeout=1.0)
        self._thread.join(CLOSE_SECONDS)
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """The program ends without `finish`: what is queued is written, and the lab sees that the process is gone."""
        if not self._ended and os.getpid() == self._pid:
            self._ended = True
            self._close()

    def _fault(self, text: str) -> None:
        """Say once what is wrong: in the trainer's log, and in the run."""
        kind = text[:40]
        if kind in self._said:
            return
        self._said.add(kind)
        _log.warning("RL Visual Lab: %s", text)
        with suppress(Exception):
            self._queue.put_nowait({"kind": "event", "step": None, "text": text, "time": time.time()})


# ---------------------------------------------------------------- lines


def _texts(line: dict[str, Any], fault: Any) -> Iterator[bytes]:
    """The line as JSON; none where it cannot be one."""
    if line["kind"] != "rollouts":
        text = _packed({key: value for key, value in line.items() if value is not None})
        if len(text) > LINE_BYTES:
            fault(f"a line of {line['kind']} has {len(text):,} bytes, more than {LINE_BYTES:,}, and is left out")
        else:
            yield text
    elif not len(line["completions"]):
        fault("a call of rollouts has no completions")
    else:
        yield _rollouts(line, fault)


def _rollouts(line: dict[str, Any], fault: Any) -> bytes:
    """A line of completions, packed one by one so that the trainer's thread is not kept waiting. Of many the first
    whole groups are sent; the line says how many there were."""
    count = len(line["completions"])
    group = line["group"] or _run_length(line["prompts"], count)
    if not isinstance(group, int) or group < 1:
        fault(f"group is {group!r}, not the number of completions per prompt")
        group = 1
    prompts = line["prompts"] if len(line["prompts"]) != count else line["prompts"][::group]
    columns = {**{name: line[name] for name in PER_COMPLETION}, **{f"reward:{name}": each for name, each in
                                                                  line["rewards"].items()}}
    columns = {name: each for name, each in columns.items() if each is not None}
    for name in [name for name, each in columns.items() if len(each) != count]:
        fault(f"{name} has {len(columns.pop(name))} items for {count} completions, and is left out")
    packed, size = [], 0
    for start in range(0, count, group):
        rows = [_packed({"text": line["completions"][at], **_row(columns, at)}).rstrip(b"\n")
                for at in range(start, min(start + group, count))]
        prompt = prompts[start // group] if start // group < len(prompts) else ""
        packed.append(b'{"prompt":%s,"completions":[%s]}' % (_packed(prompt).rstrip(b"\n"), b",".join(rows)))
        size += len(packed[-1])
        if size > LINE_BYTES or (len(packed) - 1) * group >= COMPLETIONS:
            packed.pop()
            break
    head = _packed({"kind": "rollouts", "step": line["step"], "time": line["time"], "of": count})[:-2]
    return b'%s,"groups":[%s]}\n' % (head, b",".join(packed))


def _row(columns: Mapping[str, Any], at: int) -> dict[str, Any]:
    row: dict[str, Any] = {name: each[at] for name, each in columns.items() if not name.startswith("reward:")}
    rewards = {name[len("reward:"):]: each[at] for name, each in columns.items() if name.startswith("reward:")}
    return {**row, **({"rewards": rewards} if rewards else {})}


def _run_length(prompts: Sequence[Any], count: int) -> int:
    """The completions per prompt where nobody says it: by the number of prompts, else how often the first repeats."""
    if 0 < len(prompts) < count:
        return max(1, count // len(prompts))
    return next((at for at, prompt in enumerate(prompts) if prompt != prompts[0]), len(prompts)) or 1


def _packed(value: Any) -> bytes:
    """A line of JSON. NaN and infinities are texts, because JSON has no such numbers."""
    return (json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it: numbers of other libraries as Python's, what is no JSON as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if depth > 20:
        return str(type(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, depth + 1) for each in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return _plain(value.tolist(), depth + 1)
    if hasattr(value, "__float__"):
        return _plain(float(value), depth + 1)
    return str(value)


def _listed(value: Any) -> Any:
    """A tensor or an array as a list, now: its owner may change it as soon as the call returns."""
    if isinstance(value, Mapping):
        return {str(key): _listed(each) for key, each in value.items()}
    return value.tolist() if hasattr(value, "tolist") else list(value) if isinstance(value, (list, tuple)) else value


# ---------------------------------------------------------------- files


class _Files:
    """Writes lines into the files of one run, `spool/TIME-WRITER-NUMBER.jsonl`, a new one every SEGMENT_BYTES.

    The lab deletes the files that it has read. Where it does not run, they grow up to SPOOL_BYTES."""

    def __init__(self, folder: Path):
        self.folder, self.spool = folder, folder / "spool"
        self._prefix, self._number, self._size = f"{int(time.time() * 1000):013d}-{secrets.token_hex(4)}", 0, 0
        self._file: Any = None
        self._dropped: Counter[str] = Counter()
        self._checked, self._full = 0.0, 0.0  # when the disk's share was last looked at, and what it was
        self._flushed = 0.0

    def begin(self, about: Mapping[str, Any]) -> None:
        self.spool.mkdir(parents=True, exist_ok=True)
        path = self.folder / "run.json"
        if not path.exists():
            part = path.with_suffix(f".{secrets.token_hex(4)}.part")
            part.write_bytes(_packed(about))
            part.replace(path)
        self.write(_packed(about), "run")
        self.flush(True)

    def write(self, text: bytes, kind: str) -> None:
        """Add a line; where the disk's share is used up it is counted and dropped, completions at half of that."""
        if self._share() > (0.5 if kind == "rollouts" else 1.0) and kind not in ("run", "end"):
            self._dropped[kind] += 1
            return
        if self._dropped:
            lost, self._dropped = self._dropped, Counter()
            self.write(_packed({"kind": "dropped", "time": time.time(), "counts": dict(lost), "why": (
                "the lab has not read what waits on the disk")}), "end")
        if self._file is None or self._size > SEGMENT_BYTES:
            self._next()
        self._file.write(text)
        self._size += len(text)

    def _next(self) -> None:
        if self._file:
            self._file.close()
        self._file = (self.spool / f"{self._prefix}-{self._number:05d}.jsonl").open("ab")
        self._number, self._size = self._number + 1, 0

    def _share(self) -> float:
        """How much of SPOOL_BYTES is used, looked at every few seconds."""
        if time.monotonic() - self._checked > 2.0:
            with suppress(OSError):
                self._full = sum(each.stat().st_size for each in self.spool.iterdir()) / SPOOL_BYTES
            self._checked = time.monotonic()
        return self._full

    def flush(self, idle: bool) -> None:
        """Hand the lines to the system, and ring: the lab looks at the time of one folder to see that any run wrote."""
        now = time.monotonic()
        if idle or now - self._flushed > 0.5:
            self._file.flush()
            self._flushed = now
            self.ring()

    def ring(self) -> None:
        with suppress(OSError):
            os.utime(self.folder.parent)

    def beat(self) -> None:
        with suppress(OSError):
            os.utime(self.folder / "run.json")
        self.ring()

    def close(self) -> None:
        self._file.close()
        self.ring()


def _writer(run_id: str, home: str | None, url: str | None, token: str | None) -> _Files:
    if not re.fullmatch(r"\w(?:[\w.-]*[\w-])?", run_id) or len(run_id) > 120:
        raise ValueError(f"run_id {run_id[:80]!r} must have letters, digits, _, - and dots inside, and at most 120")
    root = Path(home or os.environ.get("RL_LAB_HOME") or "runs").absolute()
    return _Files(root / "watched" / run_id)


def _slug(name: Any) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")[:40] or "run"


def _first_rank() -> bool:
    """True in the process of a distributed run that speaks for all of them."""
    return next((os.environ[key] for key in ("RANK", "LOCAL_RANK") if key in os.environ), "0") == "0"
