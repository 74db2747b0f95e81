"""Recorded numbers of other libraries, `tests/golden`."""

import json
from pathlib import Path
from typing import Any


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text("utf-8"))
