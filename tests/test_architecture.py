"""docs/architecture.md says what is there: folders in the order of their imports, session, tables, events, the path."""

import re
import sys
from collections.abc import Callable
from pkgutil import resolve_name
from types import FrameType

import pytest

from labcore.catalog.kinds import KINDS
from labcore.runs import versions
from labcore.runs.files.paths import START
from labcore.runs.spec.session import Session
from labcore.runs.store import columns, schema
from labcore.runs.store.rows import EVENTS
from tests.imports import ROOT, imported
from tests.llm.tools import records, session

TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def section(title: str) -> str:
    """What stands below a title, up to the next one."""
    return re.split(r"^#+ ", TEXT.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(title: str) -> list[list[str]]:
    """The cells of the table below a title, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    """What stands in backquotes, without the parameters of a function."""
    return [name.partition("(")[0] for name in re.findall(r"`([^`]+)`", cell)]


FOLDERS = [(names(name)[0], torch) for name, _, torch in rows("Folders")]


def imports(folder: str) -> set[str]:
    """The parts of labcore, and other packages, that a part imports anywhere in its files."""
    place = ROOT / "labcore" / folder
    paths = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    names = {name for path in paths for name in imported(path.read_text("utf-8"))}
    return {name.split(".")[1 if name.startswith("labcore.") else 0] for name in names}


def test_the_folders_are_those_of_the_engine():
    there = {path.stem for path in (ROOT / "labcore").iterdir()
             if (path.is_dir() and any(path.glob("*.py"))) or path.suffix == ".py"}
    assert [name for name, _ in FOLDERS] == sorted({*dict(FOLDERS)}, key=[name for name, _ in FOLDERS].index)
    assert {name for name, _ in FOLDERS} == there - {"__init__", "__main__"}


@pytest.mark.parametrize("folder, torch", FOLDERS)
def test_a_folder_imports_only_from_rows_above_it(folder, torch):
    order = [name for name, _ in FOLDERS]
    found = imports(folder)
    assert (found & set(order)) - {folder} <= set(order[:order.index(folder)])
    assert bool(found & {"torch", "transformers"}) == bool(torch)


SCENARIOS = ("tests/workers/two_homes",)  # what happens across many modules


@pytest.mark.parametrize("room", [name for name, _ in FOLDERS if (ROOT / "labcore" / name).is_dir()])
def test_a_test_is_named_after_the_module_that_it_tests(room):
    """After one of its folder, or the folder itself, with more words behind it where a module has several files."""
    wrong = []
    for file in (ROOT / "tests" / room).rglob("test_*.py"):
        place = file.parent.relative_to(ROOT / "tests")
        modules = {path.stem for path in (ROOT / "labcore" / place).glob("*")} | {place.name}
        if not any(f"{file.stem}_".startswith(f"test_{name}_") for name in modules) and not any(
                file.is_relative_to(ROOT / scenario) for scenario in SCENARIOS):
            wrong.append(file.name)
    assert wrong == []


def test_the_contract_of_a_session_is_the_protocol():
    told = [name for row in rows("A session") for name in names(row[0])]
    there = {*Session.__annotations__, *(name for name in vars(Session) if not name.startswith("_"))}
    assert sorted(told) == sorted(there) and {"knobs", "run"} <= there


def test_the_tables_are_those_of_the_schema():
    told = {names(table)[0]: text.partition(":")[0].split(", ") for table, text in rows("Store")}
    assert told == {name: [column.name for column in table.columns] for name, table in schema.metadata.tables.items()}


def test_the_events_are_those_that_can_be_logged():
    told = {names(kind)[0]: tuple(payload.split(", ")) if payload else () for kind, payload, _ in rows("Events")}
    assert told == EVENTS


def calls(loop: str, function: str, run: Callable[[], object]) -> list[str]:
    """The functions of the engine on the stack while `run` first calls `function`, from `loop` on: "module:name"."""
    target, stack = resolve_name(function).__code__, []

    def seen(frame: FrameType | None, event: str, argument: object) -> None:
        if event == "call" and not stack and frame is not None and frame.f_code is target:
            while frame is not None:
                stack.append(f"{frame.f_globals['__name__']}:{frame.f_code.co_name}")
                frame = frame.f_back
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    return [name for name in stack[stack.index(loop)::-1] if name.startswith("labcore.")]


def test_the_path_to_the_loss_is_the_stack_of_a_step():
    path = [names(line)[0] for line in section("From a row to its loss").splitlines() if re.match(r"\d\. ", line)]
    ppo = KINDS["llm"].algorithms["ppo"]
    assert ppo in resolve_name(names(section("From a row to its loss"))[0])
    assert path[0] == KINDS["llm"].loops[ppo.loop]
    assert path[-1] == f"labcore.maths.surrogates:{ppo.knob('surrogate').default}"
    assert calls(path[0], path[-1], lambda: records(session("ppo", steps=1))) == path


@pytest.mark.parametrize("algorithm, loss", [
    ("ppo", "labcore.llm.objective:loss"), ("grpo", "labcore.llm.objective:loss"),
    ("dpo", "labcore.llm.preference_objective:loss"), ("sft", "labcore.maths.supervised:nll"),
    ("reward_model", "labcore.maths.reward_model:bradley_terry")])
def test_from_a_loop_to_its_loss_there_are_two_calls(algorithm, loss):
    """Retries, probes, pictures and progress reports are wrapped around the loop, or stand beside it."""
    loop = KINDS["llm"].loops[KINDS["llm"].algorithms[algorithm].loop]
    path = calls(loop, loss, lambda: records(session(algorithm, steps=1)))
    assert len([name for name in path if name != "labcore.maths.call:call"]) - 1 == 2


def test_the_files_of_a_run_have_these_names():
    text = section("Files of a run")
    assert all(name in text for name in ("spec.json", f"{START}/", versions.FILE, columns.FILE))


def test_modules_that_are_named_are_there():
    for name in re.findall(r"`(labcore[\w.]*(?::\w+)?)`", TEXT):
        resolve_name(name)
    for name in re.findall(r"`((?:app|labcore|tests|workers|runs|store|catalog)/[\w/.]+)`", TEXT):
        assert (ROOT / name).exists() or (ROOT / "labcore" / name).exists(), name
