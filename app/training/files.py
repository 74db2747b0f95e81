"""The run's sample and line files, as the worker wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import streamlit as st

from app import link
from app.held import held
from app.link import Param
from labcore.files.paths import run_folder

STEP = {kind: Param(kind, 0, link.whole()) for kind in ("samples", "lines")}  # the step whose file is looked at


def steps_of(run_id: str, kind: str) -> list[int]:
    """The steps that have a file of `kind` ("samples" or "lines"), oldest first."""
    folder = run_folder(run_id) / kind
    return sorted(int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.json"))


def load(run_id: str, kind: str, step: int) -> dict[str, Any] | None:
    """One file, read once: nothing of it is kept. None where it is not there."""
    try:
        return json.loads(_path(run_id, kind, step).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _path(run_id: str, kind: str, step: int) -> Path:
    return run_folder(run_id) / kind / f"step-{step:06d}.json"


def read(run_id: str, kind: str, step: int) -> dict[str, Any] | None:
    """One file, kept for the next time; None where a resumed or deleted run has taken it away since it was listed."""
    path = _path(run_id, kind, step)
    try:
        return _read(str(path), path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@st.cache_data(max_entries=32, show_spinner=False)
def _read(path: str, written: int) -> dict[str, Any]:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def picker(run_id: str, kind: str, title: str, steps: list[int] | None = None) -> dict[str, Any] | None:
    """The newest file (of `steps`, if given), or an earlier one that the user picks; None where there is none yet.

    The link remembers the step; 0 is always the newest.
    """
    steps = steps_of(run_id, kind) if steps is None else steps
    if not steps:
        return None
    options = [0, *reversed(steps)]
    chosen = link.get(STEP[kind])
    shown = held(f"{kind}:{run_id}", chosen if chosen in options else 0)
    st.selectbox(f"{title} step {shown.value or steps[-1]:,}", options, options.index(shown.value), key=shown.key,
                 format_func=lambda step: f"step {step:,}" if step else "the newest", width=190,
                 on_change=lambda: link.put(STEP[kind], shown.taken()))
    return read(run_id, kind, shown.value or steps[-1])
