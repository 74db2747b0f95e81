"""Tests can fail: no assertion holds whatever the code does, and every test has one."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from itertools import chain

import pytest

from tests.imports import ROOT, imported, nodes

TESTS = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
COUNTS = {"len", "abs", "count", "numel", "nbytes"}  # what is never below 0
CHECKS = {"raises", "warns", "fail", "expect", "check_env"}  # what fails a test by itself
Function = ast.FunctionDef | ast.AsyncFunctionDef


def always(node: ast.expr) -> bool:
    """Whether an expression is true whatever the code does."""
    match node:
        case ast.Constant(value):
            return bool(value)
        case ast.Tuple(elts) | ast.List(elts) | ast.Set(elts):
            return any(not isinstance(each, ast.Starred) for each in elts)
        case ast.Lambda() | ast.GeneratorExp():
            return True
        case ast.Compare(left, [operator], [right]):
            return _same(left, operator, right) or _never_negative(left, operator, right)
    return False


def _same(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
    """Whether something is compared with itself; two calls of one function may differ, and so may NaN from itself."""
    pure = {*dir(builtins)} - {"next", "input", "open", "eval"}
    calls = [ast.unparse(each.func) for each in ast.walk(left) if isinstance(each, ast.Call)]
    return (isinstance(operator, ast.Eq | ast.LtE | ast.GtE | ast.Is) and ast.dump(left) == ast.dump(right)
            and pure.issuperset(calls))


def _never_negative(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
    """Whether it says of a length or a count that it is not below 0."""
    if isinstance(operator, ast.LtE | ast.Lt):
        left, operator, right = right, {ast.LtE: ast.GtE, ast.Lt: ast.Gt}[type(operator)](), left
    named = left.func if isinstance(left, ast.Call) else left
    name = named.attr if isinstance(named, ast.Attribute) else named.id if isinstance(named, ast.Name) else ""
    return name in COUNTS and (isinstance(operator, ast.GtE) and ast.unparse(right) in ("0", "0.0")
                               or isinstance(operator, ast.Gt) and ast.unparse(right) == "-1")


def parts(node: ast.expr) -> Iterator[ast.expr]:
    """An expression and what its truth is made of: operands, branches, the element of all(…) and any(…)."""
    yield node
    match node:
        case ast.BoolOp(_, values):
            inner = values
        case ast.IfExp(_, body, orelse):
            inner = [body, orelse]
        case ast.Call(ast.Name("all" | "any"), [ast.GeneratorExp(elt)]):
            inner = [elt]
        case _:
            return
    yield from chain.from_iterable(map(parts, inner))


def idle(source: str) -> list[str]:
    """The expressions of a file that cannot fail: parts of assertions, and comparisons that are overruled."""
    found = []
    for node in nodes(source):
        match node:
            case ast.Assert(test):
                suspects = list(parts(test))
            case ast.BoolOp(ast.Or(), values) if any(isinstance(each, ast.Compare) for each in values):
                suspects = values
            case ast.Compare(left, [operator], [right]) if _same(left, operator, right):
                suspects = [node]
            case ast.Expr(ast.Compare() | ast.Attribute()):
                found.append(f"line {node.lineno}: {ast.unparse(node)} is never asserted")
                continue
            case ast.With(items, body) if any("raises" in ast.unparse(each) for each in items) and any(
                    isinstance(each, ast.Assert) for each in body[1:]):
                found.append(f"line {node.lineno}: an assertion within raises is never reached")
                continue
            case _:
                continue
        found += [f"line {node.lineno}: {ast.unparse(each)}" for each in suspects if always(each)]
    return sorted(set(found))


def functions(source: str) -> list[Function]:
    return [node for node in nodes(source) if isinstance(node, Function)]


def checks(function: Function) -> bool:
    """Whether a function can fail a test by what it says itself."""
    for node in ast.walk(function):
        called = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Assert) or called in CHECKS or called.startswith("assert_"):
            return True
        if isinstance(node, ast.Raise) and node.exc and "AssertionError" in ast.unparse(node.exc):
            return True
    return False


def silent(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The tests of each file that check nothing, neither themselves nor through a function or a fixture of the tests.

    A name means any function of that name in the file, in those that it imports from, and in a `conftest.py`.
    """
    every = {path: functions(source) for path, source in sources.items()}
    shared = [path for path in sources if path.endswith("conftest.py")]

    def within(path: str) -> list[Function]:
        brought = {name for name in imported(sources[path]) if name.startswith("tests.")}
        near = {path, *shared, *(other for other in sources if any(
            name.startswith(other.removesuffix(".py").replace("/", ".") + ".") or
            name == other.removesuffix(".py").replace("/", ".") for name in brought))}
        return [function for each in near for function in every[each]]

    found = {}
    for path, own in every.items():
        known, near = set[str](), [each for each in within(path) if not each.name.startswith("test_")]
        while grown := {each.name for each in near if each.name not in known and (checks(each) or asked(each) & known)}:
            known |= grown
        found[path] = [f"line {each.lineno}: {each.name} checks nothing" for each in own
                       if each.name.startswith("test_") and not checks(each) and not asked(each) & known]
    return {path: names for path, names in found.items() if names}


