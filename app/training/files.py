"""The run's sample and line files, as the worker wrote them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from app.lab import in_words
from labcore.runs.files import step_files
from labcore.runs.files.step_files import path_of, steps_of
from labcore.runs.files.written import Damaged

__all__ = ["holds", "load", "newest", "of_groups", "of_step", "path_of", "read", "steps_of", "written"]


def load(run_id: str, kind: str, step: int) -> dict[str, Any] | None:
    """One file, which is not cached. None if it does not exist or is damaged; `read` also shows a message about
    damage."""
    try:
        return _parsed(path_of(run_id, kind, step))
    except (FileNotFoundError, Damaged):
        return None


def read(run_id: str, kind: str, step: int) -> dict[str, Any] | None:
    """One file, cached for the next time. None if it was removed since it was listed, because its run was resumed or
    deleted, or if it is damaged, which a message says."""
    path = path_of(run_id, kind, step)
    try:
        return _read(str(path), path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None
    except Damaged as error:
        st.caption(f":orange[:material/warning:] {in_words(error)}")
        return None


def holds(run_id: str, kind: str, step: int, key: str) -> bool:
    """True if a file has a list of objects under `key`. Searches the text, because parsing takes five times as long."""
    path = path_of(run_id, kind, step)
    try:
        return _holds(str(path), path.stat().st_mtime_ns, key)
    except (FileNotFoundError, Damaged):
        return False


@st.cache_data(max_entries=2048, show_spinner=False)
def _holds(path: str, changed: int, key: str) -> bool:
    return f'"{key}": [{{'.encode() in step_files.content(Path(path))  # within a text, quotes are escaped


def written(run_id: str, kind: str, step: int) -> int:
    """The time at which a file was written, nanoseconds; 0 where it is not there."""
    try:
        return path_of(run_id, kind, step).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@st.cache_data(max_entries=32, show_spinner=False)
def _read(path: str, changed: int) -> dict[str, Any]:
    return _parsed(Path(path))


def _parsed(path: Path) -> dict[str, Any]:
    """The content of a file. Raises Damaged where it is not what a worker wrote."""
    return step_files.read(path, "the page skips this step")


def of_step(found: int, step: int) -> str:
    """The step of a file in words, where the page shows `step`.

    >>> of_step(75, 75), of_step(75, 77)
    ('Step 75', 'Step 75, the nearest before step 77')
    """
    return f"Step {found:,}" + (f", the nearest before step {step:,}" if found != step else "")


def of_groups(samples: Mapping[str, Any]) -> str:
    """The number of groups of its batch that a file holds; empty where these are all, or an older file does not say.

    >>> of_groups({"groups": [{}] * 8, "batch_groups": 32}), of_groups({"groups": [{}], "batch_groups": 1})
    ('8 of 32 groups (with signal first)', '')
    """
    kept, batch = len(samples.get("groups") or ()), samples.get("batch_groups", 0)
    return f"{kept:,} of {batch:,} groups (with signal first)" if kept < batch else ""


def newest(run_id: str, kind: str, step: int) -> dict[str, Any] | None:
    """The file of `step`, or the nearest earlier one; None where there is none."""
    steps = steps_of(run_id, kind)
    for found in reversed(steps[:bisect_right(steps, step)]):
        if (content := read(run_id, kind, found)) is not None:
            return content
    return None
