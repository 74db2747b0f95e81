"""The walls of the design: who may import whom, what is never used, and what shared code never asks."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from labcore.catalog.llm.algorithms import ALGORITHMS
from tests.every import every
from tests.imports import ROOT, imported, nodes

ON_A_GPU = ("labcore.maths.gpu_kernels",)  # imported on CUDA only: its Triton comes with torch's builds for CUDA
HEAVY, PAGE = ("torch", "transformers"), ("streamlit",)
CODE = sorted(path for name in ("app", "pages", "labcore", "benchmarks") for path in (ROOT / name).rglob("*.py"))


def modules(*folders: str) -> list[str]:
    """The dotted names of the modules in some folders, or of single files without their suffix."""
    paths = [path for name in folders
             for path in ([(ROOT / name).with_suffix(".py")] if (ROOT / name).with_suffix(".py").is_file()
                          else sorted((ROOT / name).rglob("*.py")))]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if name.rpartition(".")[2] != "__main__" and name not in ON_A_GPU]


FIRST_PAGES = """
import sys
import app.lab
from labcore.workers.launcher import NoLauncher
from streamlit.testing.v1 import AppTest
app.lab.Launcher = NoLauncher
for page in "home", "llm":
    test = AppTest.from_file("app/navigation.py", default_timeout=60)
    if page != "home":
        test.switch_page(f"../pages/{page}.py")
    test.run()
    assert not test.exception, test.exception
    print(page, sorted({"pandas", "pyarrow", "scipy", "torch"} & {*sys.modules}))
"""
BROUGHT_IN = """
import importlib, json, sys
names, watched = json.loads(sys.argv[1])
found = {}
for name in names:
    importlib.import_module(name)
    for heavy in watched:
        if heavy in sys.modules:
            found.setdefault(heavy, name)
