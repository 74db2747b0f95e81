"""The page Runs and Home, as a person uses them: star, tag, delete two and have them back; the clip, and it live."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from app.tokens import WORD_JOINER
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.runs.titles import title
from tests.browser.conftest import Server
from tests.browser.test_llm_lab import SLOW

ITS_BETA = 0.0123  # no other test's runs have it
HEAD, ROW, BOX = 34, 35, 18  # pixels of the table: its head, a row, the middle of the boxes


@pytest.fixture(scope="module")
def shelf(server: Server) -> Iterator[list[str]]:
    """Three ended runs in the server's lab, the newest first."""
    store = Store(f"sqlite:///{Path(server.home) / 'lab.db'}")
    ids = []
    for seed in range(3):
        ids.append(store.create(make(algorithm_key="rloo", task_key="sort", steps=3, seed=seed,
                                     knobs={"beta": ITS_BETA}), mine=True))
        store.set_state(ids[-1], "running")
        for step in (1, 2, 3):
            store.append(ids[-1], Record(step, step, {"reward": 0.2 * step + 0.01 * seed}), 0.1 * step)
        store.set_state(ids[-1], "finished")
    yield ids[::-1]
    store.trash(run_id for run_id in ids if run_id in {run.id for run in store.runs()})


def table(page: Page, rows: int) -> Locator:
    """The table, once it has so many rows."""
    found = page.get_by_test_id("stDataFrame")
    expect(found.locator(f"table[role=grid][aria-rowcount='{rows + 1}']")).to_have_count(1, timeout=SLOW)
    return found


def cells(found: Locator, text: str) -> Locator:
    """The cells in view with this text. The table is drawn on a canvas; what it shows stands inside it as a table."""
    return found.locator("td[role=gridcell]", has_text=text)


def tick(found: Locator, row: int) -> None:
    """Click the box of a row, and wait until the page knows."""
    found.locator(".dvn-scroller").click(position={"x": BOX, "y": HEAD + ROW * (row + 0.5)})


