"""The maze as a picture that can be painted, picked from and played: one canvas, redrawn in place.

Nothing that the browser can do alone asks the server: the newest episode is sent once and played there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import Component

BOARD = Component(Path(__file__).parent)


def maze_board(data: dict[str, Any], key: str, *, on_picked: Callable[[int], None] | None = None,
               on_painted: Callable[[list[tuple[int, int]]], None] | None = None) -> None:
    """Mount the board. `data` is what `app.maze.drawing.board` or `editor` makes.

    `on_picked` gets the state of the cell that was chosen, `on_painted` the (row, column) of every cell of a stroke.
    """
    def picked() -> None:
        if on_picked and (state := st.session_state[key].picked) is not None:
            on_picked(int(state))

    def painted() -> None:
        if on_painted and (cells := st.session_state[key].painted):
            on_painted([(int(row), int(column)) for row, column in cells])

    BOARD(key=key, data=data, on_picked_change=picked, on_painted_change=painted)
