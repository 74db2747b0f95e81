"""Runs by their names: the lab's own, imported ones, and files."""

from types import SimpleNamespace

import pytest

from labcore.analysis.compare.loading import load
from labcore.errors import LabError
from labcore.runs.imports import imported
from labcore.runs.store import changes
from tests.analysis.compare import tools
from tests.runs.imports.files import CHART, TRL


def test_runs_are_loaded_by_name_wherever_they_are(store, tmp_path):
    own = tools.stored(store, [0.1, 0.2], changes=[(1, "beta", 0.5)])
    (about,) = imported.keep(store, "m.csv", TRL)
    path = tmp_path / "chart.csv"
    path.write_bytes(CHART)
    got = load(store, [about.id, own, str(path)])
    assert [each.run for each in got] == [about.id, own, f"{path} chart run a", f"{path} chart b"]
    assert [each.imported for each in got] == [True, False, True, True]
    (few,), (whole,) = load(store, [own], ["reward", "kl"]), load(store, [own])
    assert set(few.metrics) == {"reward", "updates", "memory"} and few.breaks == whole.breaks == (1,)
    for axis in whole.axes:
        assert few.column("reward", axis)[0].tolist() == whole.column("reward", axis)[0].tolist()
        assert few.column("reward", axis)[1].tolist() == whole.column("reward", axis)[1].tolist()
    with pytest.raises(LabError, match="There is no run 'nobody'"):
        load(store, ["nobody"])
    with pytest.raises(LabError, match="There is no file"):
        load(store, [str(tmp_path / "none.csv")])
    with pytest.raises(LabError, match="is given twice"):
        load(store, [own, own])


def test_a_run_without_rows_can_be_loaded(store):
    run_id = tools.stored(store, [])
    for got in (load(store, [run_id])[0], load(store, [run_id], ["reward"])[0]):
        assert got.column("reward")[0].size == 0 and got.metrics == {}


def test_columns_of_a_database_that_cannot_look_into_json(store):
    """Where SQLite picks the metrics out itself, others read whole rows: the same columns."""
    run_id = tools.stored(store, [0.1, 0.2], kl=[0.5, 0.25])

    class Other:
        dialect = SimpleNamespace(name="postgresql")

        def __init__(self, connection):
            self.execute = connection.execute

    with store._reading() as connection:
        found = changes.columns(Other(connection), [run_id], ["kl", "entropy", "updates"])[run_id]
    assert [list(column) for column in found] == [[1, 2], [100, 200], [0, 0], [1.0, 2.0], [0.5, 0.25], [None, None],
                                                  [1.0, 2.0]]
    assert [list(column) for column in store.columns([run_id], ["kl", "entropy", "updates"])[run_id]] == [
        list(column) for column in found]
