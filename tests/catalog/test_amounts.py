"""Shares, sizes, times and metrics have one format: no other code writes their units beside a number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from labcore.catalog.amounts import percent, significant, size

ROOT = Path(__file__).parents[2]
# A share in Python's own percent format or without a blank before %, or a size or time formatted by hand.
BY_HAND = re.compile(r":\.?\d*%\}|\}%(?=[\s\"'`.,;:)<]|$)|/ (?:1e6|1e9|MEGABYTE)\b[^}]*\} (?:MB|GB)"
                     r"|(?<!2\*\*20:\.1)(?<!2\*\*20:\.0)(?<!2\*\*20:,\.0)f\} (?:kB|MB|GB)\b"
                     r"|\.[1-9]f\} (?:s|min|h)\b(?!/)")  # but for limits in units of 2**20
# A metric's value formatted with its digits: a share would not be in percent.
BY_DIGITS = re.compile(r"\b(?:number|format)\(.*\.digits\)")
# A length in CSS: the declaration of a style, or a share that a semicolon follows.
CSS = re.compile(r"^.*\.style\..*$|[a-z-]+:\d+%\}|[a-z-]+:\$?\{[^{}]*\}%?|\{[^{}]*%\};|color-mix\([^)]*\)|\}%[,)]")
# Formats of another language, which have no unit: Plotly's, and the microscope's that is `percent`.
OTHERS = ("%{", "{push:%}")


def by_hand(line: str) -> bool:
    plain = line
    for other in OTHERS:
        plain = plain.replace(other, "")
    return bool(BY_HAND.search(CSS.sub("", plain)) or BY_DIGITS.search(plain))


@pytest.mark.parametrize("folder", ["app", "labcore", "pages"])
def test_no_share_and_no_size_is_written_by_hand(folder: str) -> None:
    found = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
             for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".js")
             and "static" not in path.parts and path.name not in ("amounts.py", "theme.py", "recorded_studies.py")
             for number, line in enumerate(path.read_text("utf-8").splitlines(), 1) if by_hand(line)]
    assert not found, ("use labcore.catalog.amounts, app.theme.metric_text (asPercent and metricText in component.js): "
                       + "\n".join(found))


@pytest.mark.parametrize(("line", "expected"), [
    ('f"{number(last, metric.digits)} at step"', True), ('f"{seconds / 60:.1f} min"', True),
    ('f"{row.memory.mean:,.0f} MB"', True), ('f"{1 / speed:.1f} s/step"', False), ("number(value, 2)", False),
    ("<td>{chances[action]:.0%}</td>", True), ('f"{row[\'clipped_frac\']:.1%}"', True),
    ("`${Math.round(100 * share)}%`", True), ('f"{sizes[name] / 1e6:,.0f} MB"', True),
    ('style="left:{zero * 100:.1f}%;width:{share:.1%}"', False), ("{percent(share)}", False),
    ('hovertemplate="ratio %{x:.3f}<extra></extra>"', False)])
def test_the_search_finds_what_it_looks_for(line: str, expected: bool) -> None:
    assert by_hand(line) is expected


def test_units_stand_behind_a_blank_and_columns_have_three_digits() -> None:
    assert percent(0.37) == "37 %" and percent(0.013) == "1.3 %" and size(269e6) == "269 MB"
    assert [significant(value) for value in (1234.5, 12.345, 0.012345, -3.0)] == ["1,230", "12.3", "0.0123", "−3.00"]


SIGN = re.compile(r"−|\\u2212|:.{0,3}\+")  # in every source with such a format: to parse all sources takes seconds


def signed_formats(source: str, all_of_them: bool) -> list[str]:
    """The formats with decimals and without `z` for numbers that may be negative: all formats of the source if
    `all_of_them`, otherwise those with a sign and those whose hyphens are replaced by minus signs."""
    def wanted(node: ast.AST) -> bool:
        return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"
                and [each.value for each in node.args if isinstance(each, ast.Constant)] == ["-", "−"])
    nodes = [*ast.walk(ast.parse(source))]
    specs = {ast.unparse(part): ast.unparse(part.format_spec) for part in nodes
             if isinstance(part, ast.FormattedValue) and part.format_spec}
    places = [nodes] if all_of_them else [ast.walk(node) for node in nodes if wanted(node)]
    below = {ast.unparse(part) for place in places for part in place if isinstance(part, ast.FormattedValue)}
    return [text for text, spec in specs.items() if "." in spec and ("+" in spec or text in below) and "z" not in spec]


def test_zero_has_no_sign():
    """−0.0004 is 0.000, not -0.000: `z` in a format says so."""
    assert f"{-0.0004:z.3f} {-0.0:z.3g}" == "0.000 0"
    assert signed_formats("f'{a:.3f}'", True) and signed_formats("f'{a:+.3f}'", False)
    assert not signed_formats("f'{a:.3f}'", False) and signed_formats("f'{a:.3f}'.replace('-', '−')", False)
    texts = {path: path.read_text("utf-8") for room in ("labcore", "app") for path in (ROOT / room).rglob("*.py")}
    found = {path: each for path, text in texts.items() if path.parent.name == "cli" or SIGN.search(text)
             if (each := signed_formats(text, path.parent.name == "cli"))}
    assert not found
