"""A store that cannot be used is one sentence on every page, and the page is whole again when it can."""

import errno

import pytest
import streamlit as st

from labcore.runs.store.store import Store
from tests.app.seeding import seed
from tests.every import now
from tests.runs.store.faulty import FAULTS, failing

PAGES = ("home", "runs", "llm", "maze", "exact", "compare", "studies", "playground")


def errors(test) -> list[str]:
    return [element.value for element in test.error]


@pytest.mark.parametrize("name", now(PAGES, "home", "llm"))
def test_a_page_says_why_the_store_cannot_be_used_and_comes_back(page, lab, name):
    run_id = seed(lab.store)
    given = {"llm": {"run": run_id}, "compare": {"runs": run_id}}.get(name, {})
    says, words = FAULTS["almost full"]
    with failing(says, 0):
        told = errors(page(name, **given))
    assert told and all(words in each and "\n" not in each for each in told)
    assert not errors(page(name, **given))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lab_that_cannot_open_its_store_says_so(page, lab, fault):
    says, words = FAULTS[fault]
    st.cache_resource.clear()
    with failing(says, 0):
        told = errors(page())
    assert told and all(words in each for each in told)


def test_a_page_that_finds_no_room_for_a_file_says_so(page, lab, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Store, "runs", full)
    said = errors(page("runs"))
    assert said and all("A disk is full" in each and "free some space" in each for each in said)


def test_a_chart_that_polls_says_it_in_its_place(page, lab):
    run_id = seed(lab.store)
    test = page("llm", run=run_id)
    says, words = FAULTS["locked"]
    with failing(says, 6):  # somewhere in the page
        test.run()
    assert not test.exception and any(words in each for each in errors(test))
