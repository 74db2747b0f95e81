"""Two machines with a home each, one object store between them, and one store of runs."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

from app.training import files
from labcore.cli.main import main
from labcore.errors import LabError
from labcore.exports.capsules import packing
from labcore.exports.folder import export_run
from labcore.files import bases, uploads
from labcore.files import checkpoints as checkpoint
from labcore.files.artifacts import cache, deletion, fetch, manifest, object_store, publisher, state
from labcore.files.paths import run_folder
from labcore.jobs import models
from labcore.llm.nets.folder import find
from labcore.runs import versions
from labcore.runs.fork import fork_spec, steps_to_fork
from labcore.shelf import disk
from labcore.spec import model_names
from labcore.spec.run_spec import RunSpec, base_spec, make
from labcore.store.store import Store
from labcore.tasks.task import make_task
from labcore.workers import publishing
from labcore.workers.launcher import Launcher
from labcore.workers.publishing import OfLab
from labcore.workers.worker import drive
from tests.runs import fake
from tests.workers.tools import LIGHT, Background, kinds, learnt, run, until

STEPS = 60  # checkpoints at 0, 50 and the end


@dataclass(frozen=True)
class Machines:
    """The shared folder, and the homes by their names. One home is in use; the others cannot be seen."""

    root: Path
    patch: pytest.MonkeyPatch

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def at(self, name: str) -> Path:
        for thread in threading.enumerate():
            if thread.name == "publisher":  # that of a worker which has ended: its process would be gone
                thread.join(2)
        for home in self.root.glob("home-*"):
            home.rename(home.with_name(home.name.replace("home-", "hidden-")))
        hidden, home = self.root / f"hidden-{name}", self.root / f"home-{name}"
        if hidden.exists():
            hidden.rename(home)
        self.patch.setenv("RL_LAB_HOME", str(home))
        return home

    def unplug(self) -> None:
        self.shared.rename(self.root / "unplugged")

    def plug(self) -> None:
        (self.root / "unplugged").rename(self.shared)


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """No answer of the store is kept, so that no test waits."""
    found = Machines(tmp_path, monkeypatch)
    found.shared.mkdir()
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{found.shared}")
    monkeypatch.setenv("RL_LAB_STORE", f"sqlite:///{tmp_path / 'lab.db'}")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", -1)
    monkeypatch.setattr(fetch, "AWAY_SECONDS", -1)
    monkeypatch.setattr(publisher, "RETRY_SECONDS", 0.01)
    object_store._opened.cache_clear()
    found.at("a")
    return found


@pytest.fixture
def store(machines):
    return Store()


def interrupt():
    raise KeyboardInterrupt


def whole(store, spec):
    """What the run learns where nobody disturbs it."""
    run_id = store.create(spec, mine=True)
    assert run(store, run_id) == "finished"
    return fake.trained(store, run_id)


def published(store, run_id) -> list[str]:
    return [event.kind for event in store.events_after(run_id) if event.kind in ("published", "unpublished")]


def test_a_run_that_was_interrupted_ends_in_another_home_bit_for_bit(machines, store):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == undisturbed
    assert kinds(store, run_id)[-2:] == ["resumed", "finished"] and published(store, run_id) == []
    b = [step for step, _ in checkpoint.here(run_folder(run_id))]
    assert b == [50, 60] and [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]
    samples = sorted(path.name for path in (run_folder(run_id) / "samples").iterdir())
    assert samples == sorted(fetch.files(run_id, "samples")) and "step-000005.json" in samples
    machines.at("a")  # which has it from before, and less of it
    assert checkpoint.newest(run_folder(run_id)) == (60, run_folder(run_id) / "checkpoints" / "step-000060")


def test_a_language_model_goes_on_in_another_home_bit_for_bit(machines, store):
    """A real one with an adapter on a run's policy, which only the store has by then."""
    knobs = {"sft_steps": 0, "prompts_per_step": 2, "group_size": 2}
    given = {"algorithm_key": "grpo", "task_key": "sort", "steps": 4}
    first = store.create(make(**given, knobs=knobs), mine=True)
    assert drive(store, first) == "finished", store.run(first).message
    spec = make(**given, model=model_names.model_of_name(first), knobs=knobs | {"lora_rank": 2})
    undisturbed, run_id = (store.create(spec, mine=True) for _ in range(2))
    assert drive(store, undisturbed) == "finished", store.run(undisturbed).message
    stop = {2: lambda: store.ask(run_id, "stop")}
    assert drive(store, run_id, on_record=lambda who, record, _: stop.pop(record.step, int)()) == "stopped"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert drive(store, run_id) == "finished", store.run(run_id).message
    assert learnt(store, run_id) == learnt(store, undisturbed) and len(learnt(store, run_id)) == 4
    assert [step for step, _ in checkpoint.here(run_folder(first))] == [4]