@pytest.mark.long
def test_the_time_is_in_sight_and_runs_are_starred_tagged_deleted_and_had_back(page: Page, server: Server,
                                                                               shelf: list[str]) -> None:
    page.goto(f"{server.url}/runs?find=beta={ITS_BETA}")
    found = table(page, 3)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    time = found.locator("th[role=columnheader]", has_text="Time")  # if it is in view, beside long names
    expect(time).to_have_count(1, timeout=SLOW)
    page.set_viewport_size({"width": 900, "height": 720})
    expect(time).to_have_count(0, timeout=SLOW)
    page.set_viewport_size({"width": 1280, "height": 720})
    expect(time).to_have_count(1, timeout=SLOW)
    found.hover()
    streamlits = found.get_by_role("button", name="Download as CSV", include_hidden=True)
    expect(streamlits).to_have_count(1, timeout=SLOW)
    expect(streamlits).to_be_hidden()  # it would write formulas as formulas
    tick(found, 0)
    expect(page.get_by_text("1 selected")).to_be_visible(timeout=SLOW)
    tick(found, 1)
    expect(page.get_by_text("2 selected")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Star", exact=True).click()
    expect(page.get_by_role("button", name="Unstar")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Tags").click()
    page.get_by_role("combobox", name="Tags").fill("paper")
    page.keyboard.press("Enter")
    expect(cells(found, "paper")).to_have_count(2, timeout=SLOW)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete", exact=True).click()
    table(page, 1)
    page.get_by_role("button", name="Undo").click()
    found = table(page, 3)
    expect(cells(found, "★")).to_have_count(2, timeout=SLOW)
    store = Store(f"sqlite:///{Path(server.home) / 'lab.db'}")
    expect(cells(found, "RLOO sort #")).to_have_text([title(store.run(each)) for each in shelf], timeout=SLOW)
    tick(found, 2)
    page.get_by_role("link", name="Open").click(timeout=SLOW)
    page.wait_for_url(re.compile(f"run={shelf[2]}"), timeout=SLOW)


@pytest.mark.long
def test_an_address_without_a_page_says_so_and_leads_to_the_one_that_was_meant(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/rums?find=grpo")
    expect(page.get_by_text("This lab has no page called “rums”. Did you mean Runs?")).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_test_id("stMain").get_by_role("link", name="Runs").click()
    page.wait_for_url(re.compile(r"/runs\?find=grpo$"), timeout=SLOW)
    expect(page.get_by_role("heading", name="Runs")).to_be_visible(timeout=SLOW)
    page.goto(f"{server.url}/LLM")
    page.wait_for_url(re.compile("/llm$"), timeout=SLOW)
    expect(page.get_by_role("button", name=re.compile("^Run"))).to_be_visible(timeout=SLOW)


@pytest.mark.long
def test_the_name_of_an_address_is_shown_as_it_stands(page: Page, server: Server) -> None:
    name = "www.evil.com now a@b.co :bug: a&amp;b __b__ -> ![x](y)"
    page.goto(f"{server.url}/{quote(name, safe='')}")
    told = page.get_by_test_id("stMain").get_by_text("This lab has no page called")
    expect(told).to_be_visible(timeout=SLOW)
    assert f"“{name}”" in (told.text_content() or "").replace(WORD_JOINER, "")
    expect(told.locator("a, span, img, em, strong")).to_have_count(0)


@pytest.mark.long
def test_from_home_one_chooses_a_theme_a_page_and_the_clip_s_run_live(moving: Page, server: Server) -> None:
    page = moving
    page.goto(server.url)
    step = page.get_by_role("slider", name="Step of the recording")
    expect(step).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("Recorded", exact=True)).to_be_visible()
    expect(step).not_to_have_value("1", timeout=SLOW)
    page.get_by_role("button", name="Pause").click()
    step.fill("200")
    expect(page.get_by_text("and must write")).to_be_visible()
    expect(page.get_by_text("Accepted completions 99 % from 46 %")).to_be_visible()
    menu, top = page.get_by_role("button", name="Main menu"), page.get_by_test_id("stTopNavLink")
    ends = top.evaluate_all("links => links.map((link) => link.getBoundingClientRect().right)")
    assert menu.evaluate("menu => menu.getBoundingClientRect().left") - max(ends) < 40, "Help stands beside the theme"
    menu.click()
    for theme in ("Dark", "Light"):
        page.get_by_role("menuitemradio", name=theme).click()
        page.wait_for_function("scheme => getComputedStyle(document.querySelector('.stApp')).colorScheme === scheme",
                               arg=theme.lower(), timeout=SLOW)
    page.keyboard.press("Escape")
    section = page.get_by_test_id("stTopNavSection").filter(has_text="Learn")
    section.click()
    page.get_by_role("menuitem", name="Lessons").click()
    page.wait_for_url(re.compile("/lessons$"), timeout=SLOW)
    page.wait_for_function("section => getComputedStyle(section.querySelector('p'), '::after').content.includes("
                           "'Lessons')", arg=section.element_handle(), timeout=SLOW)
    page.go_back()
    page.get_by_role("button", name="Run it live").click(timeout=SLOW)
    page.wait_for_url(re.compile(r"/llm\?run=grpo-sort-"), timeout=SLOW)
    page.get_by_role("button", name=re.compile("^Stop Shortcut")).click(timeout=SLOW)  # Streamlit has a Stop too
    expect(page.get_by_text("Stopped").first).to_be_visible(timeout=SLOW)


def test_on_a_phone_with_little_motion_the_clip_stands_at_its_end_and_no_key_is_offered(page: Page,
                                                                                        server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 720})
    page.goto(server.url)
    expect(page.get_by_role("slider", name="Step of the recording")).to_have_value("200", timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Run it live"))).to_be_visible()
    expect(page.locator("kbd:visible")).to_have_count(0)  # a phone has no such keys
