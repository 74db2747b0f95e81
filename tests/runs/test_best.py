"""The best policy by held-out rows: which it is, and that its checkpoint is kept, marked, exported and found again."""

import copy
import json
from dataclasses import replace
from typing import ClassVar

import pytest

from labcore.errors import Diverged, LabError
from labcore.exports.folder import export_run, export_zip
from labcore.runs.best import Best, best_of, measured, words
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.lists import cleanup
from labcore.workers import training
from labcore.workers.worker import drive
from tests.runs import fake
from tests.words import saying

GREEDY = {1: 0.2, 4: 0.3, 8: 0.6, 12: 0.6, 16: 0.5, 20: 0.1}  # of a run of 20 steps, whose first is before training


@pytest.mark.parametrize(("rows", "step"), [
    ({1: {"held_out/greedy": 0.5}, 25: {"held_out/greedy": 0.4}}, 0),  # training only made it worse
    ({1: {"held_out/greedy": 0.1}, 25: {"held_out/greedy": 0.4}, 50: {"held_out/greedy": 0.4}}, 25),
    ({25: {"held_out/greedy": 0.4, "held_out/accuracy": 0.3}, 50: {"held_out/greedy": 0.4, "held_out/accuracy": 0.31}},
     50),
    ({25: {"held_out/greedy": 0.0, "held_out/accuracy": 0.0, "held_out/reward": 0.1},
      50: {"held_out/greedy": 0.0, "held_out/accuracy": 0.0, "held_out/reward": 0.2}}, 50),
    ({25: {"held_out/loss": 1.2, "held_out/greedy": 0.9}, 50: {"held_out/loss": 1.1, "held_out/greedy": 0.1}}, 50),
    ({1: {"eval_accuracy": 0.7}, 10: {"eval_accuracy": 0.6}}, 1),  # a reward model is measured after its update
    ({25: {"held_out/pair_accuracy": 0.5, "held_out/margin": 0.1},
      50: {"held_out/pair_accuracy": 0.5, "held_out/margin": 0.2}}, 50),
    ({25: {"held_out/margin": 0.1}, 26: {"reward": 9.0}, 50: {"held_out/margin": -0.2}}, 25)])
def test_the_best_row(rows, step):
    assert best_of(rows.items()).step == step


def test_nothing_measured_is_no_candidate():
    assert measured(3, {"reward": 1.0}) is None and best_of([(3, {"reward": 1.0})]) is None
    assert measured(40, {"held_out/greedy": 0.625}) == Best(40, "held_out/greedy", 0.625, (0.625,))
    assert words({"step": 40, "metric": "held_out/loss", "value": 0.41234}) == "held-out loss 0.412"


class Measured(fake.FakeSession):
    """Its held-out rows are measured at some steps."""

    def run(self):
        for record in super().run():
            found = {"held_out/greedy": GREEDY[record.step]} if record and record.step in GREEDY else {}
            yield replace(record, metrics=record.metrics | found) if record else record


def ran(store, run_id, start=Measured.start):
    return drive(store, run_id, start=start)


def test_the_checkpoint_of_the_best_is_kept_beside_the_newest(tmp_path, store):
    run_id = store.create(fake.grpo(20))
    assert ran(store, run_id) == "finished"
    folder = run_folder(run_id)
    assert [step for step, _ in checkpoint.steps(folder)] == [0, 4, 8, 20]  # each was the best of its time
    assert checkpoint.best(folder) == {"step": 8, "metric": "held_out/greedy", "value": 0.6}
    best = json.loads((checkpoint.at(folder, 8) / "policy" / "state.json").read_text())

    out = export_run(store, run_id, tmp_path / "best", best=True)
    assert json.loads((out / "checkpoint" / "state.json").read_text()) == best and best["step"] == 8
    assert json.loads((export_run(store, run_id, tmp_path / "newest") / "checkpoint" / "state.json").read_text())[
        "step"] == 20
    assert export_zip(store, run_id, best=True).stat().st_size > 0
    cleanup.delete_spare(run_id)
    assert [step for step, _ in checkpoint.steps(folder)] == [0, 8, 20]


