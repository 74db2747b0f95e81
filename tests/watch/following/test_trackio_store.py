"""Trackio's SQLite: read while it is written, in the form of earlier versions, and after it was replaced."""

import json
import sqlite3
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.watch.following.calls import Named, Settings
from labcore.watch.following.trackio_store import TrackioStore
from tests.watch.following.tools import Followed, rows

OLD = "create table metrics (id integer primary key, timestamp text, run_name text, step integer, metrics text)"
NOW = "2026-11-27T02:14:17.93{}+00:00"


def store(path: Path, schema: str = OLD, wal: bool = True) -> sqlite3.Connection:
    opened = sqlite3.connect(path, isolation_level=None)
    opened.execute(f"pragma journal_mode = {'wal' if wal else 'delete'}")
    opened.execute(schema)
    return opened


def log(opened: sqlite3.Connection, step: int, text: str) -> None:
    opened.execute("insert into metrics (timestamp, run_name, step, metrics) values (?, 'grpo', ?, ?)",
                   (NOW.format(step), step, text))


@pytest.mark.parametrize("wal", [True, False])
def test_rows_are_read_while_they_are_written(wal, tmp_path):
    writer = store(tmp_path / "rl.db", wal=wal)
    file = Followed(tmp_path / "rl.db", TrackioStore)
    log(writer, 1, '{"reward": 0.5, "kl": "NaN", "note": "Infinity war", "big": "Infinity"}')
    found, = rows(file.look())
    assert found["step"] == 1 and found["kl"] != found["kl"] and found["big"] == float("inf")
    assert found["note"] == "Infinity war" and file.look() == []
    log(writer, 2, '{"reward": 1')
    log(writer, 3, '{"reward": 1}')
    file.restart()
    assert [row["step"] for row in rows(file.look())] == [3] and "row 2" in file.said[0]
    writer.close()
    assert file.look() == [] and sorted(path.name for path in tmp_path.iterdir()) == ["rl.db"]


def test_a_replaced_file_is_read_from_the_start(tmp_path):
    with store(tmp_path / "rl.db", wal=False) as writer:
        log(writer, 1, '{"reward": 1}')
    writer.close()
    file = Followed(tmp_path / "rl.db", TrackioStore)
    assert len(rows(file.look())) == 1
    (tmp_path / "rl.db").unlink()
    writer = store(tmp_path / "rl.db", wal=False)
    log(writer, 7, '{"reward": 7}')
    writer.close()
    assert [row["step"] for row in rows(file.look())] == [7]


def test_settings_precede_the_rows_of_their_run(tmp_path):
    writer = store(tmp_path / "rl.db")
    writer.execute("create table configs (id integer primary key, run_name text, config text, created_at text)")
    writer.execute("insert into configs values (1, 'grpo', ?, '')", (json.dumps({"beta": 0.04, "_Group": None}),))
    log(writer, 1, '{"reward": 1}')
    file = Followed(tmp_path / "rl.db", TrackioStore)
    found = file.look()
    assert found[:2] == [Named("grpo", "grpo"), Settings({"beta": 0.04}, "grpo")] and found[-1].run == "grpo"
    writer.close()


def test_other_databases_and_damaged_ones(tmp_path):
    other = store(tmp_path / "mlflow.db", "create table metrics (key text, value real)")
    assert Followed(tmp_path / "mlflow.db", TrackioStore).look() == []
    other.close()
    writer = store(tmp_path / "rl.db", wal=False)
    writer.execute("begin")
    for step in range(500):
        log(writer, step, json.dumps({"text": "x" * 100}))
    writer.execute("commit")
    writer.close()
    whole = (tmp_path / "rl.db").read_bytes()
    (tmp_path / "rl.db").write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    with pytest.raises(LabError, match=r"rl\.db is damaged"):
        Followed(tmp_path / "rl.db", TrackioStore).look(settled=True)
