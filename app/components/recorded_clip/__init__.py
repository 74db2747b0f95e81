"""Home's clip: a real run that was recorded by `python -m docs.record_clip`, played in the browser."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from app.components.component import Component
from labcore.catalog.metrics import METRICS
from labcore.runs.spec.run_spec import RunSpec, default_threads, make

HERE = Path(__file__).parent
CLIP = Component(HERE)


@cache
def content() -> dict[str, Any]:
    """The recording; see `docs/record_clip.py`."""
    clip: dict[str, Any] = json.loads((HERE / "clip.json").read_text(encoding="utf-8"))
    return clip


def spec() -> RunSpec:
    """The run of the recording, to be made again."""
    run = content()["run"]
    return make(algorithm_key=run["algorithm"], task_key=run["task"], model=run["model"], seed=run["seed"],
                steps=run["steps"], threads=default_threads(run["model"]))


def recorded_clip(key: str) -> None:
    """Mount the clip; it plays by itself, unless the system asks for little motion."""
    clip = content()
    metric = METRICS[clip["metric"]]
    CLIP(key=key, data={**clip, "title": metric.label, "unit": metric.unit, "digits": 2})