print(json.dumps([f"{heavy} by {name}" for heavy, name in found.items()]))
"""


def brought_in(names: list[str], watched: tuple[str, ...], doing: str = "") -> list[str]:
    """The modules of `watched` that a fresh process has loaded after it ran the code `doing` and imported `names`, each
    with the first of these names that loaded it."""
    done = subprocess.run([sys.executable, "-c", doing + BROUGHT_IN, json.dumps([names, watched])], cwd=ROOT,
                          timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


# What trains with torch; everything else of the engine loads without it.
TORCH = ("labcore.classic.deep", "labcore.device", "labcore.classic.envs.cartpole", "labcore.llm", "labcore.maths")
SIZING = "labcore.llm.sizing"  # the part of llm that pages ask, so it loads without torch
PAGES = [name for name in modules("app") if name not in ("app.main", "app.navigation")]  # both start a supervisor
# What a setting has to ask for: the package, how a file names it, the modules that the rest of the lab asks, and where
# its setting may be named as well.
OBJECT_STORE = ("labcore/runs/files/artifacts/", r"runs\.files\.artifacts|RL_LAB_ARTIFACTS",
                ("labcore/runs/files/storage.py", "labcore/cli/publishing.py", "labcore/workers/executors/carrier.py",
                 "labcore/workers/executors/node.py"))
RAY = ("labcore/workers/executors/",
       r"executors\.(?!choice|executor)|executors import (?!choice)|\b[rR]ay\b|RL_LAB_RAY", ())
# What deploy/demo/make.sh leaves out of the packages, and so no page may need.
NOT_IN_DEMO = ("peft", "accelerate", "pytest", "math_verify", "tokenizers", "latex2sympy2_extended", "antlr4",
               "huggingface_hub")
ASKED_FOR = ("labcore.runs.files.artifacts", "labcore.workers.executors.ray")
LIGHT = [name for name in modules("labcore") if not name.startswith(TORCH) or name.startswith(SIZING)]


def test_the_page_never_loads_torch_and_matplotlib_only_for_a_figure():
    """The first pages of a server load no torch either, and no pandas, PyArrow or SciPy, which take long to load."""
    assert len(PAGES) > 10
    done = subprocess.run([sys.executable, "-c", FIRST_PAGES + BROUGHT_IN, json.dumps([PAGES, (
        *HEAVY, *ASKED_FOR, *NOT_IN_DEMO, "matplotlib")])], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=False)
    assert done.stdout.splitlines()[-3:] == ["home []", "llm []", "[]"], done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("package, name, asks", [OBJECT_STORE, RAY])
def test_the_object_store_and_ray_stand_behind_one_interface(package, name, asks):
    """No file of the lab names them but their own, and the few that ask for them."""
    paths = [path for path in CODE if path.relative_to(ROOT).parts[0] != "benchmarks"]
    naming = {path.relative_to(ROOT).as_posix() for path in paths if re.search(name, path.read_text("utf-8"))}
    assert {path for path in naming if not path.startswith(package)} == {
        path for path in asks if not path.startswith(package)}
    assert any(path.startswith(package) for path in naming)


def test_the_tables_never_load_torch_nor_streamlit():
    """Listing runs from Python loads neither of them, and no matplotlib. For modules that train, `faults` checks in the
    source that they never import streamlit."""
    assert len(LIGHT) > 10 and "labcore.workers.worker" in LIGHT and not {"labcore.llm.loops.online"} & {*LIGHT}
    listing = "import sys; from labcore import api; assert api.runs().empty and 'matplotlib' not in sys.modules"
    assert brought_in(LIGHT, (*HEAVY, *PAGE, *ON_A_GPU, "triton"), listing) == []


def test_a_module_imported_by_another_one_is_found():
    assert brought_in(["labcore.errors", "labcore.catalog.goal", "labcore.catalog.choices"], (
        "labcore.catalog.choices", "torch")) == ["labcore.catalog.choices by labcore.catalog.goal"]


def test_what_is_imported_is_declared_as_needed_or_as_an_extra():
    """Only what the code imports by itself: what its packages need in turn is theirs to say."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    provided = {top for name in declared for top in provided_by(name)}
    tops = {name.split(".")[0] for path in CODE if path.parts[-2] != "benchmarks"
            for name in imported(path.read_text("utf-8"))} - {"app", "labcore", "pages"} - sys.stdlib_module_names
    assert {"torch", "streamlit", "ray", "triton"} <= tops
    assert not {top for top in tops - {"triton"} - provided if canonicalize_name(top) not in declared}


def provided_by(name: str) -> set[str]:
    """The top-level modules of a package; none if it is not installed. To search all packages would take a second."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return set()
    return {*(found.read_text("top_level.txt") or "").split()} or {
        file.parts[0].removesuffix(".py") for file in found.files or ()}


# They delete folders: `removal` those of the lab, the others what they have just made, or what belongs to the package.
DELETE = ("labcore/runs/files/removal.py", "labcore/runs/files/atomic.py", "labcore/workers/ship_bases.py")


def faults(source: str, path: str) -> list[str]:
    """What a file does that no file may do, and what its place forbids."""
    names = {".".join(name.split(".")[:depth]) for name in imported(source) if not f"{name}.".startswith(f"{SIZING}.")
             for depth in (1, 2)}
    found = [f"imports {name}" for name in sorted(names & {"pickle", "cPickle", "dill", "joblib", "cloudpickle"})]
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node.value) in ("torch", "np"):
            found.append(f"uses {ast.unparse(node)}")
        trusts = isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "allow_pickle")
        if trusts and not (isinstance(node.value, ast.Constant) and node.value.value is False):
            found.append(f"says {node.arg}={ast.unparse(node.value)}")
    if path.startswith(("app/", "pages/", "labcore/")) and path not in DELETE:
        found += [f"line {node.lineno}: {node.attr}" for node in nodes(source)
                  if isinstance(node, ast.Attribute) and node.attr in ("rmtree", "removedirs")]
    if path.startswith(("app/", "pages/")):
        found += [f"imports {name}" for name in sorted(names & {*HEAVY, "labcore.llm", "labcore.maths"})]
        # It would keep the colours of the ground that it was drawn on; `components.figure_chart` follows the theme.
        found += [f"line {node.lineno}: st.plotly_chart" for node in nodes(source)
                  if isinstance(node, ast.Attribute) and node.attr == "plotly_chart"]
    if path.startswith("labcore/"):
        found += [f"imports {name}" for name in sorted(names & {"streamlit", "app", "pages"})]
    return found


def found_in(paths: list[Path], check: Callable[[str, str], list[str]]) -> dict[str, list[str]]:
    """What `check` finds in the source of each file, by the file's path; files without a finding are left out."""
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    each = {name: check(path.read_text("utf-8"), name) for name, path in zip(names, paths, strict=True)}
    return {name: found for name, found in each.items() if found}


