"""Show an algorithm as equation and as code: LaTeX with its numbers, and the maths functions that its row names.

The source is read with `ast`, never imported: the page's process must not load torch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import streamlit as st

import labcore
from app import python_code
from app.components.equation_terms import BOX, WRITTEN, equation_terms
from app.training import files, term_values, terms
from app.training.feed import Feed
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.choices import FAMILIES
from labcore.catalog.knob import Value
from labcore.catalog.mix import row as mixed
from labcore.catalog.mix.equation import equation
from labcore.catalog.mix.nearest import parts
from labcore.catalog.mix.summary import summarise
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import RunRow

CODE = Path(labcore.__file__).resolve().parents[1]
MATHS = CODE / "labcore" / "maths"
OF_SFT = ("sft_loss", "answers", "on_policy_share")  # the knobs that change the equation of SFT
MODULES = {family.key: family.module for family in FAMILIES}


@dataclass(frozen=True)
class Source:
    """A function's text and its place in the code."""

    title: str
    file: str
    line: int
    text: str


@cache
def _functions(module: str) -> dict[str, tuple[int, str]]:
    path = CODE / f"{module.replace('.', '/')}.py"
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    return {node.name: (node.lineno, "\n".join(lines[node.lineno - 1:node.end_lineno]))
            for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@cache
def _home_of(name: str, module: str) -> str | None:
    """The module that defines `name`: the family's own, or the one it takes it from."""
    others = sorted(f"labcore.maths.{path.stem}" for path in MATHS.glob("*.py"))
    return next((each for each in (module, *others) if name in _functions(each)), None)


def sources(row: Algorithm, values: Mapping[str, Value]) -> list[Source]:
    """The functions that the row's choices name, in the order of the equation."""
    return [*(_source(name) for name in row.source), *named_sources(row, values).values()]


def named_sources(row: Algorithm, values: Mapping[str, Value]) -> dict[str, Source]:
    """The sources of the row's choices, by the key of their family."""
    found = {}
    for knob in row.knobs:
        module, name = MODULES.get(knob.key), str(values.get(knob.key, knob.default))
        if module and (module := _home_of(name, module)):
            found[knob.key] = _source(f"{module}:{name}", f"{knob.label}: {name}")
    return found


def _source(name: str, title: str = "") -> Source:
    """The function that "module:function" names."""
    module, _, function = name.partition(":")
    line, text = _functions(module)[function]
    return Source(title or function, f"{module.replace('.', '/')}.py", line, text)


def written(spec: RunSpec, knobs: Mapping[str, Value] | None = None) -> Algorithm:
    """The run's row, with the equation of its own choices if they are not those of the named algorithm. A mix is
    without the knobs of choices that it did not take. `knobs` are those of a step, which may differ from the spec's."""
    row, values = spec.row, {**spec.knobs, **(knobs or {})}
    if spec.mix:
        row = mixed.row(row.key, spec.mix, values)
        return replace(row, knobs=tuple(knob for knob in row.knobs if not mixed.idle(row.key, knob.key, values)))
    if row.loop == "sft" and any(values.get(knob.key) != knob.default for knob in row.knobs if knob.key in OF_SFT):
        return replace(row, latex=equation("sft", values))
    if not mixed.can_be_mixed(row) or not parts(row, values, spec.task_row):
        return row
    return replace(row, latex=summarise(row.key, values, spec.task_row).latex)


def show(run: RunRow, feed: Feed, step: int) -> None:
    """The equation with its numbers at a step, and its code."""
    step = min(step, feed.last_step)  # none yet where the page shows the base that is made first
    values = feed.knobs(step if step < feed.last_step else None)
    row = written(run.spec, values)
    samples = files.newest(run.id, "samples", step)
    with st.container(key=BOX):
        with st.container(key=WRITTEN):
            st.latex(terms.coloured(row))
        equation_terms(term_values.payload(row, feed, values, samples, step), key="equation_terms")
    st.caption(row.paper)
    found = sources(row, values)
    for start in range(0, len(found), 2):
        for column, source in zip(st.columns(min(2, len(found))), found[start:start + 2], strict=False):
            with column:
                st.caption(f"**{source.title}** · {source.file}, line {source.line}")
                python_code.show(source.text)
