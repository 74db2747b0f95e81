"""Edit the maze of a draft: paint it, resize it, change its rules, save and load it. Every change can be undone.

A preset that is changed becomes `own`, whose maze is the knob `maze`: so it goes into the link and into the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from app import number_boxes
from app.components.maze_board import maze_board
from app.draft import Draft
from app.maze import drawing
from app.session import show_error
from labcore.classic.envs.maze import CELL_REWARDS, MAX_SIDE, Cell, Maze
from labcore.classic.envs.maze_presets import build
from labcore.classic.envs.maze_text import SIGNS, from_json, to_json, to_text, unfinished
from labcore.errors import LabError

OWN = "own"
BRUSHES = {"#": "Wall", ".": "Free", "S": "Start", "G": "Goal", "T": "Trap", "R": "Reward"}
CHANGED = "maze_changed"
MOST_UNDONE = 200
LARGEST_PAY = 1e6
LARGEST_FILE = 100_000  # bytes
FORM = '{"rows": ["S..", ".TG"]} is enough: . free, # wall, S start, G goal, T trap, R reward cell.'


def maze_of(draft: Draft) -> Maze:
    """The draft's maze, which may have no start or no goal yet. Raises LabError if its text cannot be read, or its
    knobs do not go together."""
    return unfinished(str(draft.values["maze"])) if draft.fields["task"] == OWN else build(draft.task_row, draft.values)


def painted(maze: Maze, cells: list[tuple[int, int]], sign: str, pay: float | None) -> Maze:
    """The maze after a stroke of the brush. A stroke that begins on a cell of its own sign clears cells."""
    row, column = cells[0]
    there = Cell(SIGNS[sign], pay)
    if sign != "S" and maze.cells[row][column] == there:
        there = Cell()
    for row, column in cells:
        maze = maze.paint(row, column, there.kind, there.reward)
    return maze


def resized(maze: Maze, height: int, width: int) -> Maze:
    """The maze with rows and columns added at the bottom and the right, or cut off there."""
    rows = [(line + (Cell(),) * width)[:width] for line in maze.cells] + [(Cell(),) * width] * height
    return replace(maze, cells=tuple(rows[:height]))


def show(draft: Draft) -> None:
    """Tools, board and rules."""
    try:
        maze = maze_of(draft)
    except LabError:
        _files(draft, None)  # the form says what is wrong with the maze
        return
    brush = _tools(draft)
    left, right = st.columns([1.15, 1], gap="medium")
    with left:
        pay = brush.get(brush["sign"])
        maze_board(drawing.editor(maze, f"edit {draft.scope}", brush["sign"], pay), key="maze_board",
                   on_painted=_change(draft, lambda now, cells: painted(now, cells, brush["sign"], pay)))
    with right:
        _rules(draft, maze)
        _files(draft, maze)


def _tools(draft: Draft) -> dict[str, Any]:
    """The brushes, and undo. Returns the chosen brush: its sign, and the pay of each sign that has one."""
    own = {"G": CELL_REWARDS["goal"], "T": CELL_REWARDS["trap"], "R": CELL_REWARDS["reward"]}
    brush: dict[str, Any] = st.session_state.setdefault("maze_brush", {"sign": "#", **own})

    def chosen() -> None:
        brush["sign"] = st.session_state["brush"]

    past, future = _history(draft)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="maze_tools"):
        st.segmented_control("Paint", list(BRUSHES), format_func=BRUSHES.__getitem__, default=brush["sign"],
                             required=True, key="brush", on_change=chosen,
                             help="Click or drag on the maze, or move with the arrow keys and press Enter. A stroke "
                                  "that begins on a cell of the same kind clears cells.")
        if brush["sign"] in brush:
            sign = str(brush["sign"])
            number_boxes.number("maze_brush", "pay", "Reward", brush[sign], (-LARGEST_PAY, LARGEST_PAY),
                                lambda pay: brush.update({sign: pay}), help="Reward of a step that ends in the cell.",
                                step=1.0, width=130)
        for name, icon, stack, other in (("Undo", "undo", past, future), ("Redo", "redo", future, past)):
            st.button(name, icon=f":material/{icon}:", disabled=not stack, key=f"maze:{name}", on_click=_move,
                      args=(draft, stack, other))
    return brush


def _rules(draft: Draft, maze: Maze) -> None:
    """Size and rules of the maze; a maze that has its size from a knob has it there."""
    if "height" not in draft.of_task():
        rows, columns = st.columns(2, gap="small", wrap=False)
        with rows:
            _number(draft, "Rows", maze.height, 1, MAX_SIDE, lambda now, value: resized(now, value, now.width))
        with columns:
            _number(draft, "Columns", maze.width, 1, MAX_SIDE, lambda now, value: resized(now, now.height, value))
    slip, pays = st.columns(2, gap="small", wrap=False)
    with slip:
        _number(draft, "Slip", maze.slip, 0.0, 0.99, lambda now, value: replace(now, slip=value), 0.05,
                "Probability that a step goes to the left or the right of the chosen direction. Higher: traps are "
                "dangerous from further away.")
    with pays:
        _number(draft, "Step reward", maze.step_reward, -LARGEST_PAY, LARGEST_PAY,
                lambda now, value: replace(now, step_reward=value), 0.1,
                "Reward of a step into a plain cell. Lower: shorter paths. Zero: only the discount γ makes paths "
                "short.")


def _number(draft: Draft, title: str, value: float, low: float, high: float, change: Callable[[Maze, Any], Maze],
            step: float = 1, help: str = "") -> None:
    number_boxes.number(draft.scope, title.replace(" ", "_"), title, type(low)(value), (low, high),
                        _change(draft, change), help=help, step=step)


def _files(draft: Draft, maze: Maze | None) -> None:
    """Save it as a file, or load one."""
    key = f"maze_file:{draft.scope}"

    def loaded() -> None:
        if (file := st.session_state[key]) is None:
            return
        _change(draft, _read)(file)
        if draft.fields["task"] == OWN:
            draft.values["gamma"] = maze_of(draft).gamma

    with st.container(horizontal=True, gap="small"):
        if maze:
            saved = to_json(replace(maze, gamma=float(draft.values["gamma"])))
            st.download_button("Save", saved, "maze.json", "application/json", icon=":material/download:",
                               on_click="ignore", help="The maze as a JSON file")
        with st.popover("Load", icon=":material/upload:", help="A maze from a JSON file"):
            st.file_uploader("A maze as JSON", type=["json", "txt"], key=key, on_change=loaded, help=FORM)


def _read(now: Maze, file: UploadedFile) -> Maze:
    if file.size > LARGEST_FILE:
        raise LabError(f"{file.name} has {file.size:,} bytes, more than any maze needs. Choose a file that Save wrote.")
    return from_json(file.getvalue().decode("utf-8", "replace"))


# ---- changes -------------------------------------------------------------------------------------------------------

Given = TypeVar("Given")  # by the user: a number, cells, a file
Place = tuple[str, str]  # a task, and the text of the maze where it is `own`


def _history(draft: Draft) -> tuple[list[Place], list[Place]]:
    """The mazes to undo to and to redo to, the latest last."""
    history: tuple[list[Place], list[Place]] = st.session_state.setdefault(f"maze_history:{draft.scope}", ([], []))
    return history


def _here(draft: Draft) -> Place:
    own = draft.fields["task"] == OWN
    return draft.fields["task"], str(draft.values["maze"]) if own else ""


def _put(draft: Draft, place: Place) -> None:
    """Replace the draft's maze by an earlier or a new one, and keep the knobs of the algorithm."""
    st.session_state[CHANGED] = True
    task, text = place
    kept = {knob.key: draft.values[knob.key] for knob in draft.row.knobs}
    draft.fields["task"] = task
    if task == OWN:
        draft.values.update({**kept, "maze": text})


def _change(draft: Draft, change: Callable[[Maze, Given], Maze]) -> Callable[[Given], None]:
    """A callback that changes the maze. If the change is not possible, it shows a sentence and changes nothing."""
    def changed(value: Given) -> None:
        st.session_state[CHANGED] = True
        try:
            text = to_text(change(_maze_or_empty(draft), value))
        except LabError as error:
            show_error(str(error))
            return
        here = _here(draft)
        if (OWN, text) == here or (here[0] != OWN and text == to_text(maze_of(draft))):
            return
        past, future = _history(draft)
        past.append(here)
        del past[:-MOST_UNDONE]
        future.clear()
        _put(draft, (OWN, text))
    return changed


def _maze_or_empty(draft: Draft) -> Maze:
    try:
        return maze_of(draft)
    except LabError:
        return Maze(((Cell(),),))


def _move(draft: Draft, stack: list[Place], other: list[Place]) -> None:
    """Undo or redo."""
    if stack:
        other.append(_here(draft))
        _put(draft, stack.pop())
