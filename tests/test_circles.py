"""No two modules, and no two packages, need each other: whatever one reads, it can be read from the bottom up."""

import pytest

from tests.imports import circle, graph, packages


@pytest.mark.parametrize("folder", ["labcore", "app"])
def test_there_is_no_circle(folder):
    modules = graph(folder)
    assert len(modules) > 50 and any(modules.values())
    assert circle(modules) == []
    assert circle(packages(modules)) == []


def test_the_graph_is_that_of_the_modules_themselves():
    modules = graph("labcore", "app")
    assert "labcore.llm.objective" in modules["labcore.llm.loops.online"]
    assert "labcore.runs.store.store" in modules["app.lab"]
    assert modules["labcore.errors"] == set()


@pytest.mark.parametrize("statement", [
    "import lab.two.b", "import lab.two.b as x", "from lab.two import b", "from lab.two.b import f",
    "from ..two import b", "from ..two.b import f as g", "def f():\n    from lab.two.b import g",
    "class A:\n    import lab.two.b",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lab.two.b import f",
    "try:\n    import lab.two.b\nexcept ImportError:\n    pass"])
def test_each_kind_of_import_is_seen(tmp_path, statement):
    texts = {"one/__init__": "", "one/a": statement, "two/__init__": "", "two/b": "from lab.one import a"}
    for name, text in texts.items():
        path = tmp_path / "lab" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import json\n{text}\n", encoding="utf-8")
    modules = graph("lab", root=tmp_path)
    assert modules == {"lab.one": set(), "lab.two": set(), "lab.one.a": {"lab.two.b"}, "lab.two.b": {"lab.one.a"}}
    assert set(circle(modules)) == {"lab.one.a", "lab.two.b"}
    assert packages(modules) == {"lab.one": {"lab.two"}, "lab.two": {"lab.one"}}


def test_packages_can_need_each_other_where_modules_do_not():
    modules = {"lab.one.a": {"lab.two.b"}, "lab.two.b": set(), "lab.two.c": {"lab.one.a"}}
    assert circle(modules) == []
    assert set(circle(packages(modules))) == {"lab.one", "lab.two"}
