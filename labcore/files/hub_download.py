"""Download files of a model into the hub's cache: with progress, and from where an earlier try ended.

huggingface_hub begins a file anew whenever its process ended. So a large file is written to
`blobs/<etag>.partial` here, in the cache's own layout, and the client only links it. Another process that wants the
same file waits for the client's lock.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from labcore.errors import LabError

LARGE = 2**23  # bytes from which on it is worth resuming a file
MB = 10**6
Report = Callable[[str, int, int], object]  # as `labcore.spec.activity.report`
_ETAG = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256 = 64  # letters of an etag that is the content's SHA-256


@dataclass(frozen=True)
class File:
    """A file of a repository, and its bytes."""

    name: str
    size: int


def download(repo: str, commit: str, files: Sequence[File], cache: Path, report: Report) -> None:
    """Download `files` of a repository at a commit; `report` hears how far it is. The errors are those of
    huggingface_hub.

    Raises:
        LabError: the disk has not enough space, or a resumed file is damaged.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()  # `report` says it
    blobs = _folder(repo, cache) / "blobs"
    _check_space(repo, sum(file.size for file in files) - sum(path.stat().st_size for path in _partials(blobs)), cache)
    whole, before = sum(file.size for file in files), 0
    for file in sorted(files, key=lambda each: each.size):
        progress = _Progress(report, repo, before, whole)
        progress.say(0)
        if file.size >= LARGE:
            _blob(repo, commit, file, cache, progress)
        hf_hub_download(repo, file.name, revision=commit, cache_dir=cache)
        before += file.size
        _Progress(report, repo, before, whole).say(0)


def _folder(repo: str, cache: Path) -> Path:
    from huggingface_hub.file_download import repo_folder_name

    return cache / repo_folder_name(repo_id=repo, repo_type="model")


def _partials(blobs: Path) -> list[Path]:
    return [*blobs.glob("*.partial")]


def _check_space(repo: str, needed: int, cache: Path) -> None:
    there = next(path for path in (cache, *cache.parents) if path.exists())
    if (free := shutil.disk_usage(there).free) < needed:
        raise LabError(f"The model {repo} needs {needed / MB:,.0f} MB more, and the disk of {cache} has "
                       f"{free / MB:,.0f} MB free: free some space, or set HF_HOME to a folder on another disk.")


@dataclass(frozen=True)
class _Progress:
    """Reports bytes of a file after those `before` it, of the `whole` download."""

    report: Report
    repo: str
    before: int
    whole: int

    def say(self, done: int) -> None:
        self.report(f"downloading {self.repo}: {{}} of {{}} MB",  # the client refuses names with braces
                    (self.before + done) // MB, -(-self.whole // MB))


class _Counted:
    """A file opened for appending that says how large it is."""

    def __init__(self, file: IO[bytes], progress: _Progress) -> None:
        self._file, self._progress = file, progress

    def write(self, chunk: bytes) -> int:
        """Append, and report."""
        written = self._file.write(chunk)
        self._progress.say(self._file.tell())
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _blob(repo: str, commit: str, file: File, cache: Path, progress: _Progress) -> None:
    """Complete the blob of a file, so that the client finds it there."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import WeakFileLock

    url = hf_hub_url(repo, file.name, revision=commit)
    etag = get_hf_file_metadata(url).etag
    if etag is None or not _ETAG.fullmatch(etag):  # it is to be a file's name; the client says what is wrong
        return
    blob = _folder(repo, cache) / "blobs" / etag
    lock = cache / ".locks" / _folder(repo, cache).name / f"{etag}.lock"
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if not blob.exists():
            _complete(blob, url, file, progress)


def _complete(blob: Path, url: str, file: File, progress: _Progress) -> None:
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers
    from huggingface_hub.utils.tqdm import silent_tqdm

    partial = blob.with_name(f"{blob.name}.partial")
    if partial.exists() and partial.stat().st_size > file.size:
        partial.unlink()
    with partial.open("ab") as opened:
        resumed = opened.tell()
        # Compressed, a part would not fit to the part that is there.
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        http_get(url, _Counted(opened, progress), resume_size=resumed,  # type: ignore[arg-type]
                 headers=headers, expected_size=file.size, tqdm_class=silent_tqdm)
    if resumed and len(blob.name) == _SHA256 and _sha256(partial) != blob.name:
        partial.unlink()
        raise LabError(f"The file {file.name} was damaged when its download was resumed: download it again.")
    partial.replace(blob)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
