"""Who imports whom, read from the sources: imports within functions and for type checkers only count too."""

import ast
import gc
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[1]
Graph = dict[str, set[str]]


def parsed(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a file. None is garbage before it is given back: to look at them takes longer than to parse."""
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(source)))
    finally:
        gc.freeze()
        gc.enable()


nodes = cache(parsed)  # once for every test that looks at them


def imported(source: str, package: str = "") -> set[str]:
    """The full names of what a file of `package` imports: `a.b.c` of `import a.b.c` and of `from a.b import c`."""
    names = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def graph(*folders: str, root: Path = ROOT) -> Graph:
    """Each module in some folders, and the modules there that it imports itself."""
    paths = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
             for folder in folders for path in (root / folder).rglob("*.py")}
    found: Graph = {}
    for module, path in paths.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        found[module] = {_module(name, paths) for name in imported(path.read_text("utf-8"), package)} - {"", module}
    return found


def _module(name: str, modules: dict[str, Path]) -> str:
    """The module that a name is, or is in; empty where it is none of these."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def packages(modules: Graph) -> Graph:
    """The same for the parts of a folder: `labcore.llm.loops.online` is in `labcore.llm`."""
    found: Graph = {}
    for module, needed in modules.items():
        part = _part(module)
        found.setdefault(part, set()).update({_part(other) for other in needed} - {part})
    return found


def _part(module: str) -> str:
    return ".".join(module.split(".")[:2])


def circle(needs: Graph) -> list[str]:
    """A circle in it, from a name back to the same; empty where there is none."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return error.args[1]
    return []
