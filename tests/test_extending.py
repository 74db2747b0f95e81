"""docs/extending.md does what it says: its code blocks, run as they stand, add an algorithm, a choice of each family, a
task, a metric, a page, a maze and a method for it, and a deep method.

What is added to a lab is written into a copy of it, in so few files, and `extended_lab.py` drives the copy.
"""

import os
import re
import shutil
import signal
import sys
import traceback
import types
from dataclasses import replace
from math import isfinite
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import torch

from labcore.catalog import cartpole, choices, maze
from labcore.catalog.choice import Family
from labcore.catalog.families import credit
from labcore.catalog.llm import algorithms, online, tasks
from labcore.classic.deep.session import DeepSession
from labcore.classic.envs import maze_presets
from labcore.classic.tabular import temporal_difference
from labcore.classic.tabular.session import TabularSession
from labcore.classic.tabular.td_learner import Tables
from labcore.classic.tabular.walks import Step
from labcore.llm.session import LlmSession
from labcore.maths import advantages
from labcore.maths.call import call, member
from labcore.runs.spec.run_spec import make

ROOT = Path(__file__).parents[1]
DOC = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(?:python|js) (\w+)\n(.*?)```", DOC, flags=re.DOTALL))
FEW = {"prompts_per_step": 2, "group_size": 4, "sft_steps": 0}


def evaluated(block: str, module: types.ModuleType) -> object:
    """The value of an expression of the page, in the file that it is to be written into."""
    return eval(BLOCKS[block], dict(vars(module)))


@pytest.fixture
def reverse(monkeypatch: pytest.MonkeyPatch) -> str:
    module = types.ModuleType("labcore.tasks.reverse")
    exec(BLOCKS["task"], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = evaluated("row", tasks)
    monkeypatch.setitem(tasks.TASKS, row.key, row)
    return row.key


def test_an_algorithm_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = evaluated("algorithm", online)
    monkeypatch.setitem(algorithms.ALGORITHMS, row.key, row)
    records = list(LlmSession.start(make(algorithm_key=row.key, task_key="sort", knobs=FEW, steps=2)).run())
    assert [record.step for record in records] == [1, 2]
    assert all(isfinite(value) for record in records for value in record.metrics.values())


# What is added to a lab: by kind the files, each with the places at which blocks of the page are written into it:
# before a line, as the last item of a table by its name, or at the end ("").
_FAMILIES = "labcore/catalog/families"
ADDED = {
    "an advantage": {f"{_FAMILIES}/credit.py": {"ADVANTAGE": "member"}, "labcore/maths/advantages.py": {"": "choice"}},
    "a surrogate": {
        f"{_FAMILIES}/surrogates.py": {"SURROGATE = Family(": "surrogate_knob", "SURROGATE": "surrogate"},
        "labcore/maths/surrogates.py": {"": "surrogate_function"},
        "app/components/surrogate_explorer/twin_tempered.js": {"": "surrogate_twin"}},
    "an estimate of the KL": {f"{_FAMILIES}/kl.py": {"KL_ESTIMATOR": "kl"}, "labcore/maths/kl.py": {"": "kl_function"}},
    "a normalisation": {f"{_FAMILIES}/credit.py": {"NORMALISATION": "normalisation"},
                        "labcore/maths/normalisation.py": {"": "normalisation_function"}},
    "a preference loss": {f"{_FAMILIES}/preferences.py": {"PREFERENCE_LOSS": "loss"},
                          "labcore/maths/preferences.py": {"": "loss_function"}},
    "a task": {"labcore/catalog/llm/tasks.py": {"TASKS": "row"}, "labcore/tasks/reverse.py": {"": "task"}},
    "a metric with a chart": {
        "labcore/catalog/metrics.py": {"_ALL": "metric"},
        "labcore/llm/objective.py": {"    return {key: float(value) for key": "metric_logged"}},
    "a page": {"app/page_list.py": {"PAGES": "page_line"}, "pages/credits.py": {"": "page"}},
}


def written(text: str, place: str, block: str) -> str:
    """A file with a block in its place: at its end, before a line, or as the last item of the table of that name."""
    if not place:
        return f"{text.rstrip()}\n\n\n{block}" if text else block
    if (start := text.find(f"\n{place}")) < 0:
        raise AssertionError(f"there is no {place}")
    if place.isidentifier():
        closing = re.compile(r"\n(    )?\){1,2}\n").search(text, start + 1).start() + 1
        indented = "".join(f"    {line}" for line in block.rstrip().splitlines(keepends=True))
        return f"{text[:closing]}{indented},\n{text[closing:]}"
    indent = " " * (len(place) - len(place.lstrip()))
    indented = "".join(f"{indent}{line}" for line in block.splitlines(keepends=True))
    return f"{text[:start + 1]}{indented}{'' if indent else chr(10)}{text[start + 1:]}"


@pytest.mark.parametrize("family", choices.FAMILIES, ids=lambda family: family.key)
def test_the_page_names_the_file_of_each_family(family: Family) -> None:
    name = next(name for name, value in vars(choices).items() if value is family)
    row, = [line for line in DOC.splitlines() if line.startswith("| `") and f"`{name}`" in line]
    for place in re.findall(r"`([\w/]+\.py)`", row):
        assert any(ROOT.glob(f"labcore/**/{place.rpartition('/')[2]}")), place
    assert f"{family.module.rpartition('.')[2]}.py`" in row.split("|")[3]


