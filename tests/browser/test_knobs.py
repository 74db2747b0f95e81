"""The setup and the knobs of the pages that train: what is set first is in sight, and is called in plain words."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.every import now

SLOW = 60_000  # ms
SIZES = ((1024, 768), (1280, 720), (1366, 768), (1600, 900), (390, 667))
TASK = {"llm": "Task", "maze": "Maze", "cartpole": "World"}
MANY = "?steps=10000000"
# Whether the first box of a number has room for all of its text.
FITS = """() => { const box = document.querySelector('.st-key-setup input[type=number]');
  const style = getComputedStyle(box), paint = document.createElement('canvas').getContext('2d');
  paint.font = style.font;
  return paint.measureText(box.value).width <=
    box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight); }"""
# Whether nothing of the panel lies beside it, where it could not be scrolled to.
INSIDE = """() => [...document.querySelectorAll('.st-key-side')].every(panel => panel.scrollWidth <= panel.clientWidth
  && [...panel.querySelectorAll('[data-testid=stElementContainer]:not(.st-key-show_knobs)')].every(each =>
    each.getBoundingClientRect().right <= panel.getBoundingClientRect().right + 1))"""
# What Streamlit takes for markup, and LaTeX.
MARKUP = re.compile(r"\*\*|:\w+\[|\$|\\|`")


@pytest.mark.parametrize("kind", now(TASK, "llm"))
def test_what_is_set_first_is_seen_without_scrolling_and_heard_as_plain_words(page: Page, server: Server,
                                                                              kind: str) -> None:
    page.goto(f"{server.url}/{kind}{MANY if kind == 'cartpole' else ''}")
    first = [page.get_by_role("button", name=re.compile("^Run")), page.get_by_role("combobox", name="Algorithm"),
             page.get_by_role("combobox", name=TASK[kind], exact=True), page.get_by_role("spinbutton", name="Steps"),
             page.get_by_role("spinbutton", name="Seed", exact=True)]
    if kind == "llm":
        first.append(page.get_by_role("combobox", name="Model", exact=True))
    for width, height in SIZES if kind == "llm" else SIZES[::4]:
        page.set_viewport_size({"width": width, "height": height})
        for each in first:
            expect(each).to_be_in_viewport(ratio=1, timeout=SLOW)
        page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth", timeout=SLOW)
        page.wait_for_function(INSIDE, timeout=SLOW)
        page.wait_for_function(FITS, timeout=SLOW)
    expect(page.get_by_role("button", name="Help for Steps")).to_be_visible()  # which says the bounds
    # On a phone the knobs are folded away, and the setup is not.
    expect(page.locator(".st-key-knobs")).to_be_hidden()
    page.get_by_text("Show the knobs").click()
    expect(page.locator(".st-key-knobs").get_by_role("slider").first).to_be_visible(timeout=SLOW)

    page.set_viewport_size({"width": 1280, "height": 720})
    page.get_by_text("More knobs").click(timeout=SLOW)
    page.get_by_text("Type exact values").click()
    expect(page.get_by_test_id("stPopoverBody").get_by_role("spinbutton").first).to_be_visible(timeout=SLOW)
    names = page.evaluate("() => [...document.querySelectorAll('[aria-label]')].map(e => e.getAttribute('aria-label'))")
    assert len(names) > 20 and not [name for name in names if MARKUP.search(name)]
    page.keyboard.press("Escape")
    if kind == "llm":
        price = page.get_by_role("slider", name="KL coefficient β")
        expect(price).to_have_attribute("aria-valuetext", "0.04 reward/nat")
