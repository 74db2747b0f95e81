"""Whatever somebody wrote into a cell of the store, it is used or told in one sentence: no read and no command ends in
a traceback."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs.files.paths import home, made
from labcore.runs.store import cells, schema
from labcore.runs.store.process import Owner, gone
from labcore.runs.store.store import Store
from tests.runs.fake import grpo
from tests.runs.store.postgres import THERE
from tests.runs.store.tampering import CELLS, READS, VALUES, filled
from tests.soak.postgres import Postgres
from tests.soak.report import Report

TRIED = 1, 4  # values tried in each cell; trying all of them takes a minute and finds no further fault


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, str]:
    """A store in which every table has rows, and a run in it that goes."""
    path = tmp_path_factory.mktemp("whole") / "lab.db"
    run_id = filled(f"sqlite:///{path}")
    return path, run_id


@pytest.fixture
def tampered(whole) -> Callable[[str, object], str]:
    """Puts a store into the lab whose cells of a column hold a value; returns the id of its run."""
    def put(cell: str, value: object) -> str:
        for file in made(home()).glob("lab.db*"):
            file.unlink()
        shutil.copy(whole[0], home() / "lab.db")
        table, column = cell.split(".")
        with closing(sqlite3.connect(home() / "lab.db")) as raw, raw:
            raw.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
        return whole[1]
    return put


@pytest.mark.parametrize("tried", [TRIED[0], pytest.param(TRIED[1], marks=pytest.mark.long)])
@pytest.mark.parametrize("cell", [f"{table}.{column}" for table, column in CELLS])
def test_any_cell_may_hold_anything(tampered, cell, tried):
    for value in random.Random(cell).sample(VALUES, tried):
        with suppress(sqlite3.IntegrityError, OverflowError, LabError):  # the first two: the file does not take it
            run_id = tampered(cell, value)
            store = Store()
            for read in READS:
                try:
                    read(store, run_id)
                except LabError as error:
                    assert str(error).endswith(".") and "\n" not in str(error), (value, read)
            store.dispose()


@pytest.mark.parametrize(("cell", "value", "words"), [
    ("lab_steps.metrics", '{"reward": "much"}', "is damaged (a number of a step cannot be read)"),
    ("lab_steps.metrics", '{"reward": NaN}', "is damaged (a metric of a step is NaN)"),
    ("lab_steps.metrics", '{"reward": 1e999}', "is damaged (a number of a step cannot be read)"),
    ("lab_steps.tokens", "x", "is damaged (a number of a step cannot be read)"),
    ("lab_runs.state", "going", "is damaged (a row in it has 'going' in a place for the state of a run)"),
    ("lab_runs.number", None, " has no number)"),
    ("lab_runs.created", "now", "is damaged (a row in it has 'now' in a place for a time)"),
    ("lab_events.payload", "{}", "is damaged (the payload of an entry 'knob' cannot be read)"),
    ("lab_marks.tags", "[7]", "is damaged (the tags of ")])
def test_what_is_wrong_is_said(tampered, capsys, cell, value, words):
    run_id = tampered(cell, value)
    assert [main([command, run_id]) for command in ("doctor", "compare")] == [1, 1]
    said = capsys.readouterr()
    assert said.out == "" and said.err.count(words) == 2 and said.err.count("\n") == 2


@THERE
def test_what_is_wrong_is_said_of_a_store_on_postgresql(databases, lab_home):
    trial = Postgres(report := Report(1), databases[1].url)
    for cell, value in (("metrics", "[7]"), ("metrics", '{"reward": "much"}'), ("tokens", "-1")):
        trial.one("lab_steps", cell, value)
    trial.one("lab_runs", "number", None)
    assert report.counts["Cells of a store on PostgreSQL"] == {"tampered with": 4}


@pytest.mark.parametrize("value", ["x", "9" * 5000, "-1", "", None])
def test_runs_are_counted_again_where_their_count_is_lost(tampered, value):
    tampered("lab_meta.value", schema.VERSION)  # both rows hold what the version's should
    with closing(sqlite3.connect(home() / "lab.db")) as raw, raw:
        raw.execute("DELETE FROM lab_meta WHERE key = 'number'")
        if value is not None:
            raw.execute("INSERT INTO lab_meta VALUES ('number', ?)", (value,))
    store = Store()
    assert [store.run(store.create(grpo())).number for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("pid", [-1, 0, 2**31, 2**62])
def test_no_process_has_a_number_that_none_can_have(tampered, pid):
    assert gone(Owner(pid, Owner.this().host, 1.0), None)
    run_id = tampered("lab_runs.pid", pid)
    assert run_id in Store().reconcile() and Store().run(run_id).state == "interrupted"


def test_what_the_lab_writes_is_sound():
    assert cells.metrics_of(['{"a": -1e-300, "b": 3}', "{}"]) == [{"a": -1e-300, "b": 3}, {}]
    assert cells.sound("refused", {"knob": "beta", "value": "much", "text": "no"})
    assert cells.sound("checkpoint", {"seconds": 0.1}) and cells.sound("of another lab", {})
