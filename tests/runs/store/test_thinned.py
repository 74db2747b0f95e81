"""Rows of long runs, thinned: what is kept of a stretch, that it never depends on when it was read, and how little of
the store is read again."""

import json
import random

import pytest

from labcore.runs.files.paths import run_folder
from labcore.runs.store import schema, thinned
from labcore.runs.store import steps as steps_module
from labcore.runs.store.rows import Step
from labcore.runs.store.store import Store
from labcore.runs.store.thinned import stretch, thin
from tests.runs.fake import grpo


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A run is long from 20 steps."""
    for name, value in (("MOST", 10), ("LONG", 20), ("KEEP_EVERY", 10)):
        monkeypatch.setattr(thinned, name, value)
    monkeypatch.setattr(thinned, "stretch", lambda last: stretch(last, 10))


@pytest.fixture
def parsed(monkeypatch):
    """How many rows of JSON were read as numbers."""
    count = [0]
    real = steps_module.metrics_of

    def counted(texts):
        count[0] += len(texts)
        return real(texts)
    monkeypatch.setattr(steps_module, "metrics_of", counted)
    return count


def metrics(step: int) -> dict[str, float]:
    return {"reward": step / 1000, "loss": 1 / step} | ({"held_out/accuracy": step / 10} if step % 7 == 1 else {})


def grown(store: Store, run_id: str, until: int, every: int = 1) -> None:
    steps = range(store.run(run_id).step + every, until + 1, every)
    with store._writing() as connection:
        for step in steps:
            connection.execute(schema.steps.insert(), {
                "run_id": run_id, "step": step, "tokens": 10 * step, "env_steps": 0, "seconds": 0.1 * step,
                "metrics": json.dumps(metrics(step))})
            connection.execute(schema.runs.update().where(schema.runs.c.id == run_id), {"step": step})


@pytest.fixture
def run(store):
    return store.create(grpo(5000), mine=True)


def test_a_stretch_has_the_last_value_of_each_metric_in_it(store, run):
    grown(store, run, 64)
    rows = thinned.read(store, store.run(run))
    assert [row.step for row in rows] == [1, 8, 16, 24, 32, 40, 48, 56, 64]
    for row in rows[1:]:
        assert (row.tokens, row.seconds, row.metrics["reward"]) == (10 * row.step, 0.1 * row.step, row.step / 1000)
        newest = max(step for step in range(max(2, row.step - 7), row.step + 1) if step % 7 == 1)
        assert row.metrics["held_out/accuracy"] == newest / 10, "an evaluation between two drawn steps is not lost"


def test_a_short_run_is_read_as_it_is(store, run):
    grown(store, run, 19)
    assert thinned.read(store, store.run(run)) == store.steps_after(run)
    thinned.keep(store, run)
    assert not (run_folder(run) / thinned.FILE).exists()


@pytest.mark.parametrize("seed", range(4))
def test_the_rows_do_not_depend_on_when_they_were_read_and_kept(store, run, seed):
    """A property: whatever was kept on the way, the rows are those of the whole run."""
    rng = random.Random(seed)
    while store.run(run).step < 120:
        grown(store, run, store.run(run).step + rng.randint(1, 15), every=rng.choice((1, 1, 3)))
        rng.choice((thinned.keep, lambda store, run: thinned.read(store, store.run(run)), lambda *_: None))(store, run)
        row = store.run(run)
        if row.step >= thinned.LONG:
            assert thinned.read(store, row) == thin(store.steps_after(run), stretch(row.step, 10))


def test_thinning_a_thinned_run_is_thinning_all_of_it():
    rows = [Step(step, step, 0, 0.1 * step, metrics(step)) for step in range(3, 200, 2)]
    assert thin(thin(rows, 4), 16) == thin(rows, 16) and thin(rows, 1) == rows


def test_a_page_that_opens_reads_as_many_rows_as_it_draws(store, run, parsed):
    grown(store, run, 640)
    parsed[0] = 0
    thinned.read(store, store.run(run))
    assert parsed[0] <= 2 * 10 + 640 // 7 + 2, "one for each stretch, and those with metrics that it lacks"
    parsed[0] = 0
    thinned.read(store, store.run(run))
    assert parsed[0] <= 64, "the file has the others"
    parsed[0] = 0
    assert list(store.every_step(run, 640)) == store.steps_after(run), "exact rows are there all the same"


def test_a_file_of_another_state_of_the_store_or_a_damaged_one_is_left_alone(store, run):
    grown(store, run, 64)
    rows = thinned.read(store, store.run(run))
    path = run_folder(run) / thinned.FILE
    for content in (b"", b"{", path.read_bytes()[:-8]):
        path.write_bytes(content)
        assert thinned.read(store, store.run(run)) == rows
    thinned.keep(store, run)
    other = store.create(grpo(5000), mine=True)
    grown(store, other, 30)
    (run_folder(other)).mkdir(exist_ok=True)
    (run_folder(other) / thinned.FILE).write_bytes(path.read_bytes())
    assert thinned.read(store, store.run(other)) == thin(store.steps_after(other), stretch(30, 10))
    thinned.forget(run)
    assert not path.exists()


def test_a_lab_that_is_shared_for_reading_writes_no_file(store, run, monkeypatch):
    grown(store, run, 64)
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    assert len(thinned.read(store, store.run(run))) == 9
    assert not (run_folder(run) / thinned.FILE).exists()


def test_steps_are_read_in_parts_where_there_are_many(store, run, monkeypatch):
    grown(store, run, 40)
    monkeypatch.setattr(steps_module, "MANY", 30)
    monkeypatch.setattr(steps_module, "CHUNK", 7)
    every = store.every_step(run, 40)
    assert not isinstance(every, list) and len(every) == 40
    assert [*every] == [*every] == store.steps_after(run), "at each pass"
    assert [row.step for row in store.last_steps(run, 12, 3)] == [12, 11, 10]
    assert store.every_step(run, 0) == ()
