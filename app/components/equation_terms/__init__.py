"""The terms of an equation: each can be looked at, and lights up its tokens, its chart and its knob."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.components.component import Component

TERMS = Component(Path(__file__).parent)
BOX, WRITTEN = "equation", "equation_written"  # keys of the containers with the component, and with the LaTeX in it


def equation_terms(data: dict[str, Any], key: str) -> None:
    """Mount it in the container BOX, beside the LaTeX in WRITTEN, whose place it takes.

    `data` is what `app.training.term_values.payload` makes.
    """
    TERMS(key=key, data=data)
