"""RLHF as one rail in a real browser: from the base to a reward model to RL against it, and labels of one's own."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server, away

SLOW = 60_000  # ms: a busy machine is no reason to fail

# No button of a stage lies on its name or numbers.
APART = """() => [...document.querySelectorAll('.rl-rail li')].every(stage => {
  const [buttons, ...texts] = ['.rl-rail-starts', '.rl-rail-name > b', '.rl-rail-numbers']
    .map(part => stage.querySelector(part)?.getBoundingClientRect());
  return !buttons || texts.every(text => text.right <= buttons.left || text.bottom <= buttons.top);
})"""


@pytest.mark.long
def test_from_a_reward_model_to_rl_and_to_labels_of_ones_own(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/llm?task=reviews&algorithm=reward_model&steps=4&sft_steps=6&eval_pairs=32")
    rail = page.locator(".rl-rail")
    expect(rail.locator("[data-stage=sft]")).to_contain_text("trained first, at most 6 steps", timeout=SLOW)
    expect(rail.locator("[data-stage=rl]")).to_contain_text("after the reward model")
    page.get_by_role("button", name=re.compile("^Run")).click()
    model = rail.locator("[data-stage=reward_model]").first
    expect(model).to_have_attribute("aria-current", "step", timeout=SLOW)
    expect(rail).to_have_count(1, timeout=SLOW)  # the form's own goes when the script is through
    page.goto(away(page, server))
    expect(model).to_contain_text(re.compile(r"finished.*held-out accuracy 0\.\d\d"), timeout=SLOW)
    expect(rail.locator("[data-stage=sft]")).to_contain_text("fluent", timeout=SLOW)
    expect(page.get_by_text(re.compile("On 32 held-out pairs the chosen side"))).to_be_visible(timeout=SLOW)
    page.wait_for_function("() => document.querySelectorAll('.rl-figure-chart .main-svg').length >= 4", timeout=SLOW)
    reward_model = page.url

    model.get_by_role("button", name="Label pairs").click()
    page.wait_for_url(re.compile("label=1"))
    page.get_by_role("button", name="A is better").click(timeout=SLOW)
    expect(page.get_by_text(re.compile("Pair 2 of"))).to_be_visible(timeout=SLOW)
    page.keyboard.press("2")
    expect(page.get_by_role("button", name="Train the reward model on my 2 labels")).to_be_visible(timeout=SLOW)
    page.reload()  # nothing is lost
    expect(page.get_by_role("button", name="Train the reward model on my 2 labels")).to_be_enabled(timeout=SLOW)

    rail.get_by_role("button", name="RLOO").click()
    rl = rail.locator("[data-stage=rl]")
    expect(rl).to_have_attribute("aria-current", "step", timeout=SLOW)
    assert "label" not in page.url
    expect(rl).to_contain_text(re.compile(r"RLOO reviews #\d+.*proxy −?\d.*gold 0"), timeout=SLOW)
    expect(page.get_by_text("Proxy and gold against √KL")).to_be_visible(timeout=SLOW)
    expect(page.locator(".rl-figure-chart [role=img]").last).to_have_attribute("aria-label", re.compile("gold"))
    page.get_by_role("button", name=re.compile("^Stop Shortcut")).click()
    expect(page.get_by_text("Stopped").first).to_be_visible(timeout=SLOW)
    model.get_by_role("button", name=re.compile("Reward model")).click()
    page.wait_for_url(reward_model, timeout=SLOW)
    for width in (1280, 1024, 960, 700, 390):
        page.set_viewport_size({"width": width, "height": 720})
        page.wait_for_function(APART, timeout=SLOW)
    page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth", timeout=SLOW)
