"""Models of the Hugging Face hub: those in the cache of this machine, and fetching one into it. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from labcore.errors import LabError, quoted
from labcore.files.adapters import is_adapter
from labcore.files.given import NotJSON, read_json
from labcore.files.hub import Repo, Unreachable, errors_in_words
from labcore.files.hub_download import File, Report, download
from labcore.files.paths import path_of

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
    """Whether a folder has all that a model is loaded from: configuration, tokenizer and all of its weights."""
    named = (folder / CONFIG).is_file() and any((folder / name).is_file() for name in TOKENIZER_FILES)
    return (named or is_adapter(folder)) and _whole_weights(folder)


def local(said: str) -> Path:
    """The folder of a model that the user names, with all that it is loaded from.

    Raises:
        LabError: there is no such folder, or it lacks something.
    """
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
    """The folder of a model of the hub, downloaded where the cache does not hold it: neither pickle nor code is ever
    downloaded, and only what describes the model where its `weights` are not wanted. `report` hears how far it is.
    `check` may refuse the model by its folder, once its config.json is there and before the rest is.

    Raises:
        LabError: there is no such model, it is not open to the user, has no safetensors, or cannot be downloaded; the
            message says what to do.
    """
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
