"""Datasets of the Hugging Face hub by their names, `org/name:split` or `org/name:config/split`, as files of the lab.

The hub offers most datasets as Parquet on a branch of its own, which is read without code of the dataset; of others
their own data files are taken. Shards are kept in RL_LAB_HOME/hub. A run reads an upload made from them, with as many
of the first rows as an upload may have.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from labcore.catalog.amounts import size as in_bytes
from labcore.errors import LabError, listed, quoted
from labcore.runs.files import atomic, uploads
from labcore.runs.files.hub import Repo, Unreachable, errors_in_words
from labcore.runs.files.jsonl import LIMIT
from labcore.runs.files.paths import can_be_path, home, made, path_of
from labcore.runs.files.untrusted import NotJSON, read_json

CONVERTED = "refs/convert/parquet"
TYPES = (".parquet", ".jsonl", ".json", ".csv", ".tsv")
USUAL_CONFIGS, USUAL_SPLITS = ("default", "main"), ("train", "test", "validation")
MOST_SHARD = 8 * LIMIT  # bytes that are fetched for a shard that is read in part
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(?::(?:(?P<config>[\w.-]+)/)?(?P<split>[\w.-]+))?")
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Dataset:
    """A dataset as its name says; empty parts are the usual ones."""

    repo: str
    config: str = ""
    split: str = ""


@dataclass(frozen=True)
class Shard:
    """A file of a split on the hub: its path at a revision, and its bytes."""

    config: str
    split: str
    path: str
    size: int


@dataclass(frozen=True)
class Fetched:
    """The upload, and a note: that it has only the first rows, or that it was fetched earlier."""

    path: Path
    note: str = ""


def parse(name: str) -> Dataset | None:
    """The dataset that a name means; None if it is the name of a file here, or can only be one.

    >>> parse("openai/gsm8k:main/test"), parse("data/train.jsonl")
    (Dataset(repo='openai/gsm8k', config='main', split='test'), None)
    """
    found = _NAME.fullmatch(name)
    if not found or (can_be_path(name) and path_of(name).exists()) or name.startswith("."):
        return None
    if any(suffix in (*TYPES, ".gz", ".txt") for suffix in PurePosixPath(found["repo"]).suffixes):
        return None
    return Dataset(found["repo"], found["config"] or "", found["split"] or "")


def job(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `dataset`: {"path", "note"} of the dataset called `name`. Raises LabError as `fetch`."""
    asked = parse(str(spec["name"]))
    if asked is None:
        raise LabError(f"{quoted(spec['name'])} is not a dataset: write org/name, org/name:split or "
                       "org/name:config/split.")
    found = fetch(asked)
    return {"path": str(found.path), "note": found.note}


def fetch(asked: Dataset) -> Fetched:
    """Fetch a dataset. Where the hub cannot be reached, what was fetched before is used. Raises LabError if there is no
    such dataset, it is not open to the user, or cannot be fetched or kept; the message says what to do."""
    parts = (asked.repo.replace("/", "--"), asked.config, asked.split)
    record = home() / "hub" / f"{'--'.join(filter(None, parts))}.json"
    try:
        with errors_in_words(Repo(asked.repo, "dataset", "give a file", str(home()), "RL_LAB_HOME",
                                  ", which is org/name:split")):
            found = _fetch(asked)
            atomic.write_text(record, json.dumps({"path": str(found.path)}))
    except Unreachable as error:
        before = _before(record)
        if before is None:
            raise
        return Fetched(before, f"{str(error).partition(':')[0]}, so what was fetched before is used.")
    return found


def _before(record: Path) -> Path | None:
    """The upload that an earlier fetch made, where it is still here."""
    try:
        path = Path(str(read_json(record)["path"]))
    except (LabError, NotJSON, KeyError, TypeError):
        return None
    return path if path.is_file() and uploads.root() in path.parents else None


def _fetch(asked: Dataset) -> Fetched:
    revision, shards = _shards(asked.repo)
    shards = _of_split(asked, shards)
    if shards[0].size > MOST_SHARD:
        raise LabError(f"The first file of {asked.repo} has {shards[0].size / 2**20:,.0f} MB, above the limit of "
                       f"{MOST_SHARD // 2**20} MB: download it, and give a part of it as a file.")
    some = [shards[0]]
    for shard in shards[1:]:
        if sum(each.size for each in some) + shard.size > LIMIT:
            break
        some.append(shard)
    cache = made(home() / "hub")
    paths = [Path(_api().hf_hub_download(asked.repo, shard.path, repo_type="dataset", revision=revision,
                                         cache_dir=cache)) for shard in some]
    first = some[0]
    config = "" if first.config == USUAL_CONFIGS[0] else first.config
    stem = "-".join(filter(None, (asked.repo.partition("/")[2], config, first.split)))
    suffixes = PurePosixPath(first.path).suffixes
    suffix = "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])
    whole = len(some) == len(shards)
    if len(paths) == 1 and whole and first.size <= LIMIT:
        return Fetched(uploads.keep(f"{stem}{suffix}", paths[0].read_bytes()))
    if suffix != ".parquet":
        size = in_bytes(sum(shard.size for shard in shards))
        raise LabError(f"The split {first.split} of {asked.repo} has {len(shards)} files with {size} that are "
                       "not Parquet: download them, and give a part as a file.")
    content, rows, ended = _joined(paths)
    note = "" if whole and ended else (f"Only the first {rows:,} rows of {asked.repo} are used, because the whole "
                                       "dataset exceeds the lab's limit.")
    return Fetched(uploads.keep(f"{stem}{suffix}", content), note)