def test_all_is_published_before_the_end_is_said(machines, store, monkeypatch):
    at_the_end = []
    real = Store.set_state

    def set_state(self, run_id, state_, *given, **named):
        if state_ == "finished":
            at_the_end.extend([fetch.checkpoints(run_id), fetch.files(run_id, "samples"), fetch.files(run_id, "run"),
                               state.is_published(run_id, object_store.opened().begin())])
        real(self, run_id, state_, *given, **named)

    monkeypatch.setattr(Store, "set_state", set_state)
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    checkpoints, samples, files, complete = at_the_end
    assert checkpoints == ["step-000000", "step-000050", "step-000060"] and complete
    assert samples == [f"step-{step:06d}.json" for step in range(5, 61, 5)]
    assert set(files) == {"spec.json", "versions.json"}


def test_a_store_that_goes_away_in_mid_run_and_returns(machines, store):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)

    def plug():
        until(lambda: published(store, run_id))
        machines.plug()

    assert run(store, run_id, {20: machines.unplug, 55: plug}) == "finished"
    assert fake.trained(store, run_id) == undisturbed
    assert published(store, run_id) == ["unpublished", "published"]
    machines.at("b")
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]


def test_a_store_that_stays_away_is_said_at_the_end_and_nothing_is_lost(machines, store):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {20: machines.unplug}) == "finished"
    assert published(store, run_id) == ["unpublished"] and not machines.shared.exists()
    said = next(event for event in store.events_after(run_id) if event.kind == "unpublished").payload["text"]
    assert "is not there" in said and str(machines.root / "home-a") in said
    assert fake.trained(store, run_id) == undisturbed
    machines.plug()
    store_id = object_store.opened().begin()
    assert not state.is_published(run_id, store_id)
    assert publisher.unpublished(object_store.opened()) == [run_id]


def test_a_run_begins_where_the_store_is_away_but_is_not_resumed_from_nothing(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    machines.unplug()
    assert run(store, run_id, {57: interrupt}) == "interrupted"  # all of it was made without the store
    store.requeue(run_id, mine=True)
    assert run(store, run_id, {58: interrupt}) == "interrupted"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "failed"
    message = store.run(run_id).message
    assert "There is no folder" in message and store.run(run_id).step == 58


@pytest.mark.parametrize("nth", [1, 3, 5, 8, 11])
def test_a_worker_killed_while_it_publishes_is_resumed_elsewhere_bit_for_bit(machines, store, nth):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS))
    store.dispose()
    pid = os.fork()
    if pid == 0:
        writes = iter(range(1, 1000))
        real = object_store.ObjectStore._put

        def put(self, *given):
            if next(writes) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            real(self, *given)

        object_store.ObjectStore._put = put
        object_store._opened.cache_clear()
        run(store, run_id)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert store.reconcile() == [run_id]
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == undisturbed


def test_a_damaged_checkpoint_is_not_resumed_from(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    for path in (machines.shared / run_id / "checkpoints" / "step-000050").iterdir():
        if path.name != manifest.NAME:
            path.write_bytes(path.read_bytes()[1:])
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "failed"
    assert "step-000050 in file://" in store.run(run_id).message and "is damaged" in store.run(run_id).message
    assert checkpoint.here(run_folder(run_id)) == []
    machines.at("a")  # which still has it
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"


def test_a_store_that_was_away_to_the_end_has_all_after_the_next_start_of_the_lab(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {20: machines.unplug}) == "finished"
    machines.plug()
    with OfLab(store) as lab:
        assert lab.flush()
    assert published(store, run_id) == ["unpublished", "published"]
    machines.at("b")
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]
    assert len(fetch.files(run_id, "samples")) == STEPS // 5


def test_a_home_that_comes_late_takes_nothing_from_the_store(machines, store):
    """A was cut off, B went on: what A publishes at its next start is older and less."""
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {32: machines.unplug, 57: interrupt}) == "interrupted"
    machines.plug()
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    before = {name: path.read_bytes() for name, path in objects(machines.shared).items()}
    machines.at("a")
    with OfLab(store) as lab:
        assert lab.flush()
    after = {name: path.read_bytes() for name, path in objects(machines.shared).items()}
    assert {name: after.get(name) for name in before} == before