def asked(function: Function) -> set[str]:
    """The names that a function calls, hands on or takes as a fixture."""
    names = {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            names |= {ast.unparse(each).rpartition(".")[2] for each in (node.func, *node.args)
                      if isinstance(each, ast.Name | ast.Attribute)}
    return names


def test_no_assertion_holds_whatever_the_code_does():
    assert {path: found for path, source in TESTS.items() if (found := idle(source))} == {}


def test_every_test_checks_something():
    assert silent(TESTS) == {}


def test_every_test_is_collected():
    """None in a file that pytest does not read, none within another function."""
    elsewhere = {path for path, source in TESTS.items() if not path.rpartition("/")[2].startswith("test_")
                 and any(function.name.startswith("test_") for function in functions(source))}
    assert elsewhere == set()
    inner = {path: nested for path, source in TESTS.items() if (nested := [
        each.name for function in functions(source) for each in ast.walk(function)
        if each is not function and isinstance(each, Function) and each.name.startswith("test_")])}
    assert inner == {}


@pytest.mark.parametrize("source", [
    "assert x == 1 or True", "assert (x, 'words')", "assert x and 1", "assert len(x) >= 0", "assert 0 <= x.numel()",
    "assert abs(x) > -1", "assert x == x", "assert float(x.y[1]) <= float(x.y[1])", "assert a < 1 if b else True",
    "assert all(len(x) >= 0 for x in y)", "assert (x for x in y)", "assert 'words'", "assert lambda: x",
    "until(lambda: x == 1 or True)", "return x == x", "x == 3", "mock.assert_called_once",
    "with pytest.raises(E):\n    f()\n    assert x == 1"])
def test_each_idle_assertion_is_found(source):
    assert idle(f"def test():\n    {source.replace(chr(10), chr(10) + '    ')}")


@pytest.mark.parametrize("source", [
    "assert x", "assert x or y", "assert not x", "assert len(x) > 0", "assert 0 <= x <= 1", "assert f() == f()",
    "assert x != x", "assert loss >= 0", "assert b or a < 1", "assert [*x]", "f(lambda: seen.append(1) or True)",
    "with pytest.raises(E):\n    f()", "assert all(x > 0 for x in y)", "assert next(x) == next(x)"])
def test_an_assertion_that_can_fail_is_not(source):
    assert not idle(f"def test():\n    {source.replace(chr(10), chr(10) + '    ')}")


def test_a_test_that_checks_nothing_is_found():
    helper = "def close(a, b):\n    assert a == b\n\ndef twice(a):\n    close(a, a)\n\ndef idle(a):\n    return a\n"

    def found(body, arguments=""):
        return silent({"tests/help.py": helper, "tests/conftest.py": "def page():\n    assert x\n",
                       "tests/test_a.py": f"from tests.help import close\n\ndef test_a({arguments}):\n    {body}\n"})

    for body in ("f(1)", "idle(x)"):
        assert found(body) == {"tests/test_a.py": ["line 3: test_a checks nothing"]}
    for body in ("assert x", "close(x, y)", "twice(x)", "each(close)", "with pytest.raises(E):\n        f()",
                 "np.testing.assert_allclose(x, y)"):
        assert not found(body)
    assert not found("each(page)", "page")
