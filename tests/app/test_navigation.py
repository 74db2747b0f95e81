"""The navigation: five entries, the addresses of before, and the place of the page that is shown."""

from pathlib import Path

import pytest

from app.page_list import PAGES, SECTIONS
from tests.app.seeding import html

ROOT = Path(__file__).resolve().parents[2]
# Addresses that are in links, books and lectures: none may go.
ADDRESSES = {"home", "foundations", "surrogate", "lessons", "maze", "cartpole", "llm", "exact", "compare", "studies",
             "playground", "runs", "help"}


def test_beside_home_there_are_five_entries_and_every_page_is_in_one_of_them():
    home, *alone = [page.key for page in PAGES if not page.section]
    assert home == PAGES[0].key == "home" and len(SECTIONS) + len(alone) == 5
    assert [page for section in SECTIONS for page in section.pages] == [page for page in PAGES if page.section]
    assert {page.section for page in PAGES} == {"", *(section.title for section in SECTIONS)}


def test_every_page_has_a_script_and_no_address_has_gone():
    scripts = {path.stem for path in (ROOT / "pages").glob("*.py")}
    assert {page.key for page in PAGES} == scripts and scripts >= ADDRESSES
    assert len({page.title for page in PAGES}) == len({page.icon for page in PAGES}) == len(PAGES)


@pytest.mark.parametrize("name, item", [("exact", 5), ("compare", 6), ("runs", None)])
def test_the_navigation_shows_where_one_is(page, name, item):
    shown, title = html(page(name)), next(page.title for page in PAGES if page.key == name)
    assert f'.stAppHeader::after{{content:"{title}"}}' in shown
    assert (f":nth-child({item}) button" in shown) == (item is not None)


def test_an_unknown_address_is_named_and_marks_nothing(page):
    assert 'span p::after' not in html(page())
