"""The `Storage` of a lab with an object store."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from labcore.runs.files import storage
from labcore.runs.files.artifacts import cache, changes, deletion, fetch, manifest, object_store, publish, publishers
from labcore.runs.files.artifacts.units import place
from labcore.runs.files.paths import CHECKPOINTS
from labcore.runs.files.storage import Item, Publishing, Result, Storage


class Shared(Storage):
    """Each method is a function of this package."""

    shared = True

    def fetch(self, path: Path | str) -> Path:
        return fetch.bring(path)

    def has(self, path: Path | str, *, sure: bool = False) -> bool:
        return fetch.there(path, sure=sure)

    def fetch_run(self, run_id: str) -> None:
        fetch.bring_run(run_id)

    def fetch_log(self, run_id: str) -> Path:
        return fetch.bring_log(run_id)

    def names(self, folder: Path) -> list[str]:
        run_id = folder.parent.name
        return fetch.checkpoints(run_id) if folder.name == CHECKPOINTS else fetch.files(run_id, folder.name)

    def holds(self, checkpoint: Path, content: bytes) -> bool:
        return manifest.of_bytes(content) in fetch.files_of(place(checkpoint) or "").values()

    def copy_start(self, parent: str, checkpoint: str, run_id: str) -> None:
        fetch.take_along(parent, checkpoint, run_id)

    def changed(self, path: Path, marked: Container[int] = ()) -> None:
        changes.changed(path, marked)

    def deleted(self, path: Path) -> None:
        deletion.deleted(path)

    def publish_now(self, path: Path) -> None:
        publish.now(path)

    def publish(self, runs: Any, chosen: Sequence[str], again: bool) -> Iterator[str]:
        return publishers.by_hand(runs, chosen, again)

    def of_worker(self, runs: Any) -> Publishing:
        return publishers.OfWorker(runs)

    def of_lab(self, runs: Any) -> Publishing:
        return publishers.OfLab(runs)

    def trim(self, runs: Any) -> None:
        object_store.check()
        cache.trim(lambda: publishers.active(runs))

    def lacks(self) -> str:
        url = storage.chosen()
        package = object_store.missing_package(url)
        return f"{package}, which {storage.VARIABLE} ({object_store.shown(url)}) needs" if package else ""

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        return object_store.each(do, items)

    def settings(self) -> list[tuple[str, str, str]]:
        [(name, _, words), bound] = super().settings()
        return [(name, object_store.shown(storage.chosen()), words), bound]
