"""Completions of real size: hundreds of tokens that scroll, fold and are walked by the keyboard, and long answers in
bands by verdict."""

import json
import re
from math import exp

import pytest
from playwright.sync_api import Page, expect

from labcore.runs.files.paths import run_folder
from labcore.runs.store.store import Store
from tests.app.seeding import samples, seed
from tests.browser.conftest import Server

SLOW = 60_000  # ms: a busy machine is no reason to fail
TOKENS = 500
PROMPT = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"


def completion(right: bool) -> dict:
    tokens = ["<think>", *[" hm"] * 99, "</think>", "🎉", "", "", *["\n" if place % 40 == 39 else " so"
                                                                   for place in range(TOKENS - 105)], " 7"]
    before, after = [-0.5] * TOKENS, [-0.499 if right else -0.501] * TOKENS
    return {"text": "".join(tokens), "reward": float(right), "exact": right, "advantage": 0.7 if right else -0.7,
            "truncated": not right, "tokens": tokens, "old_logprobs": before, "logprobs": after, "ref_logprobs": before,
            "advantages": [0.7 if right else -0.7] * TOKENS, "entropy": [0.5] * TOKENS, "ratio": [1.0] * TOKENS,
            "cut": [""] * TOKENS}


@pytest.fixture(scope="module")
def run(server: Server) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(server.home))
        store = Store()
        run_id = seed(store, "finished")
        store.dispose()
        both = [completion(True), completion(False)]
        watched = {"prompt": "What is 3 + 4?", "rendered": PROMPT, "answer": "7", "answers": [
            {key: each[key] for key in ("text", "reward", "exact", "advantage", "truncated")} | {
                "count": 1, "logprob_before": sum(each["old_logprobs"]), "logprob_after": sum(each["logprobs"]),
                "before": exp(-250), "after": exp(-250)} for each in both]}
        picture = samples() | {"watched": [watched], "groups": [
            {"prompt": "What is 3 + 4?", "rendered": PROMPT, "answer": "7", "completions": both}]}
        (run_folder(run_id) / "samples" / "step-000005.json").write_text(json.dumps(picture))
    return run_id


@pytest.mark.long
def test_every_token_is_reached_only_those_in_sight_are_drawn_and_long_answers_unfold(page: Page, server: Server,
                                                                                      run: str) -> None:
    page.goto(f"{server.url}/llm?run={run}&tab=Microscope")
    scope = page.locator(".rl-microscope")
    fold = scope.get_by_role("button", name=re.compile("thinking, 101 tokens"))
    expect(fold).to_have_attribute("aria-expanded", "false", timeout=SLOW)
    focused = scope.locator("[data-token]:focus")
    fold.focus()
    page.keyboard.press("ArrowRight")
    expect(focused).to_have_attribute("aria-label", re.compile("^token 102, 🎉, part 1 of 3"))
    page.keyboard.press("End")
    expect(focused).to_have_attribute("aria-label", re.compile(f"^token {TOKENS}, ·7"))
    expect(scope.locator(".rl-scope-lines caption").last).to_contain_text(f"Token {TOKENS} of {TOKENS}")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(fold).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowRight")
    expect(focused).to_have_attribute("aria-label", re.compile("^token 1, <think>"))
    page.keyboard.press("ArrowDown")
    expect(focused).to_have_attribute("aria-label", re.compile(r"^token \d+, ·hm"))
    assert scope.locator("[data-token]").count() < TOKENS / 2
    expect(scope.locator("h4 code")).to_have_text("What is 3 + 4?")
    scope.locator("h4 summary").press("Enter")
    expect(scope.locator("h4 .rl-chip").first).to_have_text("<|im_start|>")
    rows = scope.locator(".rl-scope-row .rl-scope-ends")
    assert rows.count() == 2 and all("7" in each for each in rows.all_inner_texts())
    long_answers_are_grouped_by_verdict_and_unfold(page)


def long_answers_are_grouped_by_verdict_and_unfold(page: Page) -> None:
    strip = page.locator(".rl-story-strip")
    bands = strip.locator(".rl-story-band")
    expect(bands).to_have_count(2, timeout=SLOW)
    expect(bands.first).to_have_attribute("aria-label", "right, 1 sample, reward 1.00, advantage +0.70, log-prob +0.50 "
                                                        "nats")
    expect(strip.locator(".rl-story-says")).to_contain_text("the right one rises by 0.50 nats")
    answer = strip.locator(".rl-story-answer").first
    answer.press("Enter")
    expect(strip.locator(".rl-story-text")).to_contain_text("thinking, 99 words")
    strip.locator(".rl-story-text summary").press("Enter")
    expect(strip.locator(".rl-story-text details")).to_have_attribute("open", "")
    answer.press("Enter")
    expect(strip.locator(".rl-story-text")).to_have_count(0)
    bands.first.press("Enter")
    expect(strip.locator(".rl-story-answer")).to_have_count(1)
    expect(strip.get_by_role("combobox")).to_contain_text("What is 3 + 4?")
