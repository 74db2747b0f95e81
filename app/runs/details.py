"""The drawer with everything about one run: its settings, its message, and the tree of forks it is part of."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from app import naming
from app.lab import errors_shown, lab
from app.runs import findings
from app.runs.table import NAMES
from app.session import page_of
from app.status import STATES, duration, name_of, of_steps, volume
from app.theme import metric_text
from app.tokens import literal
from labcore.catalog.knob import shown
from labcore.catalog.metrics import METRICS, OWN
from labcore.runs import places
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import Branch, lineage
from labcore.runs.imports import imported
from labcore.runs.knob_history import KnobHistory
from labcore.runs.lists.entries import IMPORTED, Entry
from labcore.runs.spec.run_spec import RunSpec, knobs_of
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import parent_title, title

INDENT = 22  # pixels of a generation
LONGEST = 200  # characters of a setting that another program has sent


def show(entry: Entry) -> None:
    """Open the drawer."""
    st.dialog(literal(entry.title), position="right", width="medium")(_content)(entry)


@errors_shown()
def _content(entry: Entry) -> None:
    if entry.message:
        said = literal(entry.message) if entry.kind == IMPORTED else _message(lab().store.run(entry.id))
        st.caption(f"{NAMES[entry.state]}: {said}")
    if entry.note:
        st.info(literal(entry.note), icon=":material/edit_note:")
    if entry.kind == IMPORTED:
        _imported(entry)
        return
    _forks(entry)
    _outcome(entry)
    _settings(entry)


def _message(run: RunRow) -> str:
    """Return the run's message, with links to the runs that it waits for: Markdown."""
    found = places.holders(run, places.going(lab().store, [run]))
    return places.waiting_sentence(literal(naming.message(run)), found, lambda other: (
        f"[{literal(title(other))}]({other.spec.kind}?run={other.id})"))


def _outcome(entry: Entry) -> None:
    """Show its results so far, their cost, and the knobs that were turned by hand."""
    summary, rows = entry.summary, []
    if summary.last is not None and (metric := entry.metric):
        best = "" if summary.best is None else f", best {metric_text(metric, summary.best)}"
        rows.append((metric.label, f"{metric_text(metric, summary.last)} at step {summary.step:,}{best}"))
    if entry.seconds:
        rows.append(("took", duration(entry.seconds)))
    if summary.size is not None:
        rows.append(("on disk", volume(summary.size)))
    if entry.sweep:
        rows.append(("sweep", entry.sweep))
    changes = KnobHistory(lab().store.run(entry.id).spec, lab().store.events_after(entry.id)).moves
    rows += [("turned", f"{change.text} at step {change.step:,}") for change in changes]
    if rows:
        st.markdown("**Outcome**")
        st.html(_table(rows))


def _settings(entry: Entry) -> None:
    """Return its settings: those that were chosen, then those at their defaults."""
    spec = lab().store.run(entry.id).spec
    if spec.kind_row.elsewhere:
        _sent(entry, spec)
        return
    rows = [(knob, spec.knobs[knob.key]) for knob in spec.declared]
    moved = [row for row in rows if row[1] != row[0].default]
    st.markdown("**Settings**")
    st.html(_table([("algorithm", spec.row.label), ("task", spec.task_row.label),
                    ("model", naming.model(spec.model)), ("seed", str(spec.seed)),
                    ("steps", of_steps(entry.step, spec.steps)),
                    *([("file", naming.written("data", spec.data))] if spec.data else []),
                    *((knob.title, shown(value)) for knob, value in moved)]))
    with st.expander(f"{len(rows) - len(moved)} settings at their defaults"):
        st.html(_table([(knob.title, shown(value)) for knob, value in rows if (knob, value) not in moved]))
    _places(entry)


