"""The head above the charts of a run: the sentence that says what it learns, its status line, and the tiles with its
numbers.

All are written by the charts' own message and at the same moment, so that all of them are of one step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from app.components.component import Component

HEAD = Component(Path(__file__).parent)


def run_head(part: Literal["goal", "status", "tiles"], run_id: str, opened: str = "") -> None:
    """Mount a part of a run, empty: the live charts fill it by what `app.training.live` gives them.

    When another run is `opened`, the page is scrolled to where its status line is seen.
    """
    HEAD(key=f"head_{part}", data={"part": part, "run": run_id, "opened": opened})
