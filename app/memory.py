"""The fold below the draft with the estimated memory of the next run on this device, part by part, whether it fits, and
the settings to change if not."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import streamlit as st

from app import naming
from app.draft import Draft
from app.jobs import result
from app.tokens import literal
from labcore.catalog.amounts import size as in_bytes
from labcore.errors import LabError
from labcore.llm.sizing import memory, ways
from labcore.llm.sizing.memory import PHASES, Estimate, Part
from labcore.runs import jobs
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import RunSpec

TITLE = "Memory on this device"
KEY = "memory"
KIND = "llm"  # of runs whose memory is estimated
CSS = """
<style>
.rl-table.rl-memory td:nth-child(2){text-align:right;white-space:nowrap;padding-right:18px}
.rl-memory .rl-when td{opacity:.72;padding-top:10px}.rl-memory .rl-sum td{font-weight:600}
.rl-memory .rl-part + .rl-sum td{padding-top:10px}
@media (min-width:641px){.rl-memory .rl-part td:nth-child(3){width:66%}}
</style>"""
COLOURS = {True: "#009E73", None: "#56B4E9", False: "#E69F00"}


def of_draft(draft: Draft) -> None:
    """Draw the fold, and once it is open the table."""
    try:
        spec = draft.spec()
    except LabError:  # the page says why it cannot run
        return
    fold = st.expander(TITLE, key=KEY, on_change="rerun")
    if not fold.open:
        return
    with fold:
        if found := _known(spec) if _asked_above(draft) else _sizes([spec], KEY):
            need = memory.estimate(spec, found[0])
            if need.sure is False:
                need = ways.with_ways(need, _sizes([*ways.others(spec).values()], f"{KEY}_others"))
            _shown(need)


def caution(draft: Draft) -> str:
    """Why the next run may not fit, in a sentence, if its batch is so large that the estimate is computed; usually
    empty.

    Draws the progress of the estimate until it is known.
    """
    if not _asked_above(draft):
        return ""
    spec = draft.spec()
    found = _sizes([spec], KEY)
    need = memory.estimate(spec, found[0]) if found else None
    if need is None or need.fault or need.sure is not False:
        return ""
    return f"{need.verdict()} See “{TITLE}” below for ways to make it fit."


def _asked_above(draft: Draft) -> bool:
    """Whether the sizes are asked for where Run is spoken of, so that the fold only reads them."""
    asks = draft.kind.key == KIND and draft.new and not read_only()
    return asks and not draft.fault() and memory.unusual(draft.spec())


def _known(spec: RunSpec) -> list[Any]:
    """The known sizes of the run; else nothing."""
    found = jobs.outcome(jobs.job_id(memory.asked([spec])))
    return found.result["sizes"] if found and found.result else []


def _sizes(specs: Sequence[RunSpec], view: str) -> list[Any]:
    """The sizes of these runs by the job; empty while it is running."""
    found, there = result(memory.asked(specs), "Counting the sizes", view)
    return found["sizes"] if found and there else []


def follows(draft: Draft) -> bool:
    """True if anything on the page shows the memory, so that it has to follow the knobs."""
    return bool(st.session_state.get(KEY)) or _asked_above(draft)


def _shown(estimate: Estimate) -> None:
    if estimate.fault:
        st.caption(literal(estimate.fault))
        return
    advice = estimate.advice(lambda key: naming.title(key, [estimate.spec]))
    st.html(f'<div class="rl-status"><span class="rl-dot" style="background:{COLOURS[estimate.sure]}"></span>'
            f"<span>{html.escape(f'{estimate.verdict()} {advice}')}</span></div>")
    st.html(f'{CSS}<div class="rl-scroll">{table(estimate)}</div>')
    st.caption(memory.ABOUT)


def table(estimate: Estimate) -> str:
    """The parts by when they are held, their peak, and what is free, as HTML."""
    free = "unknown" if estimate.free is None else in_bytes(estimate.free)
    return ('<table class="rl-table rl-memory"><tbody>' + "".join(_rows(estimate.parts))
            + _row("rl-sum", "Peak", in_bytes(estimate.peak), "") + _row("rl-sum", "Free now", free, "")
            + "</tbody></table>")


def _rows(parts: Sequence[Part]) -> Iterator[str]:
    held = sorted(filter(lambda part: part.size, parts), key=lambda part: PHASES.index(part.when))
    for when, some in groupby(held, lambda part: part.when):
        yield f'<tr class="rl-when"><td colspan="3">{when[0].upper()}{when[1:]}</td></tr>'
        for part in some:
            yield _row("rl-part", part.name, in_bytes(part.size), part.why)


def _row(style: str, *cells: str) -> str:
    return f'<tr class="{style}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
