"""Models of the Hugging Face hub: those in the cache of this machine, and fetching one into it. Imports no torch."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from labcore.catalog.amounts import size
from labcore.errors import LabError, quoted
from labcore.runs.files.adapters import is_adapter
from labcore.runs.files.hub import Repo, Unreachable, errors_in_words
from labcore.runs.files.paths import path_of
from labcore.runs.files.untrusted import NotJSON, read_json

# ---------------------------------------------------------------- hub download
# Download files of a model into the hub's cache: with progress, and from where an earlier try ended.
#
# huggingface_hub begins a file anew whenever its process ended. So a large file is written to `blobs/<etag>.partial`
# here, in the cache's own layout, and the client only links it. Another process that wants the same file waits for the
# client's lock.

LARGE = 2**23  # bytes from which on it is worth resuming a file
MB = 10**6
Report = Callable[[str, int, int], object]  # as `labcore.runs.spec.activity.report`
_ETAG = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256 = 64  # letters of an etag that is the content's SHA-256


@dataclass(frozen=True)
class File:
    """A file of a repository, and its bytes."""

    name: str
    size: int


def download(repo: str, commit: str, files: Sequence[File], cache: Path, report: Report) -> None:
    """Download `files` of a repository at a commit; `report` is called with the progress. The errors are those of
    huggingface_hub. Raises LabError if the disk has not enough space, or a resumed file is damaged."""
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
        raise LabError(f"The model {repo} needs {size(needed)} more, and the disk of {cache} has "
                       f"{size(free)} free: free some space, or set HF_HOME to a folder on another disk.")


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
    if etag is None or not _ETAG.fullmatch(etag):  # it will be a file's name; the client raises the error
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
        http_get(url, _Counted(opened, progress), resume_size=resumed,  # type: ignore[arg-type]  # it only writes
                 headers=headers, expected_size=file.size, tqdm_class=silent_tqdm)
    if resumed and len(blob.name) == _SHA256 and _sha256(partial) != blob.name:
        partial.unlink()
        raise LabError(f"The file {file.name} was damaged when its download was resumed: download it again.")
    partial.replace(blob)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---------------------------------------------------------------- hub models

CONFIG = "config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
DESCRIBING = ("*.json", "*.model", "*.txt", "*.jinja")
WEIGHTS = "*.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
INDEX = "model.safetensors.index.json"  # of weights in several files
_WRITES = ("ForCausalLM", "LMHeadModel")  # how the classes of models that write text are called


@dataclass(frozen=True)
class Cached:
    """A model in the hub's cache, its folder and the bytes it takes."""

    name: str
    folder: Path
    bytes: int


def cached() -> list[Cached]:
    """The models in the hub's cache that are complete and write text, by name."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        repos = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return []
    found = []
    for repo in repos:
        main = repo.refs.get("main") if repo.repo_type == "model" else None
        if main and complete(main.snapshot_path) and _writes(main.snapshot_path):
            found.append(Cached(repo.repo_id, main.snapshot_path, main.size_on_disk))
    return sorted(found, key=lambda each: each.name.lower())


def here(name: str) -> Path | None:
    """The folder of a model of the hub in the cache, where it is complete."""
    from huggingface_hub import constants, try_to_load_from_cache  # a third of a second
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, CONFIG, cache_dir=constants.HF_HUB_CACHE)
    except HFValidationError:
        return None
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and complete(folder) else None


def complete(folder: Path) -> bool:
    """True if a folder has all that a model is loaded from: configuration, tokenizer and all of its weights."""
    named = (folder / CONFIG).is_file() and any((folder / name).is_file() for name in TOKENIZER_FILES)
    return (named or is_adapter(folder)) and _whole_weights(folder)


def local(said: str) -> Path:
    """The folder of a model that the user names, after a check that it has all files from which the model is loaded.
    Raises LabError if there is no such folder, or a file is missing."""
    folder = path_of(os.path.expanduser(said.strip()))
    if not folder.is_dir():
        raise LabError(f"There is no folder {quoted(said.strip())} on this machine: give the folder that holds a "
                       "model's config.json.")
    if not complete(folder):
        raise LabError(f"The folder {folder} is not a complete model: it needs config.json, a tokenizer such as "
                       "tokenizer.json, and all of its safetensors.")
    return folder.resolve()


def _whole_weights(folder: Path) -> bool:
    index = _json(folder / INDEX).get("weight_map")
    if isinstance(index, dict):
        return all((folder / str(name)).is_file() for name in index.values())
    return any(folder.glob(WEIGHTS))


def _writes(folder: Path) -> bool:
    return any(str(name).endswith(_WRITES) for name in _json(folder / CONFIG).get("architectures") or ())


def _json(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path, constants=True) if path.is_file() else {}
    except (LabError, NotJSON, OSError):  # said where the model is loaded
        return {}
    return found if isinstance(found, dict) else {}


def fetch(name: str, report: Report, weights: bool = True, check: Callable[[Path], None] | None = None) -> Path:
    """The folder of a model of the hub, downloaded if the cache does not hold it. Neither pickle nor code is ever
    downloaded, and without `weights` only the files that describe the model. `report` is called with the progress.
    `check` is called with the folder when only config.json is there, and may refuse the model. Raises LabError if there
    is no such model, it is not open to the user, has no safetensors, or cannot be downloaded; the message says what to
    do."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    cache = Path(constants.HF_HUB_CACHE)
    disable_progress_bars()
    with errors_in_words(Repo(name, "model", "give a local folder", str(cache), "HF_HOME")):
        folder = Path(snapshot_download(name, allow_patterns=[CONFIG], cache_dir=cache))
        if check and (folder / CONFIG).is_file():
            check(folder)
        missing = _missing(name, folder, weights, cache)
        try:
            download(name, folder.name, missing, cache, report)
        except OSError as error:  # out of reach: a model that is complete does without other files
            if error.errno is not None or not complete(folder):
                raise
    return folder


def _missing(name: str, folder: Path, weights: bool, cache: Path) -> list[File]:
    """The files of a model that are wanted and not in its folder. Raises LabError where none of them can be known, or
    there are no safetensors."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        tree = get_cached_repo_tree(name, revision=folder.name, cache_dir=cache)
    except CachedRepoTreeNotFoundError as error:  # the hub was not asked: it is out of reach
        if complete(folder) or not weights:
            return []
        raise Unreachable(f"The model {name} is only in part on this machine, and the hub could not be reached: "
                          "connect to the network, or give a local folder.") from error
    files = [File(each.path, each.size) for each in tree if "/" not in each.path]
    wanted = [file for file in files if _matches(file, *DESCRIBING, *([WEIGHTS] if weights else []))]
    if weights and not any(_matches(file, WEIGHTS) for file in wanted):
        raise _no_weights(name, files)
    return [file for file in wanted if not (folder / file.name).is_file()]


def _matches(file: File, *patterns: str) -> bool:
    return any(fnmatch(file.name, pattern) for pattern in patterns)


def _no_weights(name: str, files: list[File]) -> LabError:
    pickles = [file.name for file in files if _matches(file, *PICKLES)]
    why = f", only pickles ({pickles[0]}), which can run any code" if pickles else ""
    return LabError(f"The model {name} has no safetensors weights on the hub{why}: choose another model.")
