"""Tests can fail: no assertion holds whatever the code does, and every test has one."""

import ast
import builtins
from collections.abc import Iterator, Mapping
from itertools import chain

import pytest

from tests.every import every
from tests.imports import ROOT, parsed

COUNTS = {"len", "abs", "count", "numel", "nbytes"}  # what is never below 0
CHECKS = {"raises", "warns", "fail", "expect", "check_env"}  # what fails a test by itself
Function = ast.FunctionDef | ast.AsyncFunctionDef
Nodes = tuple[ast.AST, ...]


@pytest.fixture(scope="module")
def files() -> dict[str, Nodes]:
    """All nodes of each file of the tests; given back after this module, as they are half a million."""
    return {path.relative_to(ROOT).as_posix(): parsed(path.read_text("utf-8"))
            for path in sorted((ROOT / "tests").rglob("*.py"))}


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
    """Whether something is compared with itself. Two calls of one function may differ; that a number is not NaN is
    better asserted by its name."""
    if not isinstance(operator, ast.Eq | ast.LtE | ast.GtE | ast.Is) or ast.dump(left) != ast.dump(right):
        return False
    pure = {*dir(builtins)} - {"next", "input", "open", "eval"}
    return pure.issuperset(ast.unparse(each.func) for each in ast.walk(left) if isinstance(each, ast.Call))


def _never_negative(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
    """Whether it says of a length or a count that it is not below 0."""
    if isinstance(operator, ast.LtE | ast.Lt):
        left, operator, right = right, {ast.LtE: ast.GtE, ast.Lt: ast.Gt}[type(operator)](), left
    least = {ast.GtE: ("0", "0.0"), ast.Gt: ("-1",)}.get(type(operator), ())
    counted = last_name(left.func if isinstance(left, ast.Call) else left) in COUNTS
    return counted and ast.unparse(right) in least


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


def idle(nodes: Nodes) -> list[str]:
    """The expressions of a file that cannot fail: parts of assertions, and comparisons that are overruled."""
    found = []
    for node in nodes:
        match node:
            case ast.Assert(test):
                suspects = list(parts(test))
            case ast.BoolOp(ast.Or(), values) if any(isinstance(each, ast.Compare) for each in values):
                suspects = values
            case ast.Expr(ast.Compare() | ast.Attribute()):
                found.append(f"line {node.lineno}: {ast.unparse(node)} is never asserted")
                continue
            case ast.With(items, body) if any(isinstance(each, ast.Assert) for each in body[1:]) and any(
                    "raises" in ast.unparse(each) for each in items):
                found.append(f"line {node.lineno}: an assertion within raises is never reached")
                continue
            case _:
                continue
        found += [f"line {node.lineno}: {ast.unparse(each)}" for each in suspects if always(each)]
    return sorted(set(found))


def functions(nodes: Nodes) -> list[Function]:
    return [node for node in nodes if isinstance(node, Function)]


def last_name(node: ast.AST) -> str:
    """The name that an expression ends with: `close` of close and of tools.close."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def asked(function: Function) -> frozenset[str]:
    """The names that a function calls, hands on or takes as a fixture; "assert" where it can fail a test by itself."""
    names = {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            names |= {last_name(each) for each in (node.func, *node.args)}
            called = last_name(node.func)
            names |= {"assert"} if called in CHECKS or called.startswith("assert_") else set()
        elif isinstance(node, ast.Assert) or (
                isinstance(node, ast.Raise) and node.exc and "AssertionError" in ast.unparse(node.exc)):
            names.add("assert")
    return frozenset(names)


def silent(files: Mapping[str, Nodes]) -> dict[str, list[str]]:
    """The tests of each file that check nothing, neither themselves nor through a function or a fixture of the tests.

    A name means any function of that name in the file, in those that it imports from, and in a `conftest.py`.
    """
    every = {path: {each: asked(each) for each in functions(nodes)} for path, nodes in files.items()}
    shared = {path for path in files if path.endswith("conftest.py")}
    found = {}
    for path, own in every.items():
        brought = {f"{node.module.replace('.', '/')}{rest}.py" for node in files[path]
                   if isinstance(node, ast.ImportFrom) and node.module
                   for rest in ("", *(f"/{alias.name}" for alias in node.names))}
        helpers = [(each.name, names) for near in {path, *shared, *brought} & every.keys()
                   for each, names in every[near].items() if not each.name.startswith("test_")]
        known = {"assert"}
        while grown := {name for name, names in helpers if name not in known and names & known}:
            known |= grown
        found[path] = [f"line {each.lineno}: {each.name} checks nothing" for each, names in own.items()
                       if each.name.startswith("test_") and not names & known]
    return {path: names for path, names in found.items() if names}


def test_no_assertion_holds_whatever_the_code_does(files):
    assert {path: found for path, nodes in files.items() if (found := idle(nodes))} == {}


def test_every_test_checks_something(files):
    assert silent(files) == {}


def test_every_test_is_collected(files):
    """None in a file that pytest does not read, none within another function."""
    lost = []
    for path, nodes in files.items():
        read = path.rpartition("/")[2].startswith("test_")
        lost += [f"{path}: {each.name}" for each in functions(nodes)
                 if each.name.startswith("test_") and (each.col_offset or not read)]
    assert lost == []


@every("source", [
    "assert x == 1 or True", "assert (x, 'words')", "assert x and 1", "assert len(x) >= 0", "assert 0 <= x.numel()",
    "assert abs(x) > -1", "assert x == x", "assert float(x.y[1]) <= float(x.y[1])", "assert a < 1 if b else True",
    "assert all(len(x) >= 0 for x in y)", "assert (x for x in y)", "assert 'words'", "assert lambda: x",
    "until(lambda: x == 1 or True)", "return x == x or y == 1", "x == 3", "mock.assert_called_once",
    "with pytest.raises(E):\n    f()\n    assert x == 1"])
def test_each_idle_assertion_is_found(source):
    assert idle(parsed(f"def test():\n    {source.replace(chr(10), chr(10) + '    ')}"))


@every("source", [
    "assert x", "assert x or y", "assert not x", "assert len(x) > 0", "assert 0 <= x <= 1", "assert f() == f()",
    "assert x != x", "scored = row[row == row]", "assert loss >= 0", "assert b or a < 1", "assert [*x]",
    "f(lambda: seen.append(1) or True)",
    "with pytest.raises(E):\n    f()", "assert all(x > 0 for x in y)", "assert next(x) == next(x)"])
def test_an_assertion_that_can_fail_is_not(source):
    assert not idle(parsed(f"def test():\n    {source.replace(chr(10), chr(10) + '    ')}"))


def test_a_test_that_checks_nothing_is_found():
    helper = "def close(a, b):\n    assert a == b\n\ndef twice(a):\n    close(a, a)\n\ndef idle(a):\n    return a\n"

    def found(body, arguments=""):
        test = f"from tests.help import close\n\ndef test_a({arguments}):\n    {body}\n"
        return silent({"tests/help.py": parsed(helper), "tests/test_a.py": parsed(test),
                       "tests/conftest.py": parsed("def page():\n    assert x\n")})

    for body in ("f(1)", "idle(x)"):
        assert found(body) == {"tests/test_a.py": ["line 3: test_a checks nothing"]}
    for body in ("assert x", "close(x, y)", "twice(x)", "each(close)", "with pytest.raises(E):\n        f()",
                 "np.testing.assert_allclose(x, y)"):
        assert not found(body)
    assert not found("each(page)", "page")
