"""One clock, and controls in reach: in a real browser, on a run that is paused, stepped and looked back on."""

import io
import re

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.browser.test_llm_lab import SLOW

# The height of what stays at its place while the page is scrolled: the header, and what is fixed or sticky.
STAYING = """() => [...document.querySelectorAll('.stAppHeader, .stMainBlockContainer *')].filter(each =>
    each.matches('.stAppHeader') || ['fixed', 'sticky'].includes(getComputedStyle(each).position))
  .filter(each => each.offsetHeight && getComputedStyle(each).display !== 'none' && each.offsetWidth > 200)
  .reduce((sum, each) => sum + each.offsetHeight, 0)"""


def of_samples(page: Page, step: int) -> None:
    expect(page.get_by_text(f"Step {step:,}", exact=True)).to_be_visible(timeout=SLOW)


# The charts whose axes are below the upper edge of the scrubber although their plots begin above it.
COVERED = """() => {
  const edge = document.querySelector(".st-key-clock").parentElement.getBoundingClientRect().top;
  const charts = [...document.querySelectorAll(".rl-live-chart figure:not([hidden])")].map((box) => [
    box.querySelector(".rl-name").textContent, box.querySelector(".rl-plot").getBoundingClientRect()]);
  return charts.filter(([, { top, bottom }]) => top < edge && bottom > edge).map(([name]) => name);
}"""


def colours_above_the_scrubber(page: Page) -> int:
    """Of the strip between the bar and the scrubber that is held below it, at the width of the charts."""
    bar, scrubber = (page.locator(f".st-key-{key}").bounding_box() for key in ("bar", "clock"))
    top = bar["y"] + bar["height"] + 3
    assert 0 < scrubber["y"] - top < 40, "the scrubber is not held below the bar"
    strip = page.screenshot(clip={"x": scrubber["x"], "y": top, "width": scrubber["width"] - 20,
                                  "height": scrubber["y"] - top - 1})
    return len(Image.open(io.BytesIO(strip)).convert("RGB").getcolors(1 << 16))


@pytest.mark.long
def test_one_step_everywhere(page: Page, server: Server, waiting: str) -> None:
    last = 4
    page.goto(f"{server.url}/llm?run={waiting}")
    expect(page.locator(".rl-scrubber output")).to_have_text(re.compile(f"step {last:,} of"), timeout=SLOW)
    of_samples(page, last)  # a step that was not due: it is drawn because the run waits there
    page.keyboard.press("n")
    expect(page.locator(".rl-scrubber output")).to_have_text(re.compile(f"step {last + 1:,} of"), timeout=SLOW)
    of_samples(page, last + 1)

    tile = page.locator(".rl-tile b").first
    newest = tile.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".rl-scrubber output")).to_have_text(re.compile(f"step {last:,} of"))
    page.wait_for_url(re.compile(rf"[?&]at={last}\b"), timeout=SLOW)
    of_samples(page, last)
    page.keyboard.press("Home")
    page.wait_for_url(re.compile(r"[?&]at=1\b"), timeout=SLOW)
    expect(page.locator(".rl-tile em:not(:empty)")).to_have_count(0, timeout=SLOW)  # nothing has moved since the start
    of_samples(page, 1)

    page.reload()  # the link opens the same step
    expect(page.locator(".rl-scrubber output")).to_have_text(re.compile("step 1 of"), timeout=SLOW)
    page.keyboard.press("End")
    expect(tile).to_have_text(newest)  # at once; the address follows
    page.wait_for_url(lambda url: "at=" not in url, timeout=SLOW)
    page.keyboard.press("Shift+S")  # keys work on a page that was opened by its link
    expect(page.get_by_text("Stopped").first).to_be_visible(timeout=SLOW)

    page.get_by_role("tab", name="Surrogate").click()
    expect(page.get_by_text("α = 0 is the policy before").first).to_be_visible(timeout=SLOW)
    page.get_by_text("α = 0 is the policy before").first.scroll_into_view_if_needed()
    page.set_viewport_size({"width": 1280, "height": 560})  # so low that the page scrolls beyond the scrubber
    page.locator(".stMain").evaluate("main => main.scrollTo(0, main.scrollHeight)")
    for _ in range(8):
        assert colours_above_the_scrubber(page) == 1, "nothing shows through between the bar and the scrubber"
        page.locator(".stMain").evaluate("main => main.scrollBy(0, -9)")
    for each in (page.get_by_role("button", name=re.compile("^Resume")), page.locator(".rl-scrubber"),
                 page.locator(".st-key-knobs .stSlider").filter(has_text="KL coefficient")):
        expect(each).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 390, "height": 844})
    assert 0 < page.evaluate(STAYING) <= 0.12 * 844, "bars that stay while a phone's page is scrolled"
    page.get_by_text("Show the knobs").click()
    expect(page.locator(".st-key-knobs .stSlider").first).to_be_in_viewport(ratio=1, timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
