"""Draw the pictures of the maze page: before a run the editor, during and after it the board and one of its cells."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import link
from app.components.maze_board import maze_board
from app.draft import Draft
from app.lab import active
from app.link import Param
from app.maze import cell, drawing, editor
from app.training import files
from app.training.feed import Feed
from app.widget_state import widget_state
from labcore.classic.envs.maze import Maze
from labcore.classic.envs.maze_presets import build
from labcore.classic.envs.maze_text import from_text
from labcore.runs.store.rows import RunRow

CELL = Param("cell", None, link.whole())  # the one looked at
LOOK = {key: Param(key, "") for key in ("heat", "arrows", "path")}
COLUMNS = [1.15, 1]
FIRST_SECONDS = 0.2


def scene(draft: Draft) -> None:
    """Draw the page before a run: the editor."""
    st.session_state.pop(editor.CHANGED, None)
    editor.show(draft)


def picture(run: RunRow, feed: Feed, step: int) -> DeltaGenerator | None:
    """The board of a run at a step, and the cell that was picked; once the run has ended, the next one's editor too.

    Returns the container for the curves: under the cell, beside the board.
    """
    if st.session_state.pop(editor.CHANGED, False):
        st.rerun()  # the form beside shows the maze as well
    sample = _sample(run.id, step)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="maze_views"):
        edits = not active(run) and st.toggle("Edit the maze", key=f"edit:{run.id}",
                                              help="Paint the maze of the next run; this one keeps its own")
        view = _view(sample) if sample and not edits else None
    if edits:
        draft = Draft(run, run.spec.kind)
        if sentence := draft.caution():
            st.warning(sentence, icon=":material/wrong_location:")
        editor.show(draft)
        return None
    maze = from_text(sample["maze"]) if sample else build(run.spec.task_row, run.spec.knobs)
    picked = _picked(maze)
    left, right = st.columns(COLUMNS, gap="medium")
    with left:
        maze_board(drawing.board(maze, run.id, sample, view, picked, step * (step < feed.last_step)), key="maze_board",
                   on_picked=lambda state: link.put(CELL, state))
    with right:
        if sample:
            swept = f'<div class="rl-muted">{_words(**sample["sweep"])}</div>' if sample["sweep"] else ""
            st.html(cell.panel(maze, sample, picked) + swept)
        else:
            st.caption("Values, arrows and the path appear here with the first step." if active(run)
                       else "This run ended before its first step.")
    return right


def _sample(run_id: str, step: int) -> dict[str, Any] | None:
    """The picture of a step, or the nearest earlier one."""
    until = time.monotonic() + FIRST_SECONDS * bool(step)
    while (sample := files.newest(run_id, "samples", step)) is None and time.monotonic() < until:
        time.sleep(0.01)  # a step's picture is written just after its row
    return sample


def _picked(maze: Maze) -> int | None:
    """The state of the cell that the link names, if the maze has it."""
    state = link.get(CELL)
    return state if state is not None and state < maze.height * maze.width else None


def _words(number: int, change: float | None, improved: bool) -> str:
    """A sweep in words."""
    largest = f", largest change {change:.3g}" if change is not None else ""
    return f"Sweep {number}{largest}{'; the policy was improved' if improved else ''}."


def _view(sample: dict[str, Any]) -> drawing.View:
    """The look of the board: in the link, and kept while the browser's tab is open."""
    present = {"values": True, "visits": bool(sample["visits"]), "error": bool(drawing.truth(sample)[0])}
    heat = _choice("heat", "Colours", {key: name for key, name in drawing.HEATS.items() if present[key]})
    arrows = _choice("arrows", "Arrows", drawing.ARROWS,
                     "Greedy: the best action, or several if they are equally good. Behaviour: the agent's present "
                     "actions, with exploration; a longer arrow is likelier.")
    return drawing.View(heat, arrows, bool(sample["path"]) and _switch("path", "Path"))


def _kept(field: str, options: Sequence[str]) -> str:
    """A choice of how the board is looked at: the link's, else the one of before, on any page; else the first."""
    kept = st.session_state.setdefault("maze_look", {})
    chosen = next((each for each in (link.get(LOOK[field]), kept.get(field)) if each in options), options[0])
    if kept.get(field) != chosen:
        kept[field] = chosen
    if chosen != options[0] and not link.get(LOOK[field]):  # this page's link does not say it yet
        link.put(LOOK[field], chosen, default=options[0])
    return chosen


def _switch(field: str, title: str) -> bool:
    """A switch, on at first."""
    shown = widget_state(f"look:{field}", _kept(field, ("on", "off")) == "on")

    def switched() -> None:
        st.session_state["maze_look"][field] = chosen = "on" if shown.taken() else "off"
        link.put(LOOK[field], chosen, default="on")

    return st.toggle(title, shown.value, key=shown.key, on_change=switched)


def _choice(field: str, title: str, options: dict[str, str], help: str | None = None) -> str:
    first = next(iter(options))
    shown = widget_state(f"look:{field}", _kept(field, tuple(options)), of=tuple(options))

    def chosen() -> None:
        st.session_state["maze_look"][field] = shown.taken()
        link.put(LOOK[field], shown.value, default=first)

    st.segmented_control(title, list(options), format_func=options.__getitem__, default=shown.value, required=True,
                         key=shown.key, on_change=chosen, help=help, label_visibility="collapsed")
    return str(shown.value)
