"""The page Exact, as a person uses it: run, and see π beside π*. In a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server, away
from tests.browser.test_llm_lab import SLOW, fits


@pytest.mark.long
def test_a_run_stands_beside_its_truth(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/exact?steps=6&prompts_per_step=8")
    expect(page.get_by_text("the same first policy for every seed")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name=re.compile("^Run")).click(timeout=SLOW)
    figures = page.get_by_role("img", name=re.compile("After the prompt [abc] the policy's likeliest completion is"))
    expect(figures).to_have_count(3, timeout=SLOW)
    fits(page, away(page, server), ".js-plotly-plot")
    expect(page.locator(".rl-status").first).to_contain_text("Finished 6 of 6 steps", timeout=SLOW)
    said = page.locator(".rl-goal").first.inner_text()
    last, first = re.search(r"earns ([\d.]+) \(([\d.]+) at the start\)", said).groups()
    assert float(last) > float(first)
    expect(figures).to_have_count(3, timeout=SLOW)
    inks = "() => [...document.querySelectorAll('.rl-figure-chart > div')].map(plot => plot._fullLayout?.font.color)"
    for scheme, ink in (("dark", "#E7EAEE"), ("light", "#1B1F24")):  # the system's theme switches at dusk and at dawn
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"() => ({inks})().every(ink => ink === '{ink}')", timeout=SLOW)
    expect(page.get_by_text("All 40 completions of each prompt are enumerated")).to_be_visible()
    page.get_by_role("tab", name="Microscope").click()
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
