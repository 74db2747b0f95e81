"""What pages keep for each other: nothing that Streamlit would have to pickle by a class of the lab."""

import ast
import importlib
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from tests.imports import ROOT

OURS = ("app", "labcore")


def classes(hint: Any) -> Iterator[type]:
    """The classes that a type hint speaks of."""
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        yield from classes(part)


def test_no_pickled_value_is_of_a_class_of_the_lab() -> None:
    """Once a file of the lab has changed, a page that is open holds other classes than a pickle would find by name."""
    cached, wrong = 0, []
    for path in sorted((ROOT / "app").rglob("*.py")):
        functions = [node.name for node in ast.walk(ast.parse(path.read_text("utf-8")))
                     if isinstance(node, ast.FunctionDef) and any("cache_data" in ast.unparse(each)
                                                                  for each in node.decorator_list)]
        if functions:
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            cached += len(functions)
            wrong += [f"{module.__name__}.{name}: {found.__name__}, use st.cache_resource" for name in functions
                      for found in classes(get_type_hints(getattr(module, name))["return"])
                      if found.__module__.partition(".")[0] in OURS]
    assert cached > 5 and not wrong, wrong