def test_no_pickle_no_foreign_code_no_wrong_import():
    assert found_in(CODE, faults) == {}


@every("source, path", [
    ("import torch\nx = torch.load('a')", "labcore/a.py"), ("import pickle", "benchmarks/a.py"),
    ("from pickle import loads", "app/a.py"), ("f(trust_remote_code=True)", "labcore/a.py"),
    ("f(trust_remote_code=given)", "labcore/a.py"), ("def f():\n    import torch.nn", "pages/a.py"),
    ("from transformers import A", "app/a.py"), ("from labcore import llm", "pages/a.py"),
    ("from labcore.maths.kl import k1", "app/a.py"), ("import streamlit as st", "labcore/a.py"),
    ("from app.theme import x", "labcore/a.py"), ("np.load(x)", "labcore/a.py"),
    ("st.plotly_chart(figure)", "app/a.py"), ("shutil.rmtree(a)", "labcore/a.py"),
    ("left.plotly_chart(figure)", "pages/a.py")])
def test_each_fault_is_found(source, path):
    assert faults(source, path)


def test_the_type_checker_is_strict_on_every_module():
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert checked["strict"] and set(checked["files"]) == {"labcore", "app", "pages"}
    excepted = [rule["module"] for rule in checked["overrides"]]
    named = [name for each in excepted for name in ([each] if isinstance(each, str) else each)]
    assert not [name for name in named if name.split(".")[0] in (*checked["files"], "*")]


def test_pages_say_what_stands_where_and_nothing_else():
    for path in (ROOT / "pages").glob("*.py"):
        text = path.read_text("utf-8")
        assert "def " not in text and len(text.splitlines()) < 60, path.name


def asks_for_a_name(source: str, names: set[str]) -> list[str]:
    """Comparisons and cases with an algorithm's key: shared code reads the row, it never asks who you are."""
    found = []
    for node in nodes(source):
        if isinstance(node, ast.Compare):
            told = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            told = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
                "startswith", "endswith"):
            told = node.args
        else:
            continue
        constants = {leaf.value for part in told for leaf in ast.walk(part) if isinstance(leaf, ast.Constant)}
        found += [f"line {node.lineno}: {ast.unparse(node)}" for name in names if name in constants]
    return found


# "sft" is the key of a loop as well, which the tables and the launcher of a base may ask for.
KEYS = {key for key in ALGORITHMS if key not in {row.loop for row in ALGORITHMS.values()}}
SHARED = [path for path in CODE if not path.is_relative_to(ROOT / "benchmarks")]


def test_no_shared_code_asks_for_an_algorithm_by_name():
    assert found_in(SHARED, lambda source, _: asks_for_a_name(source, KEYS)) == {}


@pytest.mark.parametrize("source", [
    "if name == 'grpo': pass", "x = 1 if 'ppo' != key else 2", "y = key in ('rloo', 'x')",
    "match key:\n    case 'dpo': pass", "z = run_id.startswith('grpo')", "a = {'ppo'} >= b"])
def test_each_question_is_found(source):
    assert asks_for_a_name(source, {"grpo", "ppo", "rloo", "dpo"})
    assert not asks_for_a_name("row = _row('grpo'); d = {'ppo': 1}; default = algorithm('dpo')", KEYS)