def objects(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("gone", [False, True])
def test_a_fork_starts_in_a_home_that_has_nothing_of_its_parent(machines, store, gone):
    """Also where the parent was deleted since."""
    parent = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, parent) == "finished"
    here = store.create(fork_spec(store, parent, 50, steps=70), mine=True)
    assert run(store, here) == "finished"
    machines.at("b")
    assert steps_to_fork(parent) == [0, 50, 60]
    fork = store.create(fork_spec(store, parent, 50, steps=70))
    assert not (run_folder(fork) / "start").exists()
    if gone:
        store.delete(parent)
        deletion.clear(object_store.opened())
        assert fetch.checkpoints(parent) == []
    assert store.claim(fork)
    assert run(store, fork) == "finished", store.run(fork).message
    assert fake.trained(store, fork) == fake.trained(store, here)
    assert not objects(machines.shared / fork / "start")  # no longer needed


def test_what_the_page_and_the_exports_want_of_a_run_comes_from_the_store(machines, store, tmp_path):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.at("b")
    assert files.steps_of(run_id, "samples") == list(range(5, 61, 5))
    assert files.steps_of(run_id, "lines") == [20, 40, 60]
    assert files.load(run_id, "samples", 25) == {"step": 25, "groups": []}
    assert files.load(run_id, "samples", 26) is None
    assert [path.name for path in (run_folder(run_id) / "samples").iterdir()] == ["step-000025.json"]
    assert models.spec_of(run_id) == store.run(run_id).spec and models.steps(run_id) == [0, 50, 60]
    assert model_names.parse(run_id).pinned.step == 60
    assert models.source(model_names.parse(f"{run_id}@50")).checkpoint.is_dir()
    assert versions.noted(run_folder(run_id))[0]["lab"]
    folder = export_run(store, run_id, tmp_path / "export")
    assert (folder / "checkpoint" / "state.json").is_file()
    with ZipFile(packing.write(store, run_id, tmp_path / "capsule.zip")) as capsule:
        names = capsule.namelist()
    assert {"checkpoints/step-000000/state.json", "checkpoints/step-000060/state.json", "samples/step-000005.json"} <= {
        name.partition("/")[2] if name.startswith(run_id) else name for name in names}


