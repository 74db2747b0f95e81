"""A job is a pure function of a JSON spec, named by the spec's hash, so that asking twice costs nothing.

`RL_LAB_HOME/jobs/<id>` holds spec.json, and then result.json or error.json, each complete or not there. A program that
wants a result asks the launcher and looks for the file; `compute` computes it in this process. Left out: priorities,
and any state between two jobs.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from labcore.catalog.knob import suggestion
from labcore.errors import LabError, os_reason, quoted
from labcore.runs.faults import disk_full, out_of_memory
from labcore.runs.files import sizes, written
from labcore.runs.files.atomic import write_text
from labcore.runs.files.paths import home, made, named, read_only
from labcore.runs.files.removal import remove
from labcore.runs.files.untrusted import whole

# What a spec's "job" can be: the function that does it, imported only then.
JOBS = {
    "answer": "labcore.llm.probes.answer:answer",
    "quiz": "labcore.llm.probes.answer:quiz",
    "episode": "labcore.llm.probes.answer:episode",
    "best_of_n": "labcore.llm.probes.best_of_n:best_of_n",
    "data_preview": "labcore.llm.probes.data_preview:data_preview",
    "dataset": "labcore.runs.files.datasets:job",
    "download": "labcore.llm.nets.folder:download",
    "first_answers": "labcore.llm.probes.first_answers:first_answers",
    "next_token": "labcore.llm.probes.next_token:next_token",
    "one_batch": "labcore.llm.probes.one_batch:one_batch",
    "action_space": "labcore.llm.probes.action_space:action_space",
    "pairs_to_label": "labcore.llm.probes.pairs_to_label:pairs_to_label",
    "pace": "labcore.llm.sizing.pace:pace",
    "models_held": "labcore.llm.measured_cost:models_held",
    "cost": "labcore.llm.measured_cost:measure",
    "sizes": "labcore.llm.sizes:sizes",
    "speed": "labcore.llm.sizes:speed",
    "estimator_bench": "labcore.llm.exact.bench:estimator_bench",
    "merge": "labcore.exports.folder:merge",
    "judge_again": "labcore.analysis.judge_again:judge_again",
}
FETCHING = ("dataset", "download")  # which wait for the network and hardly compute
DOING = "doing.txt"  # in a job's folder: the activity of its process
VERSION = 2  # part of every id: counts up when a job gives another result for the same spec
KEEP, KEEP_BYTES = 200, 64 * 2**20  # ended jobs that stay, at most
_ID = re.compile("[0-9a-f]{16}")
ABANDONED_SECONDS = 86_400.0  # a job takes seconds: one of yesterday without an outcome never gets any

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: its `result`, or else the sentence that says why there is none."""

    result: dict[str, Any] | None
    error: str = ""


