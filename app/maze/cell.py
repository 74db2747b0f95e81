"""One cell of the maze: its four actions as bars, its values, and its last update as arithmetic. Pure HTML."""

from __future__ import annotations

import html
from typing import Any

from app.maze.drawing import truth
from app.theme import number
from labcore.catalog.amounts import percent, significant
from labcore.classic.envs.maze import ACTIONS, Maze

ARROWS = "↑→↓←"
HINT = "<small>Click a cell to see its actions</small>"  # in the head, so that the charts below it lie higher
CSS = """
<style>
.rl-cell h4{font-size:15px;font-weight:600;margin:0 0 2px;padding:0}
.rl-cell h4 small{float:right;font-size:13px;line-height:inherit;font-weight:400;opacity:.72}
.rl-cell table{width:100%;border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;margin:2px 0 4px}
.rl-cell td,.rl-cell th{border:0;padding:1px 8px 1px 0;line-height:1.5;text-align:right;white-space:nowrap}
.rl-cell th{font-weight:500;opacity:.72;font-size:13px}.rl-cell th:first-child,.rl-cell td:first-child{text-align:left}
.rl-cell{min-height:216px}
.rl-cell .rl-bars{width:100%}.rl-cell .rl-bars div{position:relative;height:21px;min-width:60px}
.rl-cell .rl-bars i{position:absolute;top:4px;bottom:4px;border-radius:2px;background:light-dark(#0072B2,#4FA8E0)}
.rl-cell .rl-bars .rl-less{background:light-dark(#E69F00,#F2B84B)}
.rl-cell .rl-bars u{position:absolute;top:0;bottom:0;width:1px;background:currentColor;opacity:.35}
.rl-cell .rl-first td{font-weight:600}
.rl-cell p{font-size:14px;margin:0 0 2px;line-height:1.45}
.rl-cell .rl-mono{font-size:13px;line-height:1.5;margin:2px 0 0;white-space:pre-wrap;max-height:4.6em;overflow-y:auto}
</style>"""


def panel(maze: Maze, sample: dict[str, Any], picked: int | None) -> str:
    """Everything that the sample knows of the state that was picked, else of the start, as HTML."""
    state = maze.start if picked is None else picked
    assert state is not None, "a maze that runs has a start"
    row, column = maze.place(state)
    cell = maze.cells[row][column]
    pays = f" · reward {number(cell.reward, 2)}" if cell.reward is not None else ""
    head = f"<h4>Row {row + 1}, column {column + 1} · {cell.kind}{pays}{HINT if picked is None else ''}</h4>"
    if cell.kind == "wall":
        return _box(f"{head}<p>Nothing is learnt in a wall. A step into it leaves the agent where it was.</p>")
    if cell.kind in ("goal", "trap"):
        return _box(f"{head}<p>The episode ends here, so its value is 0.</p>")
    if sample["values"][state] is None:
        return _box(f"{head}<p>Nothing is learnt here, because the start does not lead here.</p>")
    return _box(head + _known(sample, state) + _actions(sample, state) + _last(sample, state))


def _box(inner: str) -> str:
    return f'{CSS}<div class="rl-cell">{inner}</div>'


def _known(sample: dict[str, Any], state: int) -> str:
    parts = [f"{html.escape(sample['values_of'])} <b>{significant(sample['values'][state])}</b>"]
    exact, of = truth(sample)
    if exact and (right := exact[state]) is not None:
        parts.append(f"{html.escape(of)} {significant(right)}")
    if sample["visits"]:
        times = sample["visits"][state]
        parts.append(f"{times:,} {'visit' if times == 1 else 'visits'}")
    return f"<p>{' · '.join(parts)}</p>"


def _actions(sample: dict[str, Any], state: int) -> str:
    """A bar for each action: Q where there is one, else the probability."""
    chances, greedy = sample["policy"][state], sample["greedy"][state]
    values = sample["q"][state] if sample["q"] else chances
    low, high = min(0.0, *values), max(0.0, *values)
    span = (high - low) or 1.0
    zero = -low / span
    rows = []
    for action, name in enumerate(ACTIONS):
        value = values[action]
        left, width = (zero + min(value, 0.0) / span) * 100, abs(value) / span * 100
        bar = (f'<u style="left:{zero * 100:.1f}%"></u><i class="{"rl-less" if value < 0 else ""}" '
               f'style="left:{left:.1f}%;width:{width:.1f}%"></i>')
        cells = f"<td>{significant(value)}</td>" if sample["q"] else ""
        rows.append(f'<tr class="{"rl-first" if greedy[action] else ""}"><td title="{name}">{ARROWS[action]}</td>'
                    f'<td class="rl-bars"><div>{bar}</div></td>{cells}<td>{percent(chances[action])}</td></tr>')
    names = "<th>Q(s,a)</th>" if sample["q"] else ""
    return f"<table><tr><th>a</th><th></th>{names}<th>π(a|s)</th></tr>{''.join(rows)}</table>"


def _last(sample: dict[str, Any], state: int) -> str:
    text = sample["last"].get(str(state))
    if not text:
        return '<p class="rl-muted">No update here yet.</p>'
    title = "This sweep" if sample["sweep"] else "Last update"
    return f'<p class="rl-muted">{title}</p><div class="rl-mono">{html.escape(text)}</div>'
