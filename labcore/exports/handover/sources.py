"""The source text of parts of the lab's own modules, which scripts for other tools bring with them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import ModuleType


@cache
def source(module: ModuleType, *names: str) -> str:
    """The source of the classes, functions and constants of these names, in the module's order; without names, of
    everything but the imports. One name is enough for constants that one line assigns."""
    text = Path(str(module.__file__)).read_text("utf-8")
    lines = text.split("\n")
    parts = []
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)) or (names and not _named(node) & {*names}):
            continue
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        blank = "\n" if isinstance(node, ast.Assign) else "\n\n"
        parts.append(blank + "\n".join(lines[first - 1:node.end_lineno]) + "\n")
    return "".join(parts)


def _named(node: ast.stmt) -> set[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.Assign):
        return {each.id for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)}
    return {getattr(node, "name", "")}