def job_id(spec: Spec) -> str:
    """Sixteen hex digits that name this spec."""
    text = json.dumps({**spec, "version": VERSION}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(whole(text).encode()).hexdigest()[:16]


def root() -> Path:
    """Where all jobs are kept; not made here."""
    return home() / "jobs"


def folder(job: str) -> Path:
    """Where the job keeps its files; not made here. Raises LabError where `job` cannot be an id."""
    return named(job, root())


def log_file(job: str) -> Path:
    """The log of a job's worker: its output, and the traceback if it failed."""
    return folder(job) / "worker.log"


def put(spec: Spec) -> str:
    """Write the spec of a job so that a worker can do the job. Returns the job's id. Raises LabError if the spec cannot
    be written, or if the lab is shared for reading and the job has not been done before."""
    job = job_id(spec)
    if ended(job):
        return job
    if not (path := made(folder(job)) / "spec.json").exists():
        try:
            write_text(path, json.dumps(spec, ensure_ascii=False, sort_keys=True))
        except OSError as error:
            raise LabError(f"{path} cannot be written ({os_reason(error)}): free some space, or set RL_LAB_HOME to a "
                           "folder that you may write to.") from error
    return job


def outcome(job: str) -> Outcome | None:
    """The outcome of the job; None while there is none. For a damaged file, a sentence that says so takes the place of
    its error."""
    for name in ("result", "error"):
        try:
            found = written.read(folder(job) / f"{name}.json", dict, "try again, which computes it anew")
        except FileNotFoundError:
            continue
        except written.Damaged as error:
            return Outcome(None, str(error))
        return Outcome(found) if name == "result" else Outcome(None, str(found.get("error")))
    return None


def ended(job: str) -> bool:
    """True if the job has a result or an error."""
    return any((folder(job) / f"{name}.json").exists() for name in ("result", "error"))


def forget(job: str) -> None:
    """Delete the job's files, so that it is done anew at the next request. Does nothing in a lab that is shared for
    reading."""
    if read_only():
        return
    _remove(folder(job))


def fetches(job: str) -> bool:
    """True if a job that was `put` is one of FETCHING."""
    try:
        return _spec(job).get("job") in FETCHING
    except (OSError, LabError):  # the job itself will say so
        return False


def _spec(job: str) -> dict[str, Any]:
    return written.read(folder(job) / "spec.json", dict, "try again")


def say(job: str, doing: str) -> None:
    """Store the activity of a job's process, for the pages that wait for the job."""
    write_text(folder(job) / DOING, doing)


def doing(job: str) -> str:
    """The activity of an unfinished job; empty if it has not reported one yet."""
    try:
        return (folder(job) / DOING).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def unsay(job: str) -> None:
    """Delete the stored activity of a job's process, which has ended or died."""
    with suppress(OSError):  # a page may be reading it: a sentence that stays does no harm
        (folder(job) / DOING).unlink(missing_ok=True)


def fail(job: str, sentence: str) -> None:
    """Store the reason why the job has no result."""
    write_text(folder(job) / "error.json", json.dumps({"error": sentence}, ensure_ascii=False))
    unsay(job)


def do(spec: Spec) -> dict[str, Any]:
    """The result of `spec`, computed in this process. Raises LabError if there is no such job, or it cannot be done as
    `spec` asks."""
    name = str(spec.get("job"))
    if name not in JOBS:
        raise LabError(f"There is no job {quoted(name)}: {suggestion(name, list(JOBS))}")
    result: dict[str, Any] = resolve_name(JOBS[name])({key: value for key, value in spec.items() if key != "job"})
    return result


def compute(spec: Spec) -> dict[str, Any]:
    """The result of `spec`: the stored one, or one computed now, which is stored if the lab may write.

    Raises LabError as `do`.
    """
    found = outcome(job_id(spec) if read_only() else put(spec))
    if found and found.result is not None:
        return found.result
    result = do(spec)
    if not read_only():
        _keep(job_id(spec), result)
    return result


def perform(job: str) -> None:
    """Do a job that was `put`, and store its result, or the sentence that says why there is none."""
    if ended(job):  # somebody else was faster
        return
    try:
        _keep(job, do(_spec(job)))
    except Exception as error:
        fail(job, _in_words(error, job))


def prune() -> None:
    """Delete the ended jobs that were made longest ago, down to KEEP and KEEP_BYTES, and those left undone."""
    rows = []
    for path in list(root().iterdir()) if root().is_dir() else ():
        if not _ID.fullmatch(path.name):
            continue
        with suppress(FileNotFoundError):  # several processes prune at once
            made_at = max((file.stat().st_mtime for file in path.glob("*")), default=path.stat().st_mtime)
            if ended(path.name):
                rows.append((made_at, sizes.size(path), path))
            elif made_at < time.time() - ABANDONED_SECONDS:
                _remove(path)
    size = 0
    for place, (_, bytes_, path) in enumerate(sorted(rows, reverse=True)):
        size += bytes_
        if place >= KEEP or size > KEEP_BYTES:
            _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):  # several processes may prune at once; the next time deletes the rest
        remove(path, below=root())


def _keep(job: str, result: dict[str, Any]) -> None:
    write_text(folder(job) / "result.json", json.dumps(result, ensure_ascii=False, allow_nan=False))
    (folder(job) / "error.json").unlink(missing_ok=True)
    unsay(job)
    prune()


def _in_words(error: Exception, job: str) -> str:
    """One sentence for the page; what nobody foresaw goes to the job's log in full."""
    if isinstance(error, LabError):
        return str(error)
    if disk_full(error):
        return f"The disk that holds {home()} is full: free some space, then try again."
    if out_of_memory(error):
        return "There was not enough memory: ask for fewer or shorter answers, or for a smaller model."
    with log_file(job).open("a", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    what = next(iter(str(error).splitlines()), "").rstrip(".")[:300]
    return f"Something in the lab broke: {type(error).__name__}: {what}. The details are in {log_file(job)}"
