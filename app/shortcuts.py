"""The keyboard shortcuts, read from the code that declares them: from the bar's actions and from every button's
`shortcut=`. No second list that could be out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.page_list import PAGES
from app.training.bar import ACTIONS

ROOT = Path(__file__).resolve().parents[1]
# The title of the page that a module or a package belongs to; all others are of the pages that train.
OF_PAGE = {page.key: page.title for page in PAGES if page.section != "Train"} | {
    "recorded_clip": "Home", "playground_view": "Playground"}
TRAINING = "Pages that train"


@dataclass(frozen=True)
class Shortcut:
    """`keys` as Streamlit writes them ("Ctrl+Enter"), the button's label and help, and its page."""

    keys: str
    label: str
    help: str
    page: str


@cache
def shortcuts() -> tuple[Shortcut, ...]:
    """Return all shortcuts, the training pages' first; of several buttons with one label, the one with the longest
    help."""
    found = [Shortcut(action.shortcut, action.label, action.help, TRAINING)
             for actions in ACTIONS.values() for action in actions if action.shortcut]
    for path in sorted((*(ROOT / "app").rglob("*.py"), *(ROOT / "pages").glob("*.py"))):
        found += [Shortcut(*fields, page_of(path)) for fields in declared(path.read_text(encoding="utf-8"))]
    kept: dict[tuple[str, str, str], Shortcut] = {}
    for each in sorted(found, key=lambda each: len(each.help), reverse=True):
        kept.setdefault((each.keys, each.label, each.page), each)
    return tuple(sorted(kept.values(), key=lambda each: (each.page != TRAINING, each.page, found.index(each))))


def page_of(path: Path) -> str:
    """The page that shows what a module draws."""
    return next((OF_PAGE[name] for name in path.relative_to(ROOT).with_suffix("").parts if name in OF_PAGE), TRAINING)


def declared(source: str) -> Iterator[tuple[str, str, str]]:
    """(keys, label, help) of each call that is given a `shortcut`, itself or by a loop over written-out rows.

    >>> list(declared('st.button("Go", shortcut="G", help="It goes")'))
    [('G', 'Go', 'It goes')]
    >>> list(declared('for words, key in (("Yes", "Y"), ("No", "N")): st.button(words, shortcut=key)'))
    [('Y', 'Yes', ''), ('N', 'No', '')]
    """
    def visit(node: ast.AST, known: list[dict[str, str]]) -> Iterator[tuple[str, str, str]]:
        if isinstance(node, ast.For):
            known = _rows(node) or known
        if isinstance(node, ast.Call) and any(keyword.arg == "shortcut" for keyword in node.keywords):
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            for names in known:
                label = node.args[0] if node.args else given.get("label")
                if keys := _text(given["shortcut"], names):
                    yield keys, _text(label, names), _text(given.get("help"), names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, known)

    return visit(ast.parse(source), [{}]) if "shortcut" in source else iter(())  # most files have none


def _rows(loop: ast.For) -> list[dict[str, str]]:
    """Return the values of a loop's names in each of its rows, where these are written out."""
    if not (isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.Tuple)):
        return []
    names = [ast.unparse(name) for name in loop.target.elts]
    return [{name: str(value.value) for name, value in zip(names, row.elts, strict=True) if isinstance(
        value, ast.Constant)} for row in loop.iter.elts if isinstance(row, ast.Tuple)]


def _text(node: ast.AST | None, names: dict[str, str]) -> str:
    """A text of the source, with … for parts that are known only when the page is drawn."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, names) or "…" for part in parts)
    return ""