def test_how_many_files_an_addition_takes() -> None:
    assert {kind: len(files) for kind, files in ADDED.items()} == dict.fromkeys(ADDED, 2) | {"a surrogate": 3}


def test_what_was_added_is_there_from_the_first_step_to_the_hand_over(tmp_path: Path) -> None:
    for folder in ("labcore", "app", "pages"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("static"))
    (tmp_path / "app" / "static").mkdir()
    for name in ("conftest", "extended_lab", "app/conftest", "app/asking", "app/seeding", "analysis/compare/tools"):
        copied = tmp_path / "tests" / f"{name}.py"
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / f"{name}.py", copied)
    for files in ADDED.values():
        for name, places in files.items():
            file = tmp_path / name
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            for place, block in places.items():
                text = written(text, place, BLOCKS[block])
            file.write_text(text, encoding="utf-8")
    assert checked(tmp_path) == 0, (tmp_path / "output").read_text()[-8000:]


def checked(root: Path) -> int:
    """Run pytest in the copy and return its exit code. It runs in a fork of this process, because this process has
    already loaded torch and transformers."""
    child = os.fork()
    if not child:
        code = 1
        try:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            with (root / "output").open("w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            os.chdir(root)
            os.environ["PYTEST_ADDOPTS"] = ""
            sys.path[:] = [str(root), *(place for place in sys.path if place not in ("", str(ROOT)))]
            for name in [name for name in sys.modules if name.partition(".")[0] in ("app", "labcore", "tests")]:
                del sys.modules[name]
            code = pytest.main(["tests/extended_lab.py", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o",
                                "python_functions=check_*", "--rootdir", str(root)])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:  # the time limit of this test
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def test_an_added_baseline_is_not_moved_by_one_lucky_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = evaluated("member", credit)
    monkeypatch.setattr(advantages, chosen.key, None, raising=False)  # taken away again at the end
    exec(BLOCKS["choice"], vars(advantages))
    family = replace(choices.ADVANTAGE, members=(*choices.ADVANTAGE.members, chosen))
    rewards = torch.tensor([[0.0, 1.0, 0.0, 9.0, torch.nan], [3.0, 1.0, 2.0, torch.nan, torch.nan]])
    got = call(member(family, chosen.key), {}, {"rewards": rewards})
    assert got.tolist() == [[0, 1, 0, 9, 0], [1, -1, 0, 0, 0]]
    assert call(member(family, "group_mean"), {}, {"rewards": rewards})[0].tolist() == [-2.5, -1.5, -2.5, 6.5, 0]


def test_a_task_is_one_class_and_its_row(reverse: str) -> None:
    session = LlmSession.start(make(algorithm_key="grpo", task_key=reverse, knobs=FEW, steps=1))
    record = next(record for record in session.run() if record is not None)
    first = record.samples["groups"][0]
    assert first["answer"] == first["prompt"][:-1][::-1]


def test_a_maze_is_one_function_and_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    _walk("q_learning", _maze(monkeypatch))


def test_a_method_is_one_function_and_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = evaluated("method_row", maze)
    monkeypatch.setitem(maze.ALGORITHMS, row.key, row)
    monkeypatch.setattr(temporal_difference, row.key, None, raising=False)  # taken away again at the end
    exec(BLOCKS["method"], vars(temporal_difference))
    _walk(row.key, _maze(monkeypatch), blame=0.5)
    tables = Tables(np.array([[0.0], [0.0]]))
    knobs = {"alpha": 1.0, "alpha_decay": 0.0, "gamma": 1.0, "blame": 0.25}
    for reward, expected in ((8.0, 8.0), (4.0, 7.0)):  # 8; then 8 + ¼ (4 − 8)
        resolve_name(row.method)(tables, Step(0, 0, 0, reward, 1, True, False), knobs, np.random.default_rng(0))
        assert tables.q[0, 0] == expected


def test_a_deep_method_is_one_loop_and_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("labcore.classic.deep.weighted")
    exec(BLOCKS["deep_method"], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = evaluated("deep_row", cartpole)
    monkeypatch.setitem(cartpole.ALGORITHMS, row.key, row)
    session = DeepSession.start(make(kind="cartpole", algorithm_key=row.key, task_key="CartPole-v1", steps=30))
    records = session.run()
    first = next(records).metrics["eval_return"]
    assert any(record.metrics.get("eval_return", 0) > 3 * first for record in records)


def _maze(monkeypatch: pytest.MonkeyPatch) -> str:
    row = evaluated("maze_row", maze)
    monkeypatch.setattr(maze_presets, row.key, None, raising=False)
    exec(BLOCKS["maze"], vars(maze_presets))
    monkeypatch.setitem(maze.TASKS, row.key, row)
    return row.key


def _walk(method: str, task: str, **knobs: float) -> None:
    """The method finds the way through the maze."""
    spec = make(kind="maze", algorithm_key=method, task_key=task, steps=100, knobs={"pace": 0, **knobs})
    *_, last = TabularSession.start(spec).run()
    assert last.metrics["start_value/greedy"] == pytest.approx(last.metrics["start_value/best"])
    assert last.metrics["moves_to_goal"] >= 8
