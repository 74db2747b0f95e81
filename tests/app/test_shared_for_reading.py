"""A lab that is shared for reading: every page shows what is there, and no button changes anything or fails."""

import pytest
import streamlit as st

import app.lab
from app.runs.state import PICKED
from labcore.runs.files.paths import SHARED
from labcore.runs.lists import marks
from labcore.runs.store.store import Store
from labcore.workers.launcher import NoLauncher
from tests.app.seeding import seed
from tests.app.test_login import PAGES, labels, words
from tests.every import now

STARTS = {"Run", "Run again", "Another seed", "Pause", "Resume", "Step", "Stop", "Fork", "Sweep", "New run", "Import",
          "Clean up", "Star", "Delete", "Restore", "Delete for good", "Empty the trash", "Save this mix"}
PRESSED = (("home", {}), ("llm", {}), ("llm", {"run": True}), ("maze", {}), ("lessons", {}),
           ("compare", {"runs": True}), ("compare", {}), ("studies", {}), ("playground", {"runs": True}), ("runs", {}),
           ("runs", {"deleted": "1"}))
STATES = ("running", "paused", "finished", "interrupted", "failed", "diverged")


@pytest.fixture
def shared(lab, monkeypatch):
    """Shares the lab of the test from here on."""
    def share():
        monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
        st.cache_resource.clear()
        return app.lab.lab()
    return share


def content(store) -> tuple:
    runs = [*store.runs(), *store.trashed()]
    return store.marks(), [(run, store.events_after(run.id), store.controls(run.id)) for run in runs]


def files(folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "lab.db" not in path.name}


def test_no_process_is_started_and_nothing_is_reconciled(lab, shared):
    opened = shared()
    assert isinstance(opened.launcher, NoLauncher)


@pytest.mark.parametrize("name", ["home", *sorted({*PAGES} - {name for name, _ in PRESSED})])
def test_every_page_says_that_it_is_shared(page, lab, shared, name):
    seed(lab.store, "interrupted")
    shared()
    test = page(name)
    assert "Shared for reading" in words(test) and not test.error
    assert not STARTS & {button.label for button in test.button if not button.disabled}


@pytest.mark.parametrize("name", now(PAGES, "llm"))
def test_a_lab_of_ones_own_says_nothing(page, name):
    assert "Shared for reading" not in words(page(name))


@pytest.mark.parametrize("state", now(STATES, "running", "finished", "interrupted"))
def test_a_run_is_shown_without_what_would_change_it(page, lab, shared, state):
    run = seed(lab.store, state)
    assert STARTS & set(labels(page("llm", run=run)))
    shared()
    test = page("llm", run=run)
    assert not STARTS & set(labels(test)) and not test.error
    assert all(each.disabled for each in (*test.slider, *test.number_input) if str(each.key).startswith(run))


def test_the_list_offers_to_look_only(page, lab, shared):
    runs = [seed(lab.store, "finished"), seed(lab.store, "interrupted")]
    shared()
    test = page("runs")
    test.session_state[PICKED] = runs[:1]
    test.run()
    assert "act:details" in {button.key for button in test.button} and not STARTS & set(labels(test))
    assert not test.exception and not test.error


ROWS = ("hour", "lesson", "study")  # buttons in each row of a table; only the last row's is pressed


def prefix(key: str | None) -> str:
    return str(key).partition(":")[0]


@pytest.mark.parametrize(("name", "query"), PRESSED)
def test_no_button_changes_anything(page, lab, shared, tmp_path, name, query):
    run, gone = seed(lab.store, "finished"), seed(lab.store, "finished")
    marks.trash(lab.store, [gone])
    shared()
    store = Store()
    before = content(store), files(tmp_path)
    given = {key: run if value is True else value for key, value in query.items()}
    test = page(name, **given)
    assert "Shared for reading" in words(test) and not STARTS & {
        button.label for button in test.button if not button.disabled}
    keys = [button.key for button in test.button if not button.disabled]
    last = {prefix(key): key for key in keys}
    for key in [key for key in keys if prefix(key) not in ROWS or key == last[prefix(key)]]:
        if key not in {button.key for button in test.button if not button.disabled}:  # what was pressed before took it
            test = page(name, **given)
        test.button(key=key).click().run()
        assert not test.exception, key
        assert {error.value for error in test.error} <= {SHARED}, key
    assert content(store) == before[0]
    assert files(tmp_path).items() ^ before[1].items() == set()


def test_a_store_that_cannot_be_shared_is_a_sentence(page, lab, shared, tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    st.cache_resource.clear()
    assert all("There is no store" in error.value for error in page("runs").error)
    assert not (tmp_path / "elsewhere").exists() and not page("runs").header
