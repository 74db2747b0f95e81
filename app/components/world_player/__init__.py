"""The player: episodes of the newest and the best policy, drawn and played in the browser from their observations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.components.component import Component

PLAYER = Component(Path(__file__).parent)


def world_player(data: dict[str, Any], key: str) -> None:
    """Mount the player. `data` is what `episodes.payload` makes; the same data again changes nothing."""
    PLAYER(key=key, data=data)
