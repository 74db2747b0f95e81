"""The CartPole page, as a person uses it: run, watch the policy act, turn a knob, come back. In a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server, away
from tests.browser.test_clock import COVERED
from tests.browser.test_llm_lab import DRAWN, SLOW

# What the first player shows, as pixels: two moments differ while it plays.
PIXELS = "() => document.querySelector('.rl-seats canvas').toDataURL()"


def start_run(page: Page, server: Server, query: str = "") -> str:
    """Open the page, press Run, wait for curves. Returns the run's id."""
    page.goto(f"{server.url}/cartpole{query}")
    expect(page.locator(".rl-seats canvas")).to_have_count(1, timeout=SLOW)  # random actions, at their first step
    expect(page.locator(".rl-seats p")).to_contain_text("0 steps", timeout=SLOW)
    expect(page.get_by_role("button", name="Play the episodes")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Run")).click(timeout=SLOW)
    page.wait_for_function(f"() => ({DRAWN})() > 0", timeout=SLOW)
    page.wait_for_url(re.compile(r"[?&]run="), timeout=SLOW)
    return re.search(r"run=([\w.-]+)", page.url)[1]


@pytest.mark.long
def test_the_return_rises_the_link_finds_the_run_and_the_policies_play(page: Page, server: Server) -> None:
    start_run(page, server, "?steps=24")
    address = away(page, server)
    page.emulate_media(reduced_motion="no-preference")  # only now: while a run is live, films keep a core busy
    page.goto(address)
    expect(page.locator(".rl-seats canvas")).to_have_count(2, timeout=SLOW)
    playing = page.evaluate(PIXELS)
    page.wait_for_function(f"before => ({PIXELS})() !== before", arg=playing, timeout=SLOW)
    page.get_by_role("button", name="Pause the episodes").click()
    held = page.evaluate(PIXELS)
    page.wait_for_timeout(300)
    assert page.evaluate(PIXELS) == held

    expect(page.locator(".rl-status").first).to_contain_text("Finished", timeout=SLOW)
    said = page.locator(".rl-goal").first.inner_text()
    last, first = re.search(r"earns ([\d.]+) per episode \(([\d.]+) at the start\)", said).groups()
    assert float(last) > 2 * float(first)
    greedy = page.locator(".rl-seats").inner_text()  # the mean return of the newest policy and of the best
    assert all(float(each) > 150 for each in re.findall(r"return ([\d.]+), mean", greedy)), greedy
    expect(page.get_by_text("Best so far")).to_be_visible()
    assert page.evaluate(COVERED) == [], "all axes are seen above the scrubber"
    assert page.locator(".scatterlayer .points path").count() > 20  # single episodes behind their mean

    time = page.get_by_role("slider", name=re.compile("Time in the episode"))
    time.fill("5")
    expect(page.locator(".rl-seats p").first).to_contain_text("5 steps · return so far 5")
    expect(page.get_by_role("img", name=re.compile("Policy, step .*5 steps"))).to_be_visible()
    for tab in ("Surrogate", "Value"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator("[role=tabpanel] .js-plotly-plot").first).to_be_visible(timeout=SLOW)
    expect(page.get_by_text(re.compile(r"^Explained variance −?\d"))).to_be_visible()
    plots = "[...document.querySelectorAll('[role=tabpanel] .js-plotly-plot')]"
    for scheme, ink in (("dark", "#E7EAEE"), ("light", "#1B1F24")):  # the system's theme switches at dusk and at dawn
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"ink => {plots}.length && {plots}.every(plot => plot._fullLayout?.font.color === ink)",
                               arg=ink, timeout=SLOW)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


@pytest.mark.long
def test_a_world_is_typed_in_or_refused_in_a_sentence(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/cartpole")
    world = page.get_by_role("combobox", name=re.compile("World"))
    for task, said in (("Pendulum-v2", "Pendulum-v1"), ("FrozenLake8x8-v1", "Ready.")):
        world.click(timeout=SLOW)
        world.fill(task)
        world.press("Enter")
        expect(page.locator(".rl-status").first).to_contain_text(said, timeout=SLOW)
    expect(page.get_by_role("img", name=re.compile("FrozenLake8x8-v1, Random actions"))).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("button", name="Play the episodes")).to_be_visible()  # with little motion they wait
    page.set_viewport_size({"width": 390, "height": 720})
    page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth", timeout=SLOW)
