"""The store lies in the lab's folder, whatever that folder is called."""

import os
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labcore.errors import LabError
from labcore.runs.store.dialects import shown, sqlite_url, store_url
from labcore.runs.store.store import Store
from labcore.workers import process
from tests.runs.fake import grpo

NAMES = ("a%20b", "a%2Fb", "what?", "what?uri=true", "a?mode=memory&cache=shared", "#1", "a b", "ü·漢", "100%", "%",
         "%00", "a@b", "user:word@host", "[x]", "*", "'q'", '"q"', "a;b", "a\\b", ":memory:", "file:x", "a\nb", "~",
         "é" * 100)


@pytest.mark.parametrize("name", NAMES)
def test_the_store_is_in_the_folder_of_that_name(name, tmp_path, monkeypatch):
    home = tmp_path / name / "lab"
    monkeypatch.setenv("RL_LAB_HOME", str(home))
    store = Store()
    run_id = store.create(grpo())
    assert shown(store.url) == str(home / "lab.db")
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")} == {name}
    with sqlite3.connect(home / "lab.db") as raw:
        assert raw.execute("SELECT id FROM lab_runs").fetchall() == [(run_id,)]
    monkeypatch.setenv("RL_LAB_STORE", process.environment(store.url)["RL_LAB_STORE"])  # as its workers open it
    assert [row.id for row in Store().runs()] == [row.id for row in Store(reads=True).runs()] == [run_id]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_url_leads_back_to_its_file(name):
    assert shown(sqlite_url(Path("/lab") / name)) == str(Path("/lab") / name)


def test_a_process_of_the_lab_finds_the_same_store(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "a%20b?c"))
    url = store_url()
    for given_url in (url, None):  # of a lab that is open, and of the supervisor that starts before it
        environment = process.environment(given_url)
        with monkeypatch.context() as there:
            there.setattr(os, "environ", environment)
            assert store_url() == url
    assert os.listdir(tmp_path) == ["a%20b?c"]


@pytest.mark.parametrize("name, words", [
    ("x" * 300, "cannot be the name"), ("/".join(["x" * 200] * 30), "cannot be the name"),
    ("/".join(["x" * 90] * 6), "SQLite opens no file"), ("\udcff", "cannot be the name")])
def test_a_folder_that_cannot_hold_a_store_is_said_in_a_sentence(name, words, tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / name))
    for reads in (False, True):
        with pytest.raises(LabError, match=words):
            Store(reads=reads)
