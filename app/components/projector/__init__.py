"""The projector: one chart or board of the page in full screen, in large type."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from app.components.component import Component

PROJECTOR = Component(Path(__file__).parent)


@dataclass(frozen=True)
class Button:
    """The button on the page, and the key that does the same."""

    label: str
    shortcut: str
    help: str


BUTTON = Button("Projector", shortcut="P", help="One chart or the board in full screen, in large type. ← → step, "
                "↑ ↓ switch to another one, Esc closes it")


def projector(key: str) -> None:
    """Mount the button."""
    PROJECTOR(key=key, data=asdict(BUTTON), width="content")