def _api() -> Any:
    from huggingface_hub import HfApi  # a third of a second

    return HfApi()


def _shards(repo: str) -> tuple[str | None, list[Shard]]:
    """The data files of a dataset at a revision: as the hub converted them, else its own."""
    from huggingface_hub.errors import EntryNotFoundError, RevisionNotFoundError

    try:
        found = [shard for path, size in _tree(repo, CONVERTED) if (shard := _converted(path, size))]
    except (EntryNotFoundError, RevisionNotFoundError):
        found = []
    if found:
        return CONVERTED, found
    own = [_own(path, size) for path, size in _tree(repo, None) if path.removesuffix(".gz").endswith(TYPES)
           and not PurePosixPath(path).name.startswith((".", "dataset_info"))]
    if not own:
        raise LabError(f"The dataset {repo} has no data files of a type that the lab reads (Parquet, JSON lines, JSON, "
                       "CSV): download it, and give a file of rows.")
    return None, own


def _tree(repo: str, revision: str | None) -> list[tuple[str, int]]:
    """The paths of all files and their sizes, in order."""
    tree = _api().list_repo_tree(repo, recursive=True, revision=revision, repo_type="dataset")
    return sorted((each.path, each.size) for each in tree if hasattr(each, "size"))


def _converted(path: str, size: int) -> Shard | None:
    """A file of the hub's own branch: config/split/0000.parquet; of a large one the split is partial-train."""
    parts = PurePosixPath(path).parts
    if len(parts) != 3 or not path.endswith(".parquet"):
        return None
    return Shard(parts[0], re.sub(r"^partial-|-part\d+$", "", parts[1]), path, size)


def _own(path: str, size: int) -> Shard:
    """A file of the dataset itself, whose name or folder says which split it is of."""
    words = _WORD.findall(path.lower())
    split = next((split for split in (*USUAL_SPLITS, "dev", "valid") if split in words), USUAL_SPLITS[0])
    return Shard("", split, path, size)


def _of_split(asked: Dataset, shards: Sequence[Shard]) -> list[Shard]:
    """The shards of what was asked for. Raises LabError where that is not there, or could be several things."""
    config = _chosen(asked.repo, "configurations", asked.config, [shard.config for shard in shards], USUAL_CONFIGS)
    there = [shard for shard in shards if shard.config == config]
    split = _chosen(asked.repo, "splits", asked.split, [shard.split for shard in there], USUAL_SPLITS[:1])
    return [shard for shard in there if shard.split == split]


def _chosen(repo: str, what: str, wanted: str, there: Sequence[str], usual: Sequence[str]) -> str:
    names = list(dict.fromkeys(there))
    if wanted in names:
        return wanted
    found = next((name for name in usual if name in names), names[0] if len(names) == 1 else None)
    if wanted or found is None:
        example = f"{repo}:{names[0]}/SPLIT" if what == "configurations" else f"{repo}:{names[0]}"
        has = f"has no {quoted(wanted)} among its {what}" if wanted else f"has several {what}"
        raise LabError(f"The dataset {repo} {has} ({listed(names)}): write for example {example}.")
    return found


def _joined(paths: Sequence[Path]) -> tuple[bytes, int, bool]:
    """The rows of Parquet files as one, as many as an upload may have; how many, and whether these are all."""
    import pyarrow
    from pyarrow.parquet import ParquetFile, ParquetWriter

    sink, rows, size, writer = io.BytesIO(), 0, 0, None
    for path in paths:
        for batch in ParquetFile(path).iter_batches(1024, use_threads=False):
            size += batch.nbytes
            if size > LIMIT and rows:
                assert writer
                writer.close()
                return sink.getvalue(), rows, False
            writer = writer or ParquetWriter(sink, batch.schema)
            writer.write_table(pyarrow.Table.from_batches([batch]).cast(writer.schema))
            rows += len(batch)
    if writer:
        writer.close()
    return sink.getvalue(), rows, True
