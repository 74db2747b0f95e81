"""An address that no page has: said in a sentence, with the way to the page that was meant."""

from types import SimpleNamespace

import pytest
import streamlit as st

from app import unknown_page

PAGES = [SimpleNamespace(url_path=name) for name in ("", "maze", "llm", "compare", "runs")]


@pytest.mark.parametrize("name, meant, sure", [
    ("rums", "runs", False), ("Runs", "runs", True), ("LLM", "llm", True), ("llm-lab", "llm", False),
    ("home", "", True), ("no-such-page", None, False), ("<b>", None, False)])
def test_the_page_that_was_meant(name, meant, sure):
    page, known = unknown_page.nearest(name, PAGES)
    assert (page and page.url_path, known) == (meant, sure)


@pytest.mark.parametrize("address, paths", [
    (None, []), ("http://localhost:8501", []), ("http://localhost:8501/", []), ("http://localhost:8501/runs", []),
    ("http://localhost:8501/rums", ["rums"]), ("http://localhost:8501/a%20b/", ["a b"])])
def test_only_an_address_that_no_page_has_gets_one(monkeypatch, address, paths):
    monkeypatch.setattr(type(st.context), "url", address)
    monkeypatch.setattr(st, "Page", lambda show, **more: SimpleNamespace(**more))
    found = unknown_page.pages(PAGES)
    assert [page.url_path for page in found] == paths and all(page.visibility == "hidden" for page in found)