class Keeping(Measured):
    """It can copy what it would save. `writes` are the steps that were written, in their order."""

    writes: ClassVar[list[int]] = []
    short = False

    def kept(self):
        if self.short:
            return None
        there = copy.deepcopy(self)
        return lambda folder: there.save(folder)

    def save(self, folder):
        self.writes.append(self.step)
        super().save(folder)


class Short(Keeping):
    short = True


@pytest.fixture
def costly(monkeypatch):
    """A checkpoint is so costly that none but the first is due before the end."""
    monkeypatch.setattr(training, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(Keeping, "writes", [])


@pytest.mark.parametrize("start, expected", [(Keeping, [0, 8, 20]), (Short, [0, 4, 8, 20])])
def test_a_best_waits_in_memory_where_another_checkpoint_would_take_too_much_time(costly, start, expected, store):
    run_id = store.create(fake.grpo(20))
    assert ran(store, run_id, start.start) == "finished"
    folder = run_folder(run_id)
    assert [step for step, _ in checkpoint.steps(folder)] == Keeping.writes == expected
    assert checkpoint.best_step(folder) == 8
    assert json.loads((checkpoint.at(folder, 8) / "policy" / "state.json").read_text())["step"] == 8


@pytest.mark.parametrize("error, state", [(Diverged(10, "policy loss"), "diverged"), (LabError("Broken."), "failed")])
def test_a_best_that_waits_is_written_where_the_run_breaks(costly, error, state, monkeypatch, store):
    run_id = store.create(fake.grpo(20))
    monkeypatch.setattr(fake.FakeSession, "break_at", {10: error})
    assert ran(store, run_id, Keeping.start) == state
    assert Keeping.writes == [0, 8] and checkpoint.best_step(run_folder(run_id)) == 8
    monkeypatch.setattr(fake.FakeSession, "break_at", {})
    store.requeue(run_id, mine=True)
    assert ran(store, run_id, Keeping.start) == "finished" and checkpoint.best_step(run_folder(run_id)) == 8


def test_a_run_without_held_out_rows_has_no_best(tmp_path, store):
    run_id = store.create(fake.grpo(3))
    assert ran(store, run_id, fake.start) == "finished"
    assert checkpoint.best(run_folder(run_id)) == {} and not (run_folder(run_id) / "best.json").exists()
    with pytest.raises(LabError, match=saying("no best checkpoint", "no held-out rows")):
        export_run(store, run_id, tmp_path / "out", best=True)


def test_a_resumed_run_knows_the_best_of_before(store):
    run_id = store.create(fake.grpo(20))

    def stop(_run, record, _seconds):
        if record.step == 13:
            store.ask(run_id, "stop")
    assert drive(store, run_id, start=Measured.start, on_record=stop) == "stopped"
    assert checkpoint.best_step(run_folder(run_id)) == 8
    store.requeue(run_id, mine=True)
    assert ran(store, run_id) == "finished"
    assert checkpoint.best_step(run_folder(run_id)) == 8, "0.5 at step 16 is no new best"
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 4, 8, 13, 20]


def test_a_best_that_was_not_saved_is_saved_when_it_comes_again(store):
    """A killed run has rows beyond its newest checkpoint, and makes their steps again."""
    run_id = store.create(fake.grpo(20))

    class Killed(Measured):
        def save(self, folder):
            if self.step == 8:
                raise OSError(28, "No space left on device")
            super().save(folder)
    assert ran(store, run_id, Killed.start) == "failed"
    assert store.run(run_id).step == 8 and checkpoint.best_step(run_folder(run_id)) == 4
    store.requeue(run_id, mine=True)
    assert ran(store, run_id) == "finished"
    assert checkpoint.best_step(run_folder(run_id)) == 8