def _sent(entry: Entry, spec: RunSpec) -> None:
    """Show who trains a watched run, and the settings that were sent."""
    st.markdown("**Settings**")
    st.html(_table([*([("tool", spec.tool)] if spec.tool else []), ("algorithm", spec.row.label),
                    ("steps", of_steps(entry.step, spec.steps)),
                    *((naming.title(key).removeprefix(OWN), naming.written(key, value)[:LONGEST])
                      for key, value in spec.knobs.items())]))
    _places(entry)


def _places(entry: Entry) -> None:
    """Show the id and the folder."""
    st.markdown("**For commands**")
    st.code(entry.id, language=None)
    st.markdown("**Files**")
    st.code(str(run_folder(entry.id)), language=None, wrap_lines=True)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="rl-table">{cells}</table>'


def _forks(entry: Entry) -> None:
    """The tree, where there is more than the run itself; each of its runs opens by a click."""
    tree = lineage(lab().store, entry.id)
    if len(tree) == 1 and not tree[0].run.spec.parent:
        return
    st.markdown("**Forks**")
    if above := tree[0].run.spec.parent:
        name = parent_title(lab().store, tree[0].run.spec)
        st.caption(f"{literal(title(tree[0].run))} was forked at step {above[1]:,} from {literal(name)}, "
                   "which was deleted.")
    parents = {branch.run.id: branch.run.spec for branch in tree}
    for branch in tree:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"branch:{branch.run.id}"):
            if branch.depth:
                st.html(f'<span class="rl-muted" style="padding-left:{INDENT * (branch.depth - 1) + 6}px">└</span>',
                        width="content")
            name = literal(title(branch.run))
            st.page_link(page_of(branch.run.spec.kind), query_params={"run": branch.run.id},
                         label=f"**{name}**" if branch.run.id == entry.id else name)
            st.html(_words(branch, parents), width="stretch")


def _words(branch: Branch, parents: dict[str, RunSpec]) -> str:
    """Show where a fork left its parent, what differs since, and its result."""
    run, colour, state = branch.run, STATES[branch.run.state][0], name_of(branch.run)
    parts = []
    if branch.depth and run.spec.parent:
        parts = [f"from step {branch.step:,}", *differences(parents[run.spec.parent[0]], run.spec, branch.step)]
    parts.append(f"{state.lower()} at step {run.step:,}")
    return (f'<span class="rl-status"><span class="rl-dot" style="background:{colour}"></span>'
            f'<span class="rl-muted">{html.escape(" · ".join(parts))}</span></span>')


def differences(parent: RunSpec, child: RunSpec, step: int) -> list[str]:
    """Return the changes of a fork: "β 0.04 → 0.2" against its parent's knobs as they were at `step`."""
    assert child.parent is not None, "a fork"
    before = KnobHistory(parent, lab().store.events_after(child.parent[0])).at(step)
    found = [f"{parent.row.label} → {child.row.label}"] if parent.algorithm != child.algorithm else []
    found += [f"{knob.name} {shown(before[knob.key])} → {shown(child.knobs[knob.key])}"
              for knob in knobs_of(child.row, child.task_row)
              if knob.key in before and before[knob.key] != child.knobs[knob.key]]
    if not child.twin:
        found.append(f"fresh random numbers, seed {child.seed}")
    return found or ["nothing changed"]


def _imported(entry: Entry) -> None:
    """Show which parts of another tool's file were read, and the doctor's findings."""
    run = entry.imported
    assert run is not None, "an entry of this kind has it"
    st.caption(f"Imported from {literal(run.file)}. You can compare it with other runs on the page Compare.")
    if entry.summary.last is not None and (metric := entry.metric):
        st.markdown(f"{metric.label} **{metric_text(metric, entry.summary.last)}** at step {entry.step:,}.")
    st.markdown("**Imported columns**")
    st.html(_table([(METRICS[key].label if key in METRICS else key, column) for key, column in run.mapped.items()]))
    if run.left:
        st.markdown("**Not imported (the source file is kept)**")
        st.html(_table([(why, ", ".join(columns)) for why, columns in imported.by_reason(run.left).items()]))
    for line in findings.lines(run):
        st.markdown(line)