def test_a_store_that_is_away_is_said_where_something_is_wanted_of_it(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    object_store.opened().begin()
    machines.at("b")
    machines.unplug()
    assert files.steps_of(run_id, "samples") == [] and checkpoint.steps(run_folder(run_id)) == []
    with pytest.raises(LabError, match="is not there"):
        files.load(run_id, "samples", 25)


def test_a_base_is_made_once_for_both_homes(machines, store):
    spec = replace(fake.grpo(10), knobs=fake.grpo(10).knobs | {"sft_steps": 4, "length_high": 6})
    name = base_spec(spec).hash()
    assert not bases.shipped(name)
    first = store.create(spec, mine=True)
    assert run(store, first) == "finished", store.run(first).message
    machines.at("b")
    assert bases.there(name) and not bases.folder(name).exists()
    second = store.create(spec, mine=True)
    assert run(store, second) == "finished", store.run(second).message
    assert fake.trained(store, second) == fake.trained(store, first)
    assert bases.maker(name) == store.run(first).base == store.run(second).base


def test_a_file_that_a_spec_names_in_another_home_is_fetched(machines, store):
    kept = uploads.keep("lines.jsonl", b'{"prompt": "a", "answer": "b"}\n' * 8)
    spec = make(algorithm_key="grpo", task_key="prompts", steps=STEPS, data=str(kept))
    digest, size = spec.hash(), make_task(spec.task_row, spec.knobs, spec.data).size
    home = machines.at("b")
    assert not kept.exists() and spec.hash() == digest
    assert make_task(spec.task_row, spec.knobs, spec.data).size == size
    assert uploads.file_at(kept.parent.name) == home / "uploads" / kept.parent.name / "lines.jsonl"
    assert RunSpec.from_json(spec.to_json()) == spec


def test_a_model_that_a_spec_names_in_another_home_is_fetched(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    model = model_names.model_of_name(f"{run_id}@50")
    machines.at("b")
    assert not Path(model).exists()
    assert find(model) == run_folder(run_id) / "checkpoints" / "step-000050" / "policy" and find(model).is_dir()
    assert model_names.model_of_name(f"{run_id}@50") == str(find(model))


def test_a_deleted_run_is_deleted_in_the_store_and_no_home_brings_it_back(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.at("b")
    checkpoint.newest(run_folder(run_id))
    files.load(run_id, "samples", 25)
    machines.at("a")
    with OfLab(store) as lab:
        store.delete(run_id)
        assert lab.flush()
    assert list(objects(machines.shared)) == [object_store.MARKER]
    machines.at("b")
    with OfLab(store) as lab:
        assert lab.flush()
    assert list(objects(machines.shared)) == [object_store.MARKER]


def test_a_run_that_is_deleted_while_the_store_is_away_is_deleted_there_later(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.unplug()
    store.delete(run_id)
    machines.plug()
    with OfLab(store) as lab:
        assert lab.flush()
    assert list(objects(machines.shared)) == [object_store.MARKER]


def test_a_clean_up_deletes_in_the_store_too(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.at("b")
    with OfLab(store) as lab:
        disk.delete_spare(run_id)
        assert lab.flush()
    machines.at("c")
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 60]
    assert files.steps_of(run_id, "samples") == [] and models.spec_of(run_id).steps == STEPS


def test_a_checkpoint_beyond_the_last_row_is_not_taken_up_again_from_the_store(machines, store, monkeypatch):
    """Also where the answers of the store are kept as long as usual, and it cannot delete the checkpoint just now."""
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    machines.at("b")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", 60)
    fetch.forget_answers()
    assert checkpoint.newest_step(run_folder(run_id)) == 50
    monkeypatch.setattr(deletion, "clear", lambda store: [])
    checkpoint.forget_after(run_folder(run_id), 40)
    assert checkpoint.newest_step(run_folder(run_id)) == 0


def test_a_run_under_way_is_never_marked_as_published(machines, store):
    """Else what it wrote just before it was killed would never be sent."""
    run_id, seen = store.create(fake.grpo(STEPS), mine=True), []

    def look():
        until(lambda: fetch.checkpoints(run_id))
        seen.append(state.is_published(run_id, object_store.opened().begin()))

    assert run(store, run_id, {10: look, 52: look}) == "finished"
    assert seen == [False, False] and state.is_published(run_id, object_store.opened().begin())


def test_a_store_that_hangs_does_not_hold_a_run_that_is_asked_to_stop(machines, store, monkeypatch):
    run_id, free = store.create(fake.grpo(STEPS)), threading.Event()
    real = object_store.ObjectStore._put
    monkeypatch.setattr(object_store.ObjectStore, "_put", lambda self, *given: free.wait() and real(self, *given))
    monkeypatch.setattr(publishing, "LOOK_SECONDS", 0.0)
    object_store.opened()
    (machines.shared / object_store.MARKER).write_text('{"format": 1, "id": "a"}')
    worker = Background(store, run_id)
    until(lambda: store.run(run_id).message == "publishing its files")
    assert store.run(run_id).state == "running" and store.run(run_id).step == STEPS
    store.ask(run_id, "stop")
    worker.join()
    assert worker.state == "finished" and published(store, run_id) == ["unpublished"] and not store.asked(run_id)
    free.set()
    with OfLab(store) as lab:
        assert lab.flush()
    assert published(store, run_id) == ["unpublished", "published"]


# ---------------------------------------------------------------- the command


def test_the_command_publishes_what_is_not_published_and_sends_again_what_is_damaged(machines, store, capsys):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {20: machines.unplug}) == "finished"
    assert main(["publish"]) == 1 and "is not there" in capsys.readouterr().err
    machines.plug()
    assert main(["publish"]) == 0 and capsys.readouterr().out == f"{run_id} is published.\n"
    assert main(["publish"]) == 0 and "All that this machine has is in file://" in capsys.readouterr().out
    before = {name: path.read_bytes() for name, path in objects(machines.shared).items()}
    for name, path in objects(machines.shared).items():
        if name.startswith(run_id):
            path.write_bytes(b"{}" if name.endswith(manifest.NAME) else b"")
    assert main(["publish", run_id, "--again"]) == 0
    assert {name: path.read_bytes() for name, path in objects(machines.shared).items()} == before


@pytest.mark.parametrize("words, says", [
    (["nothing"], "no files of a run 'nothing'"), (["base/abc"], "no files of a run"), (["--again"], "name the runs"),
    (["../x"], "no files of a run")])
def test_the_command_says_what_it_cannot_publish(machines, store, capsys, words, says):
    assert main(["publish", *words]) == 1 and says in capsys.readouterr().err


def test_the_command_says_that_there_is_no_store(monkeypatch, lab_home, capsys):
    assert main(["publish"]) == 1 and "set RL_LAB_ARTIFACTS to s3://" in capsys.readouterr().err


def test_the_command_leaves_a_run_that_is_going_to_its_worker(machines, store, capsys):
    run_id = store.create(fake.grpo(STEPS))
    run_folder(run_id).mkdir(parents=True)
    assert main(["publish", run_id]) == 1 and "its worker publishes it" in capsys.readouterr().err


# ---------------------------------------------------------------- the bound


@pytest.fixture
def old(monkeypatch):
    """Everything was used longer ago than an hour, and a minute has passed since the last look."""
    monkeypatch.setattr(cache, "USED_SECONDS", -1)
    monkeypatch.setattr(cache, "LOOK_SECONDS", -1)


def small(monkeypatch, size: float):
    monkeypatch.setenv("RL_LAB_CACHE_GB", str(size / 1e9))


def test_what_was_used_longest_ago_goes_first_and_comes_back(machines, store, old, monkeypatch):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    for age, (_, path) in enumerate(reversed(checkpoint.here(run_folder(run_id)))):
        os.utime(path, (1e9 - age, 1e9 - age))
    whole = cache.trim(set)
    assert whole == 0 and len(checkpoint.here(run_folder(run_id))) == 3
    total = sum(each.size for each in cache._kept())
    small(monkeypatch, total - 1)
    assert cache.trim(set) > 0
    assert [step for step, _ in checkpoint.here(run_folder(run_id))] == [50, 60]
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]
    assert checkpoint.at(run_folder(run_id), 0).is_dir()
    small(monkeypatch, 1)
    cache.trim(set)
    assert checkpoint.here(run_folder(run_id)) == [] and (run_folder(run_id) / "spec.json").is_file()
    assert not list((machines.root / "home-a" / ".artifacts").glob("dropped/*"))
    assert files.load(run_id, "samples", 25)["step"] == 25


def test_what_is_not_published_or_live_or_just_used_stays(machines, store, old, monkeypatch):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    small(monkeypatch, 1)
    assert cache.trim(lambda: {run_id}) == 0  # live
    state.set_changed(run_id)
    assert cache.trim(set) == 0  # not published
    state.set_published(run_id, object_store.opened().begin())
    monkeypatch.setattr(cache, "USED_SECONDS", 3600)
    assert cache.trim(set) == 0  # just used
    for path in (run_folder(run_id) / "checkpoints").iterdir():
        os.utime(path, (1e9, 1e9))
    checkpoint.newest(run_folder(run_id))  # counts as a use
    assert cache.trim(set) > 0
    assert [step for step, _ in checkpoint.here(run_folder(run_id))] == [60]


def test_what_a_worker_is_about_to_go_on_with_is_not_dropped(machines, store, old, monkeypatch):
    """It takes what is here for all that there is: a clean-up that began before must not come in between."""
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    os.utime(run_folder(run_id) / "samples", (1e9, 1e9))
    monkeypatch.setattr(cache, "USED_SECONDS", 3600)
    small(monkeypatch, 1)
    fetch.bring_run(run_id)
    cache.trim(set)
    assert files.steps_of(run_id, "samples") and (run_folder(run_id) / "samples" / "step-000005.json").is_file()


def test_a_run_whose_files_were_dropped_is_resumed_bit_for_bit(machines, store, old, monkeypatch):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    small(monkeypatch, 1)
    assert cache.trim(set) > 0 and checkpoint.here(run_folder(run_id)) == []
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished", store.run(run_id).message
    assert fake.trained(store, run_id) == undisturbed
    assert len(fetch.files(run_id, "samples")) == STEPS // 5


@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "inf"])
def test_a_bound_that_is_none_is_one_sentence(monkeypatch, text):
    monkeypatch.setenv("RL_LAB_CACHE_GB", text)
    with pytest.raises(LabError, match=r"RL_LAB_CACHE_GB is .* set it to the gigabytes"):
        cache.limit()


def test_a_lab_whose_store_cannot_be_used_does_not_open(machines, store, monkeypatch):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{machines.root / 'nowhere'}")
    with pytest.raises(LabError, match="There is no folder"):
        Launcher(store)


def test_the_process_that_forks_has_no_thread_of_the_store(machines, store):
    lab = Launcher(store, LIGHT)
    try:
        run_id = lab.start(make(kind="maze", algorithm_key="sarsa_lambda", task_key="slippery", steps=40,
                                knobs={"pace": 0}))
        until(lambda: store.run(run_id).state == "finished")
        assert psutil.Process(lab._process.pid).num_threads() == 1
        machines.at("b")
        assert checkpoint.newest_step(run_folder(run_id)) == 40
    finally:
        machines.at("a")
        lab.close()
