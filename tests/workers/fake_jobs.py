"""Jobs that take no time, fail, break, or never end."""

import os
import time
from pathlib import Path
from typing import Any

from labcore.errors import LabError
from labcore.runs.jobs import JOBS, root

NAMES = ("total", "refuse", "broken", "sleep")


def install() -> None:
    JOBS.update({name: f"tests.workers.fake_jobs:{name}" for name in NAMES})


def total(spec: dict[str, Any]) -> dict[str, Any]:
    with Path(os.environ["FAKE_COUNT"]).open("a") as file:  # so that a test sees how often it was done
        file.write("x")
    return {"sum": sum(spec["numbers"])}


def refuse(spec: dict[str, Any]) -> dict[str, Any]:
    raise LabError("The number 13 is not wanted here: give another one.")


def broken(spec: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": 1 / spec["by"]}


def sleep(spec: dict[str, Any]) -> dict[str, Any]:
    root().joinpath(f"pid-{spec['who']}").write_text(str(os.getpid()))
    time.sleep(60)
    return {}
