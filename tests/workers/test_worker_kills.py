"""Kills that are aimed: SIGKILL at each named point of what the lab writes, then everything goes on bit for bit.

The work is done by a forked child in which one function is wrapped, so that it kills its own process just before or
just after a call of it. Nothing in the lab knows of this.
"""

from __future__ import annotations

import os
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from alembic.operations import Operations
from sqlalchemy.engine.default import DefaultDialect

from labcore.exports.capsules import importing, packing
from labcore.exports.folder import export_run, export_zip
from labcore.runs.files import atomic, bases
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import home, run_folder
from labcore.runs.spec.run_spec import RunSpec, base_spec, make
from labcore.runs.store import changes, columns, migrations
from labcore.runs.store.schema import VERSION
from labcore.runs.store.store import Store
from labcore.workers import pictures, training
from tests.every import now
from tests.runs import fake
from tests.words import says
from tests.workers.tools import kinds, run

STEPS = 8
FIXTURE = Path(__file__).parents[1] / "fixtures" / "store-1.tar.xz"


@dataclass(frozen=True)
class Kill:
    """Where the process dies: before (or `after`) the `nth` call of `owner.name`; with `during` of those calls only
    that are made while that other kill's call goes on, and counted from its beginning."""

    owner: Any
    name: str
    nth: int = 1
    after: bool = False
    during: Kill | None = None

    def arm(self) -> None:
        if self.during:
            self.during._wrap(before=self._arm)
        else:
            self._arm()

    def _arm(self) -> None:
        self._wrap(**{"after" if self.after else "before": lambda: os.kill(os.getpid(), signal.SIGKILL)})

    def _wrap(self, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> None:
        """Have `before` and `after` called around the nth call."""
        real, calls = getattr(self.owner, self.name), iter(range(1, 10**9))

        def call(*args: Any, **given: Any) -> Any:
            this = next(calls) == self.nth
            if this:
                before()
            result = real(*args, **given)
            if this:
                after()
            return result

        setattr(self.owner, self.name, call)


def killed(kill: Kill, do: Callable[[], object]) -> None:
    """Do it in a child that dies at that point."""
    pid = os.fork()
    if pid == 0:
        try:
            kill.arm()
            do()
        finally:
            os._exit(0)  # it came through: the point was not reached
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL, "the point was never reached"


APPEND_7 = Kill(Store, "append", 7)
SECOND_SAVE = Kill(checkpoint, "save", 2)
RUN = {
    "the spec, before it has its name": Kill(Path, "replace"),
    "the reserve on the disk": Kill(Path, "write_bytes", 2),
    "the run says that it begins": Kill(Store, "set_state"),
    "a row, before its transaction": APPEND_7,
    "a row, written but not committed": Kill(DefaultDialect, "do_commit", during=APPEND_7),
    "a row, just committed": replace(APPEND_7, after=True),
    "a row, committed, and what the doctor says of it is not": Kill(training.Training, "_examine", 7),
    "a picture, before it has its name": Kill(Path, "replace", during=Kill(pictures.Pictures, "write", 2)),
    "a checkpoint, half written": Kill(Path, "write_text", 2, during=SECOND_SAVE),
    "a checkpoint, written, not yet synced": Kill(fake.FakeSession, "save", 2, after=True),
    "a checkpoint, before it has its name": Kill(Path, "rename", during=SECOND_SAVE),
    "a checkpoint, just renamed": Kill(Path, "rename", after=True, during=SECOND_SAVE),
    "a checkpoint, complete, but not in the events": replace(SECOND_SAVE, after=True),
    "an old checkpoint, taken away but not deleted": Kill(shutil, "rmtree", during=Kill(checkpoint, "save", 5)),
    "the rows as columns, before they have their name": Kill(Path, "replace", during=Kill(columns, "keep")),
    "the end, before it is said": Kill(changes, "move"),
    "the end, said but not committed": Kill(DefaultDialect, "do_commit", during=Kill(changes, "move")),
}


def _often(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint, "LADDER", 1)
    patch.setattr(training, "CHECKPOINT_STEPS", 1)
    patch.setattr(training, "CHECKPOINT_SHARE", 0)
    patch.setattr(columns, "STEPS", range(1, 1000))


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """A checkpoint at every step, the oldest soon deleted, and columns of the shortest run."""
    _often(monkeypatch)


@contextmanager
def lab(folder: Path) -> Iterator[Store]:
    """A lab in that folder, for runs that several tests start from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(folder))
        _often(patch)
        store = Store()
        yield store
        store.dispose()


def finished(store: Store, spec: RunSpec) -> str:
    """A run that nobody kills."""
    run_id = store.create(spec)
    assert run(store, run_id) == "finished"
    return run_id


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[tuple]:
    """What the run learns where nobody kills it."""
    with lab(tmp_path_factory.mktemp("whole")) as store:
        return fake.trained(store, finished(store, fake.grpo(STEPS)))


def left(folder: Path) -> set[str]:
    """What is in a folder, but not what an interrupted writer may leave: names that begin with a dot, which nobody
    reads."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.exists() else set()


def goes_on(store: Store, run_id: str) -> None:
    """The state that is said after a kill is right, and the run goes on from there to its end."""
    before, found = store.steps_after(run_id), store.run(run_id)
    assert store.reconcile() == ([run_id] if found.state in ("starting", "running") else [])
    row = store.run(run_id)
    assert (row.state, row.step) == ("interrupted", len(before))
    assert says(row.message, "interrupted", f"step {len(before)}", "process is gone", "resume")
    assert all({"policy", "state.json"} == left(path) for _, path in checkpoint.steps(run_folder(run_id)))
    newest = checkpoint.newest(run_folder(run_id))
    assert newest is None or newest[0] <= len(before)
    store.requeue(run_id)
    assert run(store, run_id) == "finished"
    assert store.steps_after(run_id)[:len(before)] == before, "what was written stays as it was"
    assert not [path for path in (run_folder(run_id) / "checkpoints").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("point", now(
    RUN, "the spec, before it has its name", "a row, written but not committed", "a row, just committed",
    "a picture, before it has its name", "a checkpoint, half written", "a checkpoint, just renamed",
    "an old checkpoint, taken away but not deleted", "the rows as columns, before they have their name",
    "the end, said but not committed"))
def test_a_run_that_is_killed_goes_on_bit_for_bit(store, whole, point):
    run_id = store.create(fake.grpo(STEPS))
    killed(RUN[point], lambda: run(store, run_id))
    goes_on(store, run_id)
    assert fake.trained(store, run_id) == whole


SFT_3 = Kill(Store, "append", 3)
BASE = {
    "the run of SFT is made, and not yet told to the run that waits": Kill(Store, "set_base"),
    "a row of SFT, written but not committed": Kill(DefaultDialect, "do_commit", during=SFT_3),
    "a checkpoint of SFT, before it has its name": Kill(Path, "rename", during=SECOND_SAVE),
    "SFT is finished, its model not kept": Kill(bases, "keep"),
    "the base model, before it has its name": Kill(Path, "rename", during=Kill(bases, "keep")),
    "the base model is kept, the run not begun": Kill(bases, "keep", after=True),
}


ON_BASE = make(algorithm_key="grpo", task_key="sort", steps=4, knobs=fake.PLAIN | {"sft_steps": 5})


@pytest.fixture(scope="module")
def whole_on_base(tmp_path_factory) -> list[tuple]:
    """What a run learns, whose base is made by SFT, where nobody kills it."""
    with lab(tmp_path_factory.mktemp("base")) as store:
        return fake.trained(store, finished(store, ON_BASE))


@pytest.mark.parametrize("point", now(
    BASE, "the run of SFT is made, and not yet told to the run that waits",
    "a row of SFT, written but not committed", "the base model, before it has its name"))
def test_a_run_that_is_killed_while_its_base_is_made_goes_on_bit_for_bit(store, whole_on_base, point):
    spec = ON_BASE
    run_id = store.create(spec)
    killed(BASE[point], lambda: run(store, run_id))
    store.reconcile()
    assert store.run(run_id).state == "interrupted" and store.runs("starting", "running") == []
    store.requeue(run_id)
    assert run(store, run_id) == "finished"
    base = store.run(run_id).base
    assert len(store.steps_after(base)) == 5 and left(bases.folder(base_spec(spec).hash()) / "model") == {"state.json"}
    assert fake.trained(store, run_id) == whole_on_base


FORK = {
    "the fork, written but not committed": Kill(DefaultDialect, "do_commit", during=Kill(Store, "create_all")),
    "what the fork starts from, before it has its name": Kill(Path, "rename", during=Kill(checkpoint, "take_along")),
    "what the fork starts from, before the fork starts": Kill(checkpoint, "take_along", after=True),
    "the fork, before its first checkpoint": Kill(checkpoint, "save"),
    "the fork, after its first checkpoint": Kill(checkpoint, "save", after=True),
    "the fork, in its first row": Kill(DefaultDialect, "do_commit", during=Kill(Store, "append")),
}


@pytest.fixture(scope="module")
def family(tmp_path_factory) -> tuple[Path, str, str]:
    """A lab with a run and its fork, and what they are called."""
    folder = tmp_path_factory.mktemp("family")
    with lab(folder) as store:
        parent = finished(store, fake.grpo(6))
        return folder, parent, finished(store, replace(store.run(parent).spec, parent=(parent, 5), steps=8))


@pytest.mark.parametrize("point", now(
    FORK, "the fork, written but not committed", "what the fork starts from, before it has its name",
    "the fork, in its first row"))
def test_a_fork_that_is_killed_is_not_there_or_goes_on_bit_for_bit(family, lab_home, point):
    folder, parent, child = family
    shutil.copytree(folder, lab_home)
    store = Store()
    rows, spec = fake.trained(store, parent), store.run(child).spec
    killed(FORK[point], lambda: run(store, store.create(spec)))
    store.reconcile()
    others = [row for row in store.children(parent) if row.id != child]
    if not others:  # it was never committed: nothing of it is in a list
        others = [store.run(store.create(spec))]
    elif others[0].state != "queued":
        assert others[0].state == "interrupted"
        store.requeue(others[0].id)
    assert run(store, others[0].id) == "finished"
    assert fake.trained(store, others[0].id) == fake.trained(store, child)
    assert fake.trained(store, parent) == rows


EXPORT = {
    "the metrics are written, the spec is not": Kill(Path, "write_text"),
    "the checkpoint is copied, before it has its name": Kill(Path, "rename", during=Kill(atomic, "write_folder")),
    "the zip, before it has its name": Kill(Path, "replace"),
}


@pytest.mark.parametrize("point", EXPORT)
def test_an_export_that_is_killed_leaves_the_run_and_the_export_of_before(store, tmp_path, point):
    run_id = store.create(fake.grpo(6))
    assert run(store, run_id) == "finished"
    zipped, rows = export_zip(store, run_id).read_bytes(), store.steps_after(run_id)
    export_run(store, run_id, tmp_path / "whole")

    def export() -> None:
        export_run(store, run_id, tmp_path / "out")
        export_zip(store, run_id)

    killed(EXPORT[point], export)
    assert (run_folder(run_id) / "export" / f"{run_id}.zip").read_bytes() == zipped
    assert store.steps_after(run_id) == rows and store.run(run_id).state == "finished"
    assert tree(export_run(store, run_id, tmp_path / "out")) == tree(tmp_path / "whole")
    export_zip(store, run_id)


IMPORT = {
    "its checkpoints are copied": Kill(shutil, "copytree", 2),
    "its folder, before it has its name": Kill(Path, "rename"),
    "its folder is there, its run is not in the store": Kill(Store, "add"),
    "its run is in the store": Kill(Store, "add", after=True),
}


@pytest.mark.parametrize("point", IMPORT)
def test_an_import_that_is_killed_leaves_a_whole_run_or_none(store, tmp_path, point):
    run_id = store.create(fake.grpo(6))
    assert run(store, run_id) == "finished"
    rows, path = store.steps_after(run_id), packing.write(store, run_id, tmp_path / "run.zip")
    killed(IMPORT[point], lambda: importing.import_capsule(store, path))
    new = [row.id for row in store.runs() if row.id != run_id]
    assert len(new) == (point == "its run is in the store")
    again = importing.import_capsule(store, path)
    assert all(store.steps_after(each) == rows for each in (*new, again))
    assert {each.parent.name for each in home().glob("*/spec.json")} == {row.id for row in store.runs()}
    assert not [*home().glob("*/importing")]


def tree(folder: Path) -> dict[str, bytes]:
    """The files in a folder, but not what an interrupted writer may leave."""
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {str(path): (folder / path).read_bytes() for path in files if not path.parts[0].startswith(".")}


MIGRATION = {
    "a new column": Kill(Operations, "add_column", 2),
    "the numbers of the runs": Kill(migrations, "_upgrade", 4, after=True),  # from version 1 the 4th makes version 5
    "the last number": Kill(migrations, "_upgrade", 5, after=True),
    "all of it, before the version": Kill(migrations, "_upgrade", int(VERSION) - 1, after=True),
    "all of it, not committed": Kill(DefaultDialect, "do_commit"),
    "all of it, just committed": Kill(DefaultDialect, "do_commit", after=True),
}


def old_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab whose store is of version 1."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder, filter="data")
    monkeypatch.setenv("RL_LAB_HOME", str(next(folder.rglob("lab.db")).parent))


@pytest.mark.parametrize("point", now(
    MIGRATION, "a new column", "all of it, before the version", "all of it, just committed"))
def test_a_migration_that_is_killed_is_done_at_the_next_start(tmp_path, monkeypatch, point):
    old_store(tmp_path / "whole", monkeypatch)
    expected = Store().runs()
    old_store(tmp_path / "killed", monkeypatch)
    killed(MIGRATION[point], Store)
    assert expected and Store().runs() == expected


# ---------------------------------------------------------------- the power goes


def test_a_store_that_is_behind_its_checkpoints_makes_the_missing_steps_again(store, whole):
    """A power cut may take the last rows, though not a checkpoint that was written after them; so may a backup."""
    run_id = store.create(fake.grpo(STEPS))
    copy = home() / "copy.db"

    def back_up() -> None:
        store.dispose()  # SQLite brings its log into the file
        shutil.copy(home() / "lab.db", copy)

    assert run(store, run_id, {3: back_up, 7: lambda: store.ask(run_id, "stop")}) == "stopped"
    store.dispose()
    copy.replace(home() / "lab.db")
    store = Store()
    assert len(store.steps_after(run_id)) == 3 and checkpoint.newest(run_folder(run_id))[0] == 7
    with store._writing() as connection:  # as at the next start, when the process that had it is gone
        changes.move(connection, run_id, "interrupted", "")
    store.requeue(run_id)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == whole
    assert kinds(store, run_id)[-2:] == ["resumed", "finished"]
