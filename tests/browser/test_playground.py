"""The Playground, as a person uses them: hover, keys, a blind vote. In a real browser."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.browser.conftest import Server

SLOW = 60_000  # ms: a busy machine is no reason to fail


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of three steps in the server's own store: enough to answer otherwise than the untrained model does."""
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    store = Store()
    run_id = store.create(make(algorithm_key="sft", task_key="sort", steps=3, knobs={"eval_prompts": 8}), mine=True)
    assert drive(store, run_id) == "finished"
    return run_id


@pytest.mark.long
def test_two_models_answer_alike_asked_and_a_vote_becomes_a_pair(page: Page, server: Server, run: str) -> None:
    page.goto(f"{server.url}/playground?runs=base:{run},{run}&n=2&max=4")
    chips = page.locator(".rl-chips")
    expect(chips).to_have_count(4, timeout=SLOW)
    token = chips.nth(1).get_by_role("button").first
    token.hover()
    tip = page.get_by_role("tooltip").filter(has_text="token 1 of")
    expect(tip).to_contain_text("π of the base", timeout=SLOW)
    token.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip").filter(has_text="token 2 of")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("the same random numbers")).to_be_visible()

    page.get_by_text("Blind vote").click()
    expect(page.locator(".rl-ballot")).to_have_count(2, timeout=SLOW)
    expect(page.get_by_text(re.compile("SFT, step 3|Base, untrained"))).to_have_count(0)
    page.keyboard.press("2")
    expect(page.get_by_role("button", name=re.compile("^arrow_forward Next|^Next"))).to_be_visible(timeout=SLOW)
    expect(page.locator(".rl-ballot.rl-won")).to_contain_text("2 · your choice")
    expect(page.get_by_text("SFT, step 3").first).to_be_visible()
    row, = [json.loads(line) for line in (server.home / "votes" / "preferences.jsonl").read_text().splitlines()]
    assert {row["chosen_model"], row["rejected_model"]} == {f"{run}@3", f"base:{run}"}
