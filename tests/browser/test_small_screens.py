"""On a phone, a tablet and a small laptop no text of a run's page is cut: parts wrap, or are left out whole."""

import re
from itertools import product

import pytest
from playwright.sync_api import Page, expect

from labcore.runs.store.store import Store
from tests.browser.conftest import Server
from tests.browser.test_charts import CUT_TEXTS, SLOW, TOP, run_of

VERDICT = "The chosen answers become less likely as well"  # the longest there is
FINDING = {"rule": "kl_runaway", "severity": "warning", "verdict": VERDICT, "text": VERDICT, "holds": True,
           "evidence": "the KL is 0.9 nats a token and has grown by a half within the last ten steps",
           "fix": "Raise β.", "knob": "beta", "value": 0.1}
SIZES = {390: 844, 820: 1180, 1024: 768, 1440: 900}


def opened(page: Page, server: Server, run_id: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": SIZES[width]})
    page.goto(f"{server.url}/llm?run={run_id}")
    expect(page.locator(".rl-tile").first).to_be_visible(timeout=SLOW)
    expect(page.locator(".rl-scrubber output")).to_be_visible(timeout=SLOW)


@pytest.mark.long
def test_no_text_is_cut(page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_of(server, monkeypatch, "grpo", state="running")
    store = Store()
    store.log(run_id, "doctor", FINDING, 30)
    opened(page, server, run_id, 390)
    for state, width in product(("running", "paused", "finished"), SIZES):
        if store.run(run_id).state != state:
            store.set_state(run_id, state)
        page.set_viewport_size({"width": width, "height": SIZES[width]})
        expect(page.locator(".rl-doctor b")).to_have_text(VERDICT, timeout=SLOW)
        expect(page.locator(".rl-doctor b")).to_be_in_viewport(ratio=1)
        expect(page.locator(".rl-run")).to_contain_text(state.capitalize(), timeout=SLOW)
        expect(page.locator(".rl-run .rl-dot")).to_be_in_viewport(ratio=1)
        page.wait_for_function(f"top => ({CUT_TEXTS})(top).length === 0", arg=TOP, timeout=SLOW)
        page.wait_for_function("() => document.querySelector('.stMain').scrollWidth <= window.innerWidth", timeout=SLOW)
        for button in page.locator(".st-key-bar button:visible, .st-key-tiles button:visible").all():
            expect(button).to_be_in_viewport(ratio=1)


@pytest.mark.long
def test_a_sentence_of_the_run_is_shown_to_its_end(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "The loss was not a number at step 31, because the learning rate is too high for this model: lower it. "
    run_id = run_of(server, monkeypatch, "grpo", state="running")
    opened(page, server, run_id, 390)
    line, tiles = page.locator(".rl-run"), page.locator(".st-key-tiles")
    expect(line).to_contain_text("Running", timeout=SLOW)
    place = tiles.bounding_box()["y"]
    Store().set_state(run_id, "diverged", 3 * said)
    expect(line).to_contain_text("lower it", timeout=SLOW)
    assert tiles.bounding_box()["y"] == place, "what somebody reads does not move away"
    page.get_by_role("button", name="more", exact=True).click()
    assert line.evaluate("line => line.scrollHeight <= line.parentElement.clientHeight + 1")
    assert tiles.bounding_box()["y"] > place

    opened(page, server, run_id, 390)
    expect(line).to_contain_text("lower it", timeout=SLOW)
    expect(page.get_by_role("button", name="more", exact=True)).to_have_count(0)
    assert line.evaluate("line => line.scrollHeight <= line.clientHeight + 1") and page.evaluate(CUT_TEXTS, TOP) == []
    dots = line.evaluate("""line => [...line.querySelectorAll(".rl-muted .rl-apart")].map(dot =>
        dot.getBoundingClientRect().right - line.parentElement.getBoundingClientRect().left)""")
    assert len(dots) == 1 and dots[0] <= 1, "no row begins with a dot"


@pytest.mark.long
def test_the_words_of_a_button_go_once_it_is_pressed(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(page, server, run_of(server, monkeypatch, "grpo", state="paused"), 1024)
    step, tip = page.get_by_role("button", name=re.compile("^Step")), page.get_by_role("tooltip")
    step.hover()
    expect(tip).to_be_visible(timeout=SLOW)
    step.click()
    expect(tip).to_be_hidden(timeout=SLOW)
    page.wait_for_timeout(500)
    expect(tip).to_be_hidden()
    page.mouse.move(5, 700)
    step.hover()
    expect(tip).to_be_hidden()  # the one that was pressed need not say again what it does
    page.get_by_role("button", name="Stop").hover()
    expect(tip).to_be_visible(timeout=SLOW)
